"""Scores up to the largest floats, in each family: equal ones share, and what large negative ones leave is alone."""

import jit_attention as ja
import ml_dtypes
import numpy
import pytest
from exact_attention import DTYPES
from seeded import some

SHARE = 6  # kernels take long to compile
FAMILIES = {
    "mma_sync": "family=forward_mma_sync",
    "mma_sync always": "family=forward_mma_sync rescale=always",
    "split_kv": "family=forward_split_kv",
    "split_cluster": "family=forward_split_cluster",
    "split_wgmma": "family=forward_split_wgmma",
    "wgmma lazy": "family=forward_wgmma rescale=lazy",
    "wgmma on_overflow": "family=forward_wgmma rescale=on_overflow",
}
MAGNITUDES = [1e4, 1e5, 1e6, 3e7, 1e8, 4e8, 1e9, 1e10, 1e15, 1e20, 1e23]


def softmax(scores):
    """Weights and LSE in double precision."""
    largest = scores.max(-1, keepdims=True)
    weights = numpy.exp(scores - largest)
    total = weights.sum(-1, keepdims=True)
    return weights / total, (largest + numpy.log(total))[..., 0]


def check_lse(lse, right):
    """As near as floats of the size are, and their logarithm with them."""
    numpy.testing.assert_allclose(lse, right, rtol=3e-7, atol=1e-3)


def biases(rng, seqlen_q, seqlen_kv):
    """Rows of biases in each of which some keys have a large negative one, or all, or all a positive one."""
    bias = numpy.zeros((1, 1, seqlen_q, seqlen_kv), numpy.float32)
    for row in range(seqlen_q):
        size = MAGNITUDES[rng.integers(len(MAGNITUDES))]
        first = [seqlen_kv, 20, 90, 128, 140, 256, seqlen_kv - 1][row % 7]
        bias[..., row, : min(first, seqlen_kv)] = -size
        if row % 5 == 4:
            bias[..., row, :] = size
    return bias


def scores_in_fp32(q, k, bias):
    """Scores as floats hold them, where q · k / 8 + bias is exact in double precision."""
    products = numpy.einsum("bihd,bjhd->bhij", q.astype(float), k.astype(float)) / 8
    return (products + bias).astype(numpy.float32).astype(float)


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("family", some(FAMILIES, 2))
def test_large_biases(rng, place, fetch, family, dtype):
    seqlen = 300
    small = lambda *shape: rng.integers(-1, 2, shape).astype(DTYPES[dtype])  # noqa: E731
    spec = ja.AttentionSpec(head_dim=64, dtype=dtype, score=ja.score.bias("fp32"))
    attention = ja.prepare(spec, config=FAMILIES[family])
    for seqlen_q in (1, 8, 300):
        q, k = small(1, seqlen_q, 1, 64), small(1, seqlen, 1, 64)
        v = rng.standard_normal((1, seqlen, 1, 64)).astype(DTYPES[dtype])
        bias = biases(rng, seqlen_q, seqlen)
        weights, right = softmax(scores_in_fp32(q, k, bias))
        o, lse = attention(*map(place, (q, k, v)), tensors={"bias": place(bias)}, return_lse=True)
        exact = numpy.einsum("bhij,bjhd->bihd", weights, v.astype(float))
        numpy.testing.assert_allclose(fetch(o), exact, atol=0.02)
        check_lse(fetch(lse), right)


@pytest.mark.parametrize("family", some(FAMILIES, 2))
def test_large_products(rng, place, fetch, family):
    """Products of bf16, whose powers of two come as near to the largest float as sums of 64 may."""
    attention = ja.prepare(ja.AttentionSpec(head_dim=64, dtype="bf16", softmax_scale=1.0), config=FAMILIES[family])
    for exponent in some([8, 12, 15, 20, 40, 60], 3):
        for equal in (True, False):
            shape = (1, 200, 1, 64)
            signs = numpy.ones(shape) if equal else rng.integers(1, 128, shape) * rng.choice([-1, 1], shape) / 128
            q = (signs * 2.0**exponent).astype(ml_dtypes.bfloat16)
            signs = numpy.ones(shape) if equal else rng.integers(1, 128, shape) * rng.choice([-1, 1], shape) / 128
            k = (signs * 2.0**exponent).astype(ml_dtypes.bfloat16)
            v = rng.standard_normal(shape).astype(ml_dtypes.bfloat16)
            products = numpy.einsum("bihd,bjhd->bhij", q.astype(float), k.astype(float))
            weights, right = softmax(products)
            o, lse = attention(*map(place, (q, k, v)), return_lse=True)
            exact = numpy.einsum("bhij,bjhd->bihd", weights, v.astype(float))
            numpy.testing.assert_allclose(fetch(o), exact, atol=0.02)
            check_lse(fetch(lse), right)


def test_large_scores_of_fp8(rng, place, fetch):
    """All of one row's keys, or some of them, have scores whose exponents floats round by more than e4m3 does."""
    kind = numpy.dtype(ml_dtypes.float8_e4m3fn)
    ones = numpy.ones((1, 1), numpy.float32)
    for family in some(["family=forward_wgmma tile_kv=64 output=separate converter_warps=2", None], 1):
        for softmax_scale in some([1.0, 300.0, 2011.37], 2):
            q = rng.choice([0.5, 1, 2], (1, 128, 1, 64)).astype(kind)
            k = numpy.full((1, 300, 1, 64), 16).astype(kind)
            k[:, ::3] = 8
            v = rng.standard_normal((1, 300, 1, 64)).astype(kind)
            spec = ja.AttentionSpec(head_dim=64, dtype="fp8_e4m3", softmax_scale=softmax_scale)
            attention = ja.prepare(spec, config=family)
            products = numpy.einsum("bihd,bjhd->bhij", q.astype(float), k.astype(float)) * softmax_scale
            weights, right = softmax(products)
            scales = {name: place(ones) for name in ("q_descale", "k_descale", "v_descale")}
            o, lse = attention(*map(place, (q, k, v)), return_lse=True, **scales)
            exact = numpy.einsum("bhij,bjhd->bihd", weights, v.astype(float))
            numpy.testing.assert_allclose(fetch(o), exact, atol=0.03)
            check_lse(fetch(lse), right)


def test_large_scores_of_latent_keys(rng, place, fetch):
    widths = {"head_dim": 576, "head_dim_v": 512, "gqa_ratio": 16, "values_in_keys": True}
    spec = ja.AttentionSpec(**widths, score=ja.score.bias("fp32"), softmax_scale=1 / 32)  # products are exact
    attention = ja.prepare(spec, config="family=forward_mla_wgmma")
    q = rng.integers(-1, 2, (1, 4, 16, 576)).astype(ml_dtypes.bfloat16)
    k = rng.integers(-1, 2, (1, 300, 1, 576)).astype(ml_dtypes.bfloat16)
    bias = biases(rng, 4, 300)
    products = numpy.einsum("bihd,bjhd->bhij", q.astype(float), k.repeat(16, 2).astype(float)) / 32
    weights, right = softmax((products + bias).astype(numpy.float32).astype(float))
    o, lse = attention(*map(place, (q, k)), tensors={"bias": place(bias)}, return_lse=True)
    exact = numpy.einsum("bhij,bjd->bihd", weights, k[:, :, 0, :512].astype(float))
    numpy.testing.assert_allclose(fetch(o), exact, atol=0.02)
    check_lse(fetch(lse), right)
