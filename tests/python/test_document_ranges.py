"""Documents in forward_wgmma, whatever the order of ids."""

import itertools

import jit_attention as ja
import numpy
import pytest
from exact_attention import exact_attention, random_qkv
from seeded import some

LENGTH = 330  # of queries; the last tile of keys ends behind the sequence


def ascending(rng, length):
    return numpy.repeat(numpy.arange(5), [70, 3, 101, 84, length - 258])


def in_many_runs(rng, length):
    """The same few ids, in runs that come again."""
    runs = [numpy.full(rng.integers(1, 120), rng.integers(0, 3)) for _ in range(length)]
    return numpy.concatenate(runs)[:length]


def alternating(rng, length):
    return rng.integers(0, 4, length)


def without_neighbors(rng, length):
    """Ids around which there are others, so that ranges of ids tell little."""
    return numpy.where(numpy.arange(length) % 60 == 0, 9, ascending(rng, length))


MASKS = {
    "document": (ja.mask.document(), lambda i, j: True),
    "causal": (ja.mask.causal() & ja.mask.document(), lambda i, j: j <= i),
    "window": (ja.mask.document() & ja.mask.sliding_window(40, 9), lambda i, j: (j >= i - 40) & (j <= i + 9)),
}
CONFIGS = [
    "tile_q=128 tile_kv=64 stages_q=2 order=ping_pong rescale=lazy",
    "tile_q=192 tile_kv=48 stages_q=2 order=ping_pong rescale=on_overflow",
    "tile_q=128 tile_kv=96 stages_q=1 order=free rescale=lazy",
    "tile_q=128 tile_kv=80 stages_q=2 stages_k=1 stages_v=1 order=ping_pong rescale=lazy",
    "tile_q=64 tile_kv=64 stages_q=2 order=free rescale=on_overflow",
]


def config_of(words):
    fields = dict(word.split("=") for word in words.split())
    return {"family": "forward_wgmma", "stages_k": 2, "stages_v": 2} | {
        name: int(value) if value.isdecimal() else value for name, value in fields.items()
    }


ORDERS = [ascending, in_many_runs, alternating, without_neighbors]


@pytest.mark.parametrize("order, config, mask", some(itertools.product(ORDERS, CONFIGS, MASKS), count=11))
def test_tiles_hold_all_keys_that_are_seen(rng, place, fetch, order, config, mask):
    q, k, v = random_qkv(rng, batch=2, seqlen_q=LENGTH, seqlen_kv=LENGTH)
    ids = numpy.stack([order(rng, LENGTH) for _ in range(2)]).astype(numpy.int32)
    tensors = {"document_ids_q": place(ids), "document_ids_kv": place(ids)}
    spec_mask, keep = MASKS[mask]
    attend = ja.prepare(ja.AttentionSpec(dtype="fp16", head_dim=64, mask=spec_mask), config=config_of(config))
    o, lse = attend(place(q), place(k), place(v), tensors=tensors, return_lse=True)
    exact_attention(q, k, v, keep=lambda b, h, i, j: (ids[b, i] == ids[b, j]) & keep(i, j)).check(fetch(o), fetch(lse))


def test_consumers_whose_queries_see_nothing(rng, place, fetch):
    q, k, v = random_qkv(rng, batch=1, seqlen_q=256, seqlen_kv=200)
    ids_q = numpy.repeat([1, 7, 2, 7], 64)[None].astype(numpy.int32)
    ids_kv = numpy.repeat([1, 2], [50, 150])[None].astype(numpy.int32)
    tensors = {"document_ids_q": place(ids_q), "document_ids_kv": place(ids_kv)}
    attend = ja.prepare(ja.AttentionSpec(dtype="fp16", head_dim=64, mask=ja.mask.document()),
                        config=config_of(CONFIGS[0]))
    o, lse = attend(place(q), place(k), place(v), tensors=tensors, return_lse=True)
    exact_attention(q, k, v, keep=lambda b, h, i, j: ids_q[b, i] == ids_kv[b, j]).check(fetch(o), fetch(lse))
