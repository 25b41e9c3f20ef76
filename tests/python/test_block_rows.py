"""Blocks of 64 queries and 64 keys: tables of lists, and gradients of tiles of 64 keys."""

import jit_attention as ja
import numpy
import pytest
from exact_attention import exact_attention, random_qkv
from seeded import some

SHARE = 9  # kernels take long to compile
BLOCK = 64

CONFIGS = ["tile_q=64 tile_kv=64 stages_q=1 stages_k=2 stages_v=2 blocks_per_sm=2",
           "tile_q=128 tile_kv=64 stages_q=1 stages_k=2 stages_v=2"]


@pytest.fixture(autouse=True)
def hopper():
    if ja.devices()[0].arch != "sm_90a":
        pytest.skip("kernels of sm_90a")


class Lists:
    """Lists that differ by batch entry and head, in any order, with rows of none, of all, and with what names no block."""

    def __init__(self, rng, batch, heads, seqlen_q, seqlen_kv, *, valid=False, most=None):
        rows, columns = -(-seqlen_q // BLOCK), -(-seqlen_kv // BLOCK)
        shape = (batch, heads, rows)
        self.indices = rng.permuted(numpy.broadcast_to(numpy.arange(-1, columns + 1), (*shape, columns + 2)), axis=-1)
        self.indices = numpy.ascontiguousarray(self.indices, numpy.int32)
        self.counts = rng.integers(0, (most or columns) + 1, shape).astype(numpy.int32)
        self.counts[0, 0, :2] = 0, columns + 2
        self.counts[-1, -1, -3:] = 0
        self.valid = rng.integers(0, BLOCK + 1, columns).astype(numpy.int32) if valid else None
        self.blocks = numpy.zeros((*shape, columns), bool)
        for place in numpy.ndindex(shape):
            listed = self.indices[place][: self.counts[place]]
            self.blocks[place][listed[(listed >= 0) & (listed < columns)]] = True

    def keep(self, b, h, q, k):
        return self.blocks[b, h, q // BLOCK, k // BLOCK] & (self.valid is None or k % BLOCK < self.valid[k // BLOCK])

    def mask(self, q, k, place):
        return ja.sparse.video_mask(q, k, place(self.indices), place(self.counts),
                                    valid_rows=None if self.valid is None else place(self.valid))


@pytest.mark.parametrize("valid", [False, True])
@pytest.mark.parametrize("config", some(CONFIGS))
def test_forward(rng, place, fetch, config, valid):
    arrays = random_qkv(rng, batch=2, seqlen_q=700, seqlen_kv=900, heads_q=2, heads_kv=1)
    lists = Lists(rng, 2, 2, 700, 900, valid=valid, most=some([None, 3])[0])
    q, k, v = map(place, arrays)
    mask = lists.mask(q, k, place)
    attention = ja.prepare(ja.AttentionSpec(dtype="fp16", head_dim=64, gqa_ratio=2, mask=mask.mask),
                           config=f"family=forward_wgmma {config}")
    o, lse = attention(q, k, v, tensors=mask.tensors, return_lse=True)
    exact_attention(*arrays, keep=lists.keep).check(fetch(o), fetch(lse))


def test_with_a_mask_a_score_and_sinks(rng, place, fetch):
    """Within the blocks; sinks read lengths on the device."""
    arrays = random_qkv(rng, seqlen_q=300, seqlen_kv=300, heads_q=2)
    q, k, v = map(place, arrays)
    lists, sinks = Lists(rng, 1, 2, 300, 300), numpy.float32([0.5, -1])
    mask = ja.block_mask(q, k, mask=ja.mask.causal(), block_size=(BLOCK, BLOCK), blocks=place(lists.blocks), scores=False)
    attention = ja.prepare(ja.AttentionSpec(dtype="fp16", head_dim=64, mask=mask.mask, score=ja.score.softcap(5), sinks=True),
                           config=f"family=forward_wgmma {CONFIGS[0]}")
    o, lse = attention(q, k, v, tensors=mask.tensors, sinks=place(sinks), return_lse=True)
    expected = exact_attention(*arrays, keep=lambda b, h, i, j: lists.keep(b, h, i, j) & (j <= i),
                               score=lambda s, *_: 5 * numpy.tanh(s / 5))
    with_sinks = numpy.logaddexp(expected.lse, sinks[None, :, None])
    numpy.testing.assert_allclose(fetch(lse), with_sinks, atol=1e-3)
    share = numpy.exp(expected.lse - with_sinks).transpose(0, 2, 1)[..., None]
    numpy.testing.assert_allclose(fetch(o).astype(float), expected.o * share, atol=4e-3)


def gradients(arrays, do, keep):
    """dq, dk and dv in double precision, of one KV head."""
    q, k, v, do = (x.astype(numpy.float64).transpose(0, 2, 1, 3) for x in (*arrays, do))
    scores = q @ k.transpose(0, 1, 3, 2) / q.shape[-1] ** 0.5
    kept = numpy.broadcast_to(keep(*numpy.ogrid[tuple(map(slice, scores.shape))]), scores.shape)
    scores = numpy.where(kept, scores, -numpy.inf)
    largest = scores.max(-1, keepdims=True)
    weights = numpy.exp(scores - numpy.where(numpy.isneginf(largest), 0, largest))
    total = weights.sum(-1, keepdims=True)
    p = weights / numpy.where(total == 0, 1, total)
    ds = p * (do @ v.transpose(0, 1, 3, 2) - (do * (p @ v)).sum(-1, keepdims=True)) / q.shape[-1] ** 0.5
    sums = ds @ k, (ds.transpose(0, 1, 3, 2) @ q).sum(1, keepdims=True), (p.transpose(0, 1, 3, 2) @ do).sum(1, keepdims=True)
    return [x.transpose(0, 2, 1, 3) for x in sums]


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("head_dim, valid", some([(128, False), (96, True), (64, False)], 2))
def test_gradients_of_blocks_of_64_keys(rng, place, fetch, head_dim, valid, deterministic):
    arrays = random_qkv(rng, seqlen_q=700, seqlen_kv=500, heads_q=2, heads_kv=1, head_dim=head_dim)
    do = rng.standard_normal(arrays[0].shape).astype(arrays[0].dtype)
    lists = Lists(rng, 1, 2, 700, 500, valid=valid, most=3)
    q, k, v = map(place, arrays)
    mask = lists.mask(q, k, place)
    o, lse = ja.attention(q, k, v, block_mask=mask, return_lse=True)
    made = ja.attention_backward(place(do), q, k, v, o, lse, block_mask=mask, deterministic=deterministic)
    for own, expected in zip(map(fetch, made), gradients(arrays, do, lists.keep), strict=True):
        numpy.testing.assert_allclose(own.astype(float), expected, rtol=0.02, atol=0.01)
