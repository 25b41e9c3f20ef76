"""Probabilities of blocks of keys, summed over the heads that share keys."""

import jit_attention as ja
import numpy
import pytest
from exact_attention import random_qkv
from request_batches import boundaries
from seeded import some

SHARE = 2  # kernels take long to compile
POISON = -12345.0


def exact(q, k, block_size, key_span, *, keep=None, score=None, softmax_scale=None):
    """(probabilities (batch, seqlen_q, heads_kv, blocks), LSE (batch, heads_q, seqlen_q)) in double precision."""
    qs, ks = (x.astype(numpy.float64).transpose(0, 2, 1, 3) for x in (q, k))
    ratio = qs.shape[1] // ks.shape[1]
    scores = (q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale) * (
        qs @ numpy.repeat(ks, ratio, 1).transpose(0, 1, 3, 2))
    places = numpy.ogrid[tuple(slice(size) for size in scores.shape)]
    if score is not None:
        scores = score(scores, *places)
    if keep is not None:
        scores = numpy.where(numpy.broadcast_to(keep(*places), scores.shape), scores, -numpy.inf)
    largest = scores.max(-1, keepdims=True, initial=-numpy.inf)
    weights = numpy.exp(scores - numpy.where(numpy.isneginf(largest), 0, largest))
    total = weights.sum(-1, keepdims=True)
    with numpy.errstate(divide="ignore"):
        lse = (numpy.log(total) + largest)[..., 0]
    probabilities = (weights / numpy.where(total == 0, 1, total)).reshape(len(q), -1, ratio, *scores.shape[2:]).sum(2)
    strides = k.shape[1] + key_span - 1 if k.shape[1] else 0
    blocks = -(-strides // block_size)
    counts = numpy.zeros((k.shape[1], blocks))
    for key in range(k.shape[1]):
        for stride in range(key, key + key_span):
            counts[key, stride // block_size] += 1
    blocks = probabilities @ counts
    return blocks.transpose(0, 2, 1, 3), lse


CASES = {
    "plain": dict(),
    "causal": dict(mask=ja.mask.causal(), keep=lambda b, h, i, j: j <= i + 220),
    "compressed": dict(mask=ja.mask.text("return 4 * k + 7 <= q;", name="compressed"), keep=lambda b, h, i, j: 4 * j + 7 <= i),
    "window": dict(mask=ja.mask.sliding_window(100, 3), keep=lambda b, h, i, j: (j >= i + 120) & (j <= i + 223)),
    "softcap": dict(score=ja.score.softcap(3), applied=lambda s, b, h, i, j: 3 * numpy.tanh(s / 3)),
    "mask of heads": dict(mask=ja.mask.text("return k / 64 != h % 3;", name="by_head"),
                          keep=lambda b, h, i, j: j // 64 != h % 3),
    "scale": dict(softmax_scale=0.4),
}


@pytest.mark.parametrize("key_span", [1, 2])
@pytest.mark.parametrize("case", some(CASES))
def test_dense(rng, place, fetch, case, key_span):
    options = dict(CASES[case])
    keep, applied = options.pop("keep", None), options.pop("applied", None)
    head_dim, block_size = int(rng.choice([40, 64, 128, 192, 256])), int(rng.choice([1, 2, 4, 8, 16, 64, 128]))
    ratio, dtype = int(rng.choice([1, 3, 16])), str(rng.choice(["bf16", "fp16"]))
    q, k, _ = random_qkv(rng, batch=2, seqlen_q=150, seqlen_kv=370, heads_q=2 * ratio, heads_kv=2, head_dim=head_dim, dtype=dtype)
    wanted, lse = exact(q, k, block_size, key_span, keep=keep, score=applied, softmax_scale=options.get("softmax_scale"))
    given = dict(reduce="probability", block_size=block_size, key_span=key_span, lse=place(lse.astype(numpy.float32)), **options)
    out = place(numpy.full(wanted.shape, POISON, numpy.float32))
    assert ja.score_blocks(place(q), place(k), out=out, **given) is out
    got = fetch(out)
    numpy.testing.assert_allclose(got, wanted, rtol=3e-3 if case == "softcap" else 1e-4, atol=1e-6)
    numpy.testing.assert_array_equal(got, fetch(ja.score_blocks(place(q), place(k), **given)))


@pytest.mark.parametrize("lengths_k", some([(400, 50, 0, 127, 700), (256, 128, 1, 255, 512)]))
def test_varlen(rng, place, fetch, lengths_k):
    """Sequences of all lengths, some empty, by attention's own LSE; rows that are nobody's stay."""
    lengths_q, behind, block_size = [130, 0, 1, 300, 64], 9, 4
    blocks = max(lengths_k) // block_size + 2
    total_q, total_k = sum(lengths_q) + behind, sum(lengths_k)
    q, k, v = random_qkv(rng, seqlen_q=total_q, seqlen_kv=total_k, heads_q=8, heads_kv=2, head_dim=64, dtype="bf16")
    options = dict(mask=ja.mask.causal(), cu_seqlens_q=place(boundaries(lengths_q)), cu_seqlens_k=place(boundaries(lengths_k)))
    _, lse = ja.attention(place(q[0]), place(k[0]), place(v[0]), return_lse=True, **options)
    out = place(numpy.full((total_q, 2, blocks), POISON, numpy.float32))
    scores = fetch(ja.score_blocks(place(q[0]), place(k[0]), block_size=block_size, key_span=2, reduce="probability", lse=lse,
                                   out=out, **options))
    assert (scores[-behind:] == POISON).all()
    q_begin = k_begin = 0
    for length_q, length_k in zip(lengths_q, lengths_k):
        wanted = numpy.zeros((length_q, 2, blocks))
        if length_k and length_q:
            known, _ = exact(q[:, q_begin:q_begin + length_q], k[:, k_begin:k_begin + length_k], block_size, 2,
                             keep=lambda b, h, i, j: j <= i + length_k - length_q)
            wanted[..., : known.shape[-1]] = known[0]
        numpy.testing.assert_allclose(scores[q_begin:q_begin + length_q], wanted, rtol=1e-3, atol=1e-5)
        q_begin, k_begin = q_begin + length_q, k_begin + length_k


def test_more_work_than_blocks(rng, place, fetch):
    """Items of several tiles of keys, each of which begins with what the one before ends with."""
    q, k, _ = random_qkv(rng, seqlen_q=2000, seqlen_kv=1300, heads_q=4, heads_kv=4, head_dim=64, dtype="bf16")
    wanted, lse = exact(q, k, 4, 2)
    lse = place(lse.astype(numpy.float32))
    scores = fetch(ja.score_blocks(place(q), place(k), reduce="probability", lse=lse, block_size=4, key_span=2))
    numpy.testing.assert_allclose(scores, wanted, rtol=1e-4, atol=1e-6)


def test_queries_without_keys_and_nan(rng, place, fetch):
    q, k, _ = random_qkv(rng, seqlen_q=70, seqlen_kv=300, heads_q=2, heads_kv=1, head_dim=64, dtype="bf16")
    wanted, lse = exact(q, k, 64, 1)
    lse[0, :, 5] = -numpy.inf
    wanted[0, 5] = 0
    lse, k[0, 200] = lse.astype(numpy.float32), numpy.nan
    scores = fetch(ja.score_blocks(place(q), place(k), reduce="probability", lse=place(lse), block_size=64))
    assert numpy.isnan(scores[0, :5, 0, 3]).all()
    numpy.testing.assert_allclose(numpy.delete(scores, 3, -1), numpy.delete(wanted, 3, -1), rtol=1e-4, atol=1e-6)


def test_nothing_to_do(rng, place):
    q, k, _ = random_qkv(rng, seqlen_q=4, seqlen_kv=70, heads_q=2, heads_kv=1, head_dim=64, dtype="bf16")
    options = dict(reduce="probability", block_size=4, key_span=2)
    lse = numpy.zeros((1, 2, 4), numpy.float32)
    assert ja.score_blocks(place(q[:, :0]), place(k), lse=place(lse[..., :0]), **options).shape == (1, 0, 1, 18)
    assert ja.score_blocks(place(q), place(k[:, :0]), lse=place(lse), **options).shape == (1, 4, 1, 0)


@pytest.mark.parametrize("options, match", [
    (dict(lse=None), "lse: is missing; probabilities are relative"), (dict(reduce="max"), "lse: is given; only probabilities"),
    (dict(lse=numpy.zeros((1, 2, 69), numpy.float32)), "lse"), (dict(lse=numpy.zeros((1, 2, 70), numpy.float64)), "lse"),
    (dict(block_size=3), "block_size.*power of two up to 128"), (dict(block_size=0), "block_size"),
    (dict(key_span=3), "key_span.*must be 1 or 2"), (dict(reduce="mean", key_span=2, lse=None), "key_span.*must be 1 where"),
    (dict(out=numpy.zeros((1, 70, 2, 50), numpy.float32)), "out"), (dict(reduce="sum"), 'reduce.*"max", "mean" or "prob')])
def test_bad_arguments(rng, place, options, match):
    q, k, _ = random_qkv(rng, seqlen_q=70, seqlen_kv=200, heads_q=2, heads_kv=1, head_dim=64, dtype="bf16")
    options = dict(reduce="probability", block_size=16 if options.get("reduce") in ("max", "mean") else 4,
                   lse=numpy.zeros((1, 2, 70), numpy.float32)) | options
    options = {name: place(x) if isinstance(x, numpy.ndarray) else x for name, x in options.items()}
    with pytest.raises((ja.Error, TypeError), match=match):
        ja.score_blocks(place(q), place(k), **options)
