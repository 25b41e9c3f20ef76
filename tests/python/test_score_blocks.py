"""Scores of blocks of keys: the largest or the mean score of a query with the keys of a block."""

import jit_attention as ja
import numpy
import pytest
from exact_attention import random_qkv
from request_batches import boundaries

SHARE = 6
POISON = -12345.0


def exact(q, k, block_size, reduce, *, keep=None, score=None, softmax_scale=None):
    """(batch, seqlen_q, heads_q, blocks) in double precision."""
    qs, ks = (x.astype(numpy.float64).transpose(0, 2, 1, 3) for x in (q, k))
    ratio = qs.shape[1] // ks.shape[1]
    scores = (q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale) * (
        qs @ numpy.repeat(ks, ratio, 1).transpose(0, 1, 3, 2))
    places = numpy.ogrid[tuple(slice(size) for size in scores.shape)]
    if score is not None:
        scores = score(scores, *places)
    seen = numpy.ones(scores.shape, bool) if keep is None else numpy.broadcast_to(keep(*places), scores.shape)
    scores, seen = scores.transpose(0, 2, 1, 3), seen.transpose(0, 2, 1, 3)
    blocks = []
    for begin in range(0, k.shape[1], block_size):
        own, own_seen = scores[..., begin:begin + block_size], seen[..., begin:begin + block_size]
        count = own_seen.sum(-1)
        if reduce == "max":
            blocks.append(numpy.where(own_seen, own, -numpy.inf).max(-1))
        else:
            mean = numpy.where(own_seen, own, 0).sum(-1) / numpy.maximum(count, 1)
            blocks.append(numpy.where(count > 0, mean, -numpy.inf))
    return numpy.stack(blocks, -1)


CASES = {
    "plain": dict(),
    "causal": dict(mask=ja.mask.causal(), keep=lambda b, h, i, j: j <= i + 220),
    "window": dict(mask=ja.mask.sliding_window(100, 3), keep=lambda b, h, i, j: (j >= i + 120) & (j <= i + 223)),
    "softcap": dict(score=ja.score.softcap(3), applied=lambda s, b, h, i, j: 3 * numpy.tanh(s / 3)),
    "text": dict(score=ja.score.text("return score + 0.25f * (q - k);", name="slope"),
                 applied=lambda s, b, h, i, j: s + 0.25 * (i - j)),
    "mask of a text": dict(mask=ja.mask.text("return (q + k) % 3 != 0 && k / 64 != 2;", name="some"),
                           keep=lambda b, h, i, j: ((i + j) % 3 != 0) & (j // 64 != 2)),
    "scale": dict(softmax_scale=0.4),
}


@pytest.mark.parametrize("reduce", ["max", "mean"])
@pytest.mark.parametrize("case", CASES)
def test_dense(rng, place, fetch, case, reduce):
    options = dict(CASES[case])
    keep, applied = options.pop("keep", None), options.pop("applied", None)
    head_dim, block_size = int(rng.choice([40, 64, 128, 200, 256])), int(rng.choice([8, 16, 32, 64, 128]))
    dtype = str(rng.choice(["bf16", "fp16"]))
    q, k, _ = random_qkv(rng, batch=2, seqlen_q=150, seqlen_kv=370, heads_q=4, heads_kv=2, head_dim=head_dim, dtype=dtype)
    wanted = exact(q, k, block_size, reduce, keep=keep, score=applied, softmax_scale=options.get("softmax_scale"))
    out = place(numpy.full(wanted.shape, POISON, numpy.float32))
    scores = ja.score_blocks(place(q), place(k), block_size=block_size, reduce=reduce, out=out, **options)
    assert scores is out
    numpy.testing.assert_allclose(fetch(scores), wanted, rtol=2e-3 if case == "softcap" else 1e-5, atol=1e-4)
    again = ja.score_blocks(place(q), place(k), block_size=block_size, reduce=reduce, **options)
    numpy.testing.assert_array_equal(fetch(again), fetch(scores))


@pytest.mark.parametrize("reduce, block_size", [("max", 128), ("mean", 16)])
def test_varlen(rng, place, fetch, reduce, block_size):
    """Sequences of all lengths, some empty; rows that are nobody's stay."""
    lengths_q, lengths_k = [130, 0, 1, 300, 64], [400, 50, 0, 300, 700]
    behind, blocks = 9, 700 // block_size + 2
    total_q, total_k = sum(lengths_q) + behind, sum(lengths_k)
    q, k, _ = random_qkv(rng, seqlen_q=total_q, seqlen_kv=total_k, heads_q=2, heads_kv=1, head_dim=64, dtype="bf16")
    out = place(numpy.full((total_q, 2, blocks), POISON, numpy.float32))
    scores = fetch(ja.score_blocks(place(q[0]), place(k[0]), block_size=block_size, reduce=reduce, mask=ja.mask.causal(),
                                   cu_seqlens_q=place(boundaries(lengths_q)), cu_seqlens_k=place(boundaries(lengths_k)),
                                   out=out))
    assert (scores[-behind:] == POISON).all()
    q_begin = k_begin = 0
    for length_q, length_k in zip(lengths_q, lengths_k):
        own = scores[q_begin:q_begin + length_q]
        wanted = numpy.full(own.shape, -numpy.inf)
        if length_k and length_q:
            shift = length_k - length_q
            known = exact(q[:, q_begin:q_begin + length_q], k[:, k_begin:k_begin + length_k], block_size, reduce,
                          keep=lambda b, h, i, j: j <= i + shift)[0]
            wanted[..., : known.shape[-1]] = known
        numpy.testing.assert_allclose(own, wanted, rtol=1e-5, atol=1e-4)
        q_begin, k_begin = q_begin + length_q, k_begin + length_k


def test_more_work_than_blocks(rng, place, fetch):
    q, k, _ = random_qkv(rng, batch=3, seqlen_q=900, seqlen_kv=1300, heads_q=8, heads_kv=1, head_dim=64, dtype="bf16")
    scores = fetch(ja.score_blocks(place(q), place(k), mask=ja.mask.causal()))
    numpy.testing.assert_allclose(scores, exact(q, k, 128, "max", keep=lambda b, h, i, j: j <= i + 400), rtol=1e-5, atol=1e-4)


def test_nan_stays(rng, place, fetch):
    q, k, _ = random_qkv(rng, seqlen_q=70, seqlen_kv=300, heads_q=1, head_dim=64, dtype="bf16")
    k[0, 200] = numpy.nan
    scores = fetch(ja.score_blocks(place(q), place(k), block_size=64))
    assert numpy.isnan(scores[..., 3]).all() and numpy.isfinite(numpy.delete(scores, 3, -1)).all()


def test_choose_blocks(rng, place, fetch):
    """As MiniMax does: the largest blocks under a causal mask, the first and the own one always."""
    q, k, _ = random_qkv(rng, seqlen_q=500, seqlen_kv=500, heads_q=2, heads_kv=1, head_dim=128, dtype="bf16")
    scores = ja.score_blocks(place(q), place(k), block_size=16, mask=ja.mask.causal())
    ends = numpy.arange(500, dtype=numpy.int32) // 16 + 1
    indices, counts = (fetch(x) for x in ja.top_k(scores[0], 8, ends=place(ends), init_blocks=1, local_blocks=1))
    own = fetch(scores)[0]
    for i in range(0, 500, 7):
        for head in range(2):
            best = own[i, head, : ends[i]].copy()
            best[[0, -1]] = numpy.inf
            wanted = numpy.sort(numpy.argsort(-best, kind="stable")[:8])
            assert counts[i, head] == len(wanted)
            numpy.testing.assert_array_equal(indices[i, head, : len(wanted)], wanted)


def test_nothing_to_do(rng, place):
    q, k, _ = random_qkv(rng, seqlen_q=4, seqlen_kv=70, heads_q=1, head_dim=64, dtype="bf16")
    assert ja.score_blocks(place(q[:, :0]), place(k)).shape == (1, 0, 1, 1)
    assert ja.score_blocks(place(q), place(k[:, :0])).shape == (1, 4, 1, 0)


@pytest.mark.parametrize("options, match", [
    (dict(block_size=24), "block_size"), (dict(block_size=256), "block_size"), (dict(reduce="sum"), "reduce"),
    (dict(blocks=3), "blocks"), (dict(out=numpy.zeros((1, 70, 1, 3), numpy.float32)), "out"),
    (dict(out=numpy.zeros((1, 70, 1, 2), numpy.float16)), "out"), (dict(softmax_scale="x"), "softmax_scale"),
])
def test_bad_arguments(rng, place, options, match):
    q, k, _ = random_qkv(rng, seqlen_q=70, seqlen_kv=200, heads_q=1, head_dim=64, dtype="bf16")
    options = {name: place(x) if isinstance(x, numpy.ndarray) else x for name, x in options.items()}
    with pytest.raises((ja.Error, TypeError), match=match):
        ja.score_blocks(place(q), place(k), **options)


def test_bad_rows(rng, place):
    q, k, _ = random_qkv(rng, seqlen_q=70, seqlen_kv=70, heads_q=1, head_dim=72, dtype="bf16")
    with pytest.raises(ja.Error, match="16"):
        ja.score_blocks(place(q)[..., 1:65], place(k)[..., 1:65])
    with pytest.raises(ja.InvalidArgumentError, match="blocks"):
        ja.score_blocks(place(q), place(k[0]), cu_seqlens_k=place(boundaries([70])))
