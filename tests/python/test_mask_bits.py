"""Block masks with a bit for each score of blocks that are seen in part, and who asks them."""

import dataclasses
import sys

import jit_attention as ja
import numpy
import pytest
from block_masks import BY_HEAD, SEGMENTS, blocks_of, gradients, random_segments
from exact_attention import exact_attention, random_qkv

SHARE = 9  # kernels take long to compile


@pytest.mark.parametrize("scores", [True, 3])
def test_mask_bits_are_those_of_the_mask(rng, place, fetch, scores):
    arrays = random_qkv(rng, batch=2, seqlen_q=200, seqlen_kv=200, heads_q=4, heads_kv=2)
    q, k, v, segment = map(place, (*arrays, random_segments(rng, 2, 200)))
    asked = ja.block_mask(q, k, mask=SEGMENTS, tensors={"segment": segment}, block_size=(64, 64), scores=False)
    bm = ja.block_mask(q, k, mask=SEGMENTS, tensors={"segment": segment}, block_size=(64, 64), scores=scores)
    is_whole = scores is not True
    names = {"block_mask", "block_places", "block_scores"} | ({"segment"} if is_whole else set())
    assert set(bm.tensors) == names and bm.scores == scores and bm.within == SEGMENTS
    assert bm.mask == ja.mask.block_scores(64, 64, SEGMENTS if is_whole else None)
    places, seen, full = fetch(bm.tensors["block_places"]), *blocks_of(fetch(bm.table), 4)
    assert tuple(bm.tensors["block_scores"].shape) == (2, 1, 3 if is_whole else 16, 128)
    for b in range(2):
        partial = (seen & ~full)[b, 0].astype(bool)
        expected = numpy.full((4, 4), -1)
        expected[partial] = numpy.arange(partial.sum())
        expected[expected >= (3 if is_whole else 16)] = -1
        assert numpy.array_equal(places[b, 0], expected)

    o, lse = ja.attention(q, k, v, block_mask=bm, return_lse=True)
    right = exact_attention(
        *arrays, keep=lambda b, h, i, j: (fetch(segment)[b, i] == fetch(segment)[b, j]) | (j < 3)
    )
    right.check(fetch(o), fetch(lse))
    same = ja.attention(q, k, v, mask=SEGMENTS, tensors={"segment": segment}, block_mask=bm)
    by_hand = ja.attention(q, k, v, mask=bm.mask, tensors=bm.tensors)
    assert numpy.array_equal(fetch(same), fetch(o)) and numpy.array_equal(fetch(by_hand), fetch(o))
    do = place(rng.standard_normal(arrays[0].shape).astype(arrays[0].dtype))
    right = [fetch(x) for x in ja.attention_backward(do, q, k, v, o, lse, block_mask=asked)]
    by_bits = {"mask": bm.mask, "tensors": bm.tensors}
    beside = {"block_mask": bm, "mask": SEGMENTS, "tensors": {"segment": segment}}
    for given in ({"block_mask": bm}, beside, by_bits):
        for got, expected in zip(ja.attention_backward(do, q, k, v, o, lse, **given), right):
            assert numpy.array_equal(fetch(got), expected)


def test_mask_bits_are_made_unasked_where_that_pays(rng, place, monkeypatch):
    q, k, _ = map(place, random_qkv(rng, batch=2, seqlen_q=90, seqlen_kv=90, heads_q=2))
    segment = place(random_segments(rng, 2, 90))

    def known(mask, **given):
        bm = ja.block_mask(q, k, mask=mask, block_size=(32, 32), **given)
        assert ("block_scores" in bm.tensors) == bm.scores
        return bm.scores

    read = {"tensors": {"segment": segment}}
    is_hopper = ja.devices()[0].arch == "sm_90a"
    assert known(SEGMENTS, **read) == is_hopper
    assert not known(SEGMENTS, scores=False, **read) and known(SEGMENTS, scores=True, **read)
    assert not known(BY_HEAD) and known(BY_HEAD, scores=True)  # reads nothing
    of_two_entries = 2 * 3 * 3 * 32 * 32 // 8
    for most, expected in ((of_two_entries, is_hopper), (of_two_entries - 1, False)):
        monkeypatch.setattr(sys.modules["jit_attention.block_mask.making"], "_MOST_UNASKED_BYTES", most)
        assert known(SEGMENTS, **read) == expected


def looks_up_bits(do, q, k, v, o, lse, **given):
    return any("block_scores" in kernel.source for kernel in ja.prepare_backward(do, q, k, v, o, lse, **given))


@pytest.mark.parametrize("scores", [True, 3])
def test_gradients_ask_the_mask_where_they_can(rng, place, fetch, scores):
    arrays = random_qkv(rng, batch=2, seqlen_q=90, seqlen_kv=90, heads_q=2)
    q, k, v, segment = map(place, (*arrays, random_segments(rng, 2, 90)))
    bm = ja.block_mask(q, k, mask=SEGMENTS, tensors={"segment": segment}, block_size=(32, 32), scores=scores)
    o, lse = ja.attention(q, k, v, block_mask=bm, return_lse=True)
    call = (place(rng.standard_normal(arrays[0].shape).astype(arrays[0].dtype)), q, k, v, o, lse)
    assert not looks_up_bits(*call, block_mask=bm)
    without = dataclasses.replace(bm, read={})  # as made by hand: what the mask reads is not there
    assert looks_up_bits(*call, block_mask=without) and looks_up_bits(*call, mask=bm.mask, tensors=bm.tensors)
    for got, expected in zip(*(ja.attention_backward(*call, block_mask=given) for given in (bm, without))):
        assert numpy.array_equal(fetch(got), fetch(expected))


def test_a_score_reads_what_the_mask_does(rng, place, fetch):
    """Mask bits need it no more, and the score does."""
    arrays = random_qkv(rng, batch=2, seqlen_q=90, seqlen_kv=90, heads_q=2)
    near = rng.standard_normal((2, 90)).astype(numpy.float32)
    q, k, v, weights = map(place, (*arrays, near))
    mask = ja.mask.text("return weights[b * seqlen_kv + k] > 0.0f || k < 3;", name="some", tensors={"weights": "fp32"})
    score = ja.score.text("return score + weights[b * seqlen_kv + k];", name="more", tensors={"weights": "fp32"})
    tensors = {"weights": weights}
    do = place(rng.standard_normal(arrays[0].shape).astype(arrays[0].dtype))
    results = []
    for scores in (False, True):
        bm = ja.block_mask(q, k, mask=mask, tensors=tensors, block_size=(32, 32), scores=scores)
        given = {"block_mask": bm, "score": score, "tensors": tensors}
        o, lse = ja.attention(q, k, v, return_lse=True, **given)
        *grads, by_name = ja.attention_backward(do, q, k, v, o, lse, d_tensors=["weights"], **given)
        results.append([o, lse, *grads, by_name["weights"]])
    for got, expected in zip(*results, strict=True):
        assert numpy.array_equal(fetch(got), fetch(expected))
    with pytest.raises(ja.InvalidArgumentError, match="other: was given, but neither mask nor score reads"):
        ja.attention(q, k, v, block_mask=bm, tensors={"other": weights})


def test_gradients_of_a_mask_that_reads_all_that_a_call_may(rng, place, fetch):
    """Eight arrays, so that there is no room for the table beside them: bits are looked up."""
    arrays = random_qkv(rng, seqlen_q=50, seqlen_kv=50)
    q, k, v = map(place, arrays)
    kept = rng.integers(0, 2, (8, 50)).astype(numpy.int32)
    tensors = {f"kept{i}": place(row) for i, row in enumerate(kept)}
    body = " || ".join(f"kept{i}[k] > 0 && q % 8 == {i}" for i in range(8))
    mask = ja.mask.text(f"return k == 0 || {body};", name="eight", tensors=dict.fromkeys(tensors, "int32"))
    bm = ja.block_mask(q, k, mask=mask, tensors=tensors, block_size=(32, 32), scores=True)
    o, lse = ja.attention(q, k, v, block_mask=bm, return_lse=True)
    do = rng.standard_normal(arrays[0].shape).astype(arrays[0].dtype)
    call = (place(do), q, k, v, o, lse)
    assert looks_up_bits(*call, block_mask=bm)
    expected = gradients(*arrays, do, lambda b, h, i, j: (j == 0) | (kept[i % 8, j] > 0))
    for got, right in zip(ja.attention_backward(*call, block_mask=bm), expected):
        numpy.testing.assert_allclose(fetch(got), right, atol=0.02 * numpy.abs(right).max())


def test_room_for_scores(rng, place):
    q, k, _ = map(place, random_qkv(rng, seqlen_q=100, seqlen_kv=150))
    for scores in (0, -1):
        with pytest.raises(ja.InvalidSpecError, match="scores: is"):
            ja.block_mask(q, k, mask=BY_HEAD, scores=scores)
    counts, indices = place(numpy.ones((1, 1, 4), numpy.int32)), place(numpy.zeros((1, 1, 4, 2), numpy.int32))
    bm = ja.BlockMask.from_lists(
        counts, indices, seqlen_q=100, seqlen_k=150, block_size=(32, 16), mask=ja.mask.prefix(9), scores=True
    )
    assert tuple(bm.tensors["block_scores"].shape) == (1, 1, 4 * 2, 64)
