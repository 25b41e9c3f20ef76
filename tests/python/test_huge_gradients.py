"""Gradients of queries whose keys all have huge scores, beside those of ordinary ones, in each family of backward."""

import jit_attention as ja
import ml_dtypes
import numpy
import pytest
from exact_attention import DTYPES
from seeded import some

#: Head dims that one pass computes with a consumer of dQ, with both consumers alike, with roles, and in pairs; which on
#: GPUs without it two passes do, as everywhere rows of 2 bytes' alignment.
FAMILIES = {"d64": 64, "d128": 128, "d192": 192, "d256": 256, "two passes": 40}
SCALE = 0.125
SHARE = 9  # kernels take long to compile


def scores_in_fp32(q, k, bias):
    """Scores as floats hold them, where q · k / 8 + bias is exact in double precision."""
    products = numpy.einsum("bihd,bjhd->bhij", q.astype(float), k.astype(float)) * SCALE
    return (products.astype(numpy.float32) + bias).astype(numpy.float32).astype(float)


def softmax(scores, sinks=None):
    """Weights in double precision; those of scores that stand for −∞ are 0."""
    scores = numpy.where(scores < -(2.0**80), -numpy.inf, scores)
    sink = numpy.full((*scores.shape[:-1], 1), -numpy.inf)
    if sinks is not None:
        sink[:] = sinks[:, None, None]
    largest = numpy.maximum(scores.max(-1, keepdims=True), sink)
    weights = numpy.exp(scores - numpy.where(numpy.isneginf(largest), 0, largest))
    of_sink = numpy.exp(sink - numpy.where(numpy.isneginf(largest), 0, largest))
    total = weights.sum(-1, keepdims=True) + of_sink
    total[total == 0] = 1
    return weights / total, (of_sink / total)[..., 0]


def exact_gradients(q, k, v, do, weights, scale=SCALE, dlse=0):
    """dq, dk and dv, and that of scores."""
    q, k, v, do = (x.astype(float) for x in (q, k, v, do))
    ratio = q.shape[2] // k.shape[2]
    wide_k, wide_v = k.repeat(ratio, 2), v.repeat(ratio, 2)
    d_p = numpy.einsum("bihd,bjhd->bhij", do, wide_v)
    d_s = weights * (d_p - (weights * d_p).sum(-1, keepdims=True) + numpy.asarray(dlse)[..., None])
    dk, dv = numpy.einsum("bhij,bihd->bjhd", d_s * scale, q), numpy.einsum("bhij,bihd->bjhd", weights, do)
    dk, dv = (x.reshape(*x.shape[:2], -1, ratio, x.shape[-1]).sum(3) for x in (dk, dv))
    return numpy.einsum("bhij,bjhd->bihd", d_s * scale, wide_k), dk, dv, d_s


def check(got, exact, tolerance=0.01):
    for name, x, right in zip(("dq", "dk", "dv"), got, exact):
        numpy.testing.assert_allclose(x, right, atol=tolerance * numpy.abs(right).max(initial=1), err_msg=name)


def problem(rng, head_dim, dtype, seqlen_q=200, seqlen_kv=200, batch=1, heads=2):
    """q, k, v and do: q and k of small integers, so that scores are exact."""
    kind = DTYPES[dtype]
    small = lambda seqlen, heads: rng.integers(-1, 2, (batch, seqlen, heads, head_dim)).astype(kind)  # noqa: E731
    normal = lambda seqlen, heads: rng.standard_normal((batch, seqlen, heads, head_dim)).astype(kind)  # noqa: E731
    return small(seqlen_q, heads), small(seqlen_kv, 1), normal(seqlen_kv, 1), normal(seqlen_q, heads)


def biases(seqlen_q, seqlen_kv, low):
    """Every third query has it for all keys, another third for some, the others for none."""
    bias = numpy.zeros((1, 1, seqlen_q, seqlen_kv), numpy.float32)
    bias[..., ::3, :] = low
    bias[..., 1::3, : seqlen_kv // 2] = low
    return bias


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("family", some(FAMILIES))
def test_large_biases(rng, place, fetch, family, dtype):
    """The mean's where floats of this size do not tell keys apart; those of ordinary queries are what they were."""
    lows = [-65504.0, -1e6, -1e9, -1e10, -1e20, 1e9, float(numpy.finfo(numpy.float32).min)]
    mask, seqlen = (ja.mask.causal() if dtype == "fp16" else ja.mask.none()), 200
    for low in some(lows, 2):
        q, k, v, do = problem(rng, FAMILIES[family], dtype)
        bias = biases(seqlen, seqlen, low)
        scores = scores_in_fp32(q, k, bias)
        if dtype == "fp16":
            scores = numpy.where(numpy.tri(seqlen, dtype=bool), scores, -numpy.inf)
        given = dict(score=ja.score.bias("fp32"), tensors={"bias": place(bias)}, mask=mask, softmax_scale=SCALE)
        placed = [place(x) for x in (q, k, v)]
        o, lse = ja.attention(*placed, return_lse=True, **given)
        for deterministic in some([False, True]):
            got = ja.attention_backward(place(do), *placed, o, lse, deterministic=deterministic, **given)
            check(map(fetch, got), exact_gradients(q, k, v, do, softmax(scores)[0]))


@pytest.mark.parametrize("deterministic", some([False, True]))
@pytest.mark.parametrize("family", some(FAMILIES))
def test_padding(rng, place, fetch, family, deterministic):
    """Rows of padding, of which some have no gradient, rows without keys and ordinary rows side by side, in a window."""
    seqlen = 150
    q, k, v, do = problem(rng, FAMILIES[family], "bf16", seqlen, seqlen, batch=2)
    nothing = float(numpy.finfo(numpy.float32).min)
    bias = rng.choice([0, -1e9, -1e10, 1e9, nothing], (2, 1, seqlen, 1)).repeat(seqlen, 3).astype(numpy.float32)
    bias[1, :, :130] = 0
    do[:, ::2] = 0
    dlse = rng.standard_normal((2, 2, seqlen)).astype(numpy.float32)
    dlse[..., ::4] = 0
    at = numpy.arange(seqlen)
    seen = (at <= at[:, None]) & (at >= at[:, None] - 40)
    scores = numpy.where(seen, scores_in_fp32(q, k, bias), -numpy.inf)
    given = dict(score=ja.score.bias("fp32"), tensors={"bias": place(bias)}, mask=ja.mask.sliding_window(40, 0),
                 softmax_scale=SCALE)
    placed = [place(x) for x in (q, k, v)]
    o, lse = ja.attention(*placed, return_lse=True, **given)
    calls = [ja.attention_backward(place(do), *placed, o, lse, dlse=place(dlse), deterministic=deterministic, **given)
             for _ in range(2)]
    first, second = ([fetch(x) for x in call] for call in calls)
    check(first, exact_gradients(q, k, v, do, softmax(scores)[0], dlse=dlse))
    assert all(numpy.array_equal(x, y) for x, y in zip(first, second)) or not deterministic


@pytest.mark.parametrize("family", some(FAMILIES))
def test_large_products(rng, place, fetch, family):
    """Equal ones share; where one is far above the others its key has all. None has more."""
    head_dim, seqlen = FAMILIES[family], 150
    for exponent in some([9, 12, 15, 20, 40, 58], 2):
        for equal in (True, False):
            shape, kind = (1, seqlen, 1, head_dim), ml_dtypes.bfloat16
            some_q, some_k = (numpy.ones(shape) if equal else rng.integers(1, 128, shape) * rng.choice([-1, 1], shape)
                              for _ in range(2))
            q, k = ((x / 128 * 2.0**exponent).astype(kind) for x in (some_q, some_k))
            v, do = (rng.standard_normal(shape).astype(kind) for _ in range(2))
            products = numpy.einsum("bihd,bjhd->bhij", q.astype(float), k.astype(float))
            first, second = numpy.sort(products, -1)[..., :-3:-1].transpose(3, 0, 1, 2)
            if not equal:  # of keys so near that floats cannot tell nobody knows
                do[:, (first - second < 1e-3 * numpy.abs(first))[0, 0]] = 0
            given = dict(softmax_scale=1.0)
            placed = [place(x) for x in (q, k, v)]
            o, lse = ja.attention(*placed, return_lse=True, **given)
            dq, dk, dv = map(fetch, ja.attention_backward(place(do), *placed, o, lse, **given))
            right = exact_gradients(q, k, v, do, softmax(products)[0], 1.0)
            numpy.testing.assert_allclose(dv, right[2], atol=0.05 * numpy.abs(right[2]).max())
            for got, other in ((dq, k), (dk, q)):  # sums of what is 0, or cancels, times numbers that are huge
                assert numpy.abs(got.astype(float)).max() <= 0.1 * head_dim * numpy.abs(other.astype(float)).max()


@pytest.mark.parametrize("deterministic", some([False, True]))
def test_varlen_sequences_with_sinks_and_gradients_of_biases(rng, place, fetch, deterministic):
    """Sinks of any size, one more key each, beside rows that are all large, and gradients of what made them so."""
    lengths_q, lengths_k, head_dim = [37, 0, 90], [50, 20, 131], 64
    ends_q, ends_k = (numpy.concatenate([[0], numpy.cumsum(x)]).astype(numpy.int32) for x in (lengths_q, lengths_k))
    for sink in some([0.5, -1e9, 1e9], 1):
        sinks = numpy.array([sink, -2], numpy.float32)
        q, k, v, do = (x[0] for x in problem(rng, head_dim, "bf16", ends_q[-1], ends_k[-1]))
        bias = biases(ends_q[-1], ends_k[-1], -1e9)
        given = dict(score=ja.score.bias("fp32"), tensors={"bias": place(bias)}, softmax_scale=SCALE,
                     sinks=place(sinks), cu_seqlens_q=place(ends_q), cu_seqlens_k=place(ends_k))
        placed = [place(x) for x in (q, k, v)]
        o, lse = ja.attention(*placed, return_lse=True, **given)
        dq, dk, dv, by_name, d_sinks = ja.attention_backward(
            place(do), *placed, o, lse, d_tensors=["bias"], d_sinks=True, deterministic=deterministic, **given)
        d_bias, right_sinks = numpy.zeros(bias.shape), numpy.zeros(2)
        for i in range(3):
            queries, keys = slice(*ends_q[i : i + 2]), slice(*ends_k[i : i + 2])
            own = [x[None] for x in (q[queries], k[keys], v[keys], do[queries])]
            scores = scores_in_fp32(own[0], own[1], bias[:, :, : lengths_q[i], : lengths_k[i]])
            weights, of_sinks = softmax(scores, sinks)
            *right, d_s = exact_gradients(*own, weights)
            check([fetch(x)[None, at] for x, at in ((dq, queries), (dk, keys), (dv, keys))], right)
            d_bias[0, 0, : lengths_q[i], : lengths_k[i]] += d_s[0].sum(0)
            d_p = numpy.einsum("bihd,bjhd->bhij", own[3].astype(float), own[2].astype(float).repeat(2, 2))
            right_sinks -= (of_sinks * (weights * d_p).sum(-1)).sum((0, 2))
        numpy.testing.assert_allclose(fetch(by_name["bias"]), d_bias, atol=0.02 * numpy.abs(d_bias).max())
        numpy.testing.assert_allclose(fetch(d_sinks), right_sinks, atol=0.02 * max(1, numpy.abs(right_sinks).max()))


@pytest.mark.parametrize("family", some(FAMILIES))
def test_dropout(rng, place, fetch, family):
    """As of scores that are not huge, where those of a row are equal: dropout knows places alone."""
    q, k, v, do = problem(rng, FAMILIES[family], "bf16")
    k[:] = k[:, :1]
    state = place(numpy.array([3, 5], numpy.int64))
    for padded in (False, True):
        results = []
        for low in (0, -1e9):
            bias = numpy.full((1, 1, 200, 200), low, numpy.float32)
            given = dict(score=ja.score.bias("fp32"), tensors={"bias": place(bias)}, dropout_p=0.3, rng_state=state)
            if padded:
                given |= {name: place(numpy.array([n], numpy.int32)) for name, n in (("seqused_q", 170), ("seqused_k", 150))}
            placed = [place(x) for x in (q, k, v)]
            o, lse = ja.attention(*placed, return_lse=True, **given)
            used = (170, 150, 150) if padded else (200, 200, 200)
            got = ja.attention_backward(place(do), *placed, o, lse, **given)
            results.append([fetch(x[:, :n]) for x, n in zip(got, used)])
        check(*results)


@pytest.mark.parametrize("family", some(FAMILIES))
def test_replayed_graphs(rng, place, fetch, emulated, family):
    """Other rows may be huge at each replay: what was found out of one problem says nothing of the next."""
    if emulated:
        pytest.skip("PyTorch captures on a GPU")
    torch = pytest.importorskip("torch", reason="captures graphs")
    seqlen = 200
    q, k, v, do = problem(rng, FAMILIES[family], "bf16")
    bias = place(numpy.zeros((1, 1, seqlen, seqlen), numpy.float32))
    given = dict(score=ja.score.bias("fp32"), tensors={"bias": bias}, mask=ja.mask.causal(), softmax_scale=SCALE)
    placed, placed_do = [place(x) for x in (q, k, v)], place(do)

    def compute():
        o, lse = ja.attention(*placed, return_lse=True, **given)
        return ja.attention_backward(placed_do, *placed, o, lse, **given)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        compute()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = compute()
    nothing = numpy.zeros((1, 1, seqlen, seqlen), numpy.float32)
    some_rows = biases(seqlen, seqlen, -1e9)
    for new in (nothing, some_rows, some_rows[:, :, ::-1].copy(), nothing - 1e10, nothing):
        bias.copy_(place(new))
        graph.replay()
        scores = numpy.where(numpy.tri(seqlen, dtype=bool), scores_in_fp32(q, k, new), -numpy.inf)
        check(map(fetch, results), exact_gradients(q, k, v, do, softmax(scores)[0]))
