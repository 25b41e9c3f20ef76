"""Placements by block masks, which say of any mask how much each row of blocks computes."""

import jit_attention as ja
import numpy
import pytest

PREFIX = ja.mask.text("return k <= q || k < prefix[b];", name="prefix", tensors={"prefix": "int32"})
SEQLEN = 512


def rows(seqlen=SEQLEN):
    return numpy.zeros((1, seqlen, 1, 64), numpy.float16)


def made(tensors, *, mask=PREFIX, seqlen=SEQLEN, block=(64, 64), place=lambda x: x):
    x = place(rows(seqlen))
    return ja.block_mask(x, x, mask=mask, tensors={k: place(v) for k, v in tensors.items()}, block_size=block)


def test_given_and_made_of_tensors_are_equal(place):
    tensors = {"prefix": numpy.array([300], numpy.int32)}
    by_tensors = ja.distributed.balance(PREFIX, seqlen=SEQLEN, ranks=4, granule=64, tensors=tensors)
    given = ja.distributed.balance(seqlen=SEQLEN, ranks=4, block_mask=made(tensors, place=place))
    assert given == by_tensors
    causal = ja.distributed.balance(ja.mask.causal(), seqlen=SEQLEN, ranks=4, granule=64)
    assert given.loads != causal.loads


def test_a_causal_block_mask_places_as_the_mask_does(place):
    causal = ja.mask.causal()
    table = made({}, mask=causal, block=(128, 128), place=place)
    given = ja.distributed.balance(seqlen=SEQLEN, ranks=3, block_mask=table)
    by_mask = ja.distributed.balance(causal, seqlen=SEQLEN, ranks=3, granule=128)
    assert given.loads == by_mask.loads and given.imbalance == by_mask.imbalance
    assert [given.pieces(r) for r in range(3)] == [by_mask.pieces(r) for r in range(3)]


@pytest.mark.parametrize("arguments, name, rule", [
    (dict(block_mask=dict(block=(64, 128))), "block_mask", "must be squares"),
    (dict(block_mask=dict(seqlen=448)), "block_mask", "must be of 512 each"),
    (dict(block_mask={}, documents=[256, 256]), "documents", "put them into the mask"),
    (dict(block_mask={}, granule=128), "granule", "blocks of the block mask have 64"),
    (dict(mask=PREFIX), "mask", "give them as tensors, or give block_mask"),
])
def test_refusals(arguments, name, rule, place):
    given = dict(arguments)
    if "block_mask" in given:
        given["block_mask"] = made({"prefix": numpy.array([9], numpy.int32)}, place=place, **given["block_mask"])
    with pytest.raises(ja.InvalidArgumentError, match=rule) as caught:
        ja.distributed.balance(**given, seqlen=SEQLEN, ranks=2)
    assert caught.value.field == name
