"""attention_backward() against double precision, and what it refuses."""

import jit_attention as ja
import ml_dtypes
import numpy
import pytest
from exact_attention import DTYPES, random_qkv


def exact_gradients(do, q, k, v, *, keep=None, score=None, slope=None):
    """dq, dk, dv in double precision, of (batch, seqlen, heads, head_dim); `keep`, `score` and its derivative `slope`
    are of index arrays."""
    scale = q.shape[-1] ** -0.5
    ratio = q.shape[2] // k.shape[2]
    do, q, k, v = [x.astype(numpy.float64).transpose(0, 2, 1, 3) for x in (do, q, k, v)]
    ks, vs = numpy.repeat(k, ratio, 1), numpy.repeat(v, ratio, 1)
    raw = scale * (q @ ks.transpose(0, 1, 3, 2))
    indices = numpy.ogrid[tuple(slice(size) for size in raw.shape)]
    scores = raw if score is None else score(raw, *indices)
    if keep is not None:
        scores = numpy.where(numpy.broadcast_to(keep(*indices), scores.shape), scores, -numpy.inf)
    largest = scores.max(-1, keepdims=True, initial=-numpy.inf)
    weights = numpy.exp(scores - numpy.where(numpy.isneginf(largest), 0, largest))
    total = weights.sum(-1, keepdims=True)
    p = weights / numpy.where(total == 0, 1, total)
    dp = do @ vs.transpose(0, 1, 3, 2)
    ds = p * (dp - (p * dp).sum(-1, keepdims=True))
    if slope is not None:
        ds = ds * slope(raw, *indices)

    def per_kv_head(x):
        return x.reshape(x.shape[0], -1, ratio, *x.shape[2:]).sum(2)

    gradients = (scale * ds @ ks, per_kv_head(scale * ds.transpose(0, 1, 3, 2) @ q),
                 per_kv_head(p.transpose(0, 1, 3, 2) @ do))
    return [x.transpose(0, 2, 1, 3) for x in gradients]


def check(got, exact):
    for name, result, expected in zip(("dq", "dk", "dv"), got, exact):
        assert result.shape == expected.shape, name
        assert numpy.isfinite(result).all(), name
        error = numpy.abs(result - expected).max(initial=0)
        assert error <= 0.02 * numpy.abs(expected).max(initial=0) + 1e-4, f"{name} is off by {error}"


def random_problem(rng, dtype, **sizes):
    q, k, v = random_qkv(rng, dtype=dtype, **sizes)
    do = rng.standard_normal((*q.shape[:3], v.shape[3])).astype(q.dtype)
    return do, q, k, v


@pytest.mark.parametrize("dtype", DTYPES)
def test_forward_and_backward_equal_double_precision(rng, place, fetch, dtype):
    problem = random_problem(rng, dtype, batch=2, seqlen_q=50, seqlen_kv=61, heads_q=4, heads_kv=2, head_dim=64,
                             head_dim_v=40)
    do, q, k, v = map(place, problem)
    mask = ja.mask.causal()
    o, lse = ja.attention(q, k, v, mask=mask, return_lse=True)
    got = ja.attention_backward(do, q, k, v, o, lse, mask=mask)
    assert [x.dtype for x in got] == [x.dtype for x in (q, k, v)]
    exact = exact_gradients(*problem, keep=lambda b, h, i, j: j <= i + 11)
    check(map(fetch, got), exact)
    got, again = (ja.attention_backward(do, q, k, v, o, lse, mask=mask, deterministic=True) for _ in range(2))
    check(map(fetch, got), exact)
    for first, second in zip(got, again):
        assert numpy.array_equal(fetch(first), fetch(second))


def test_texts_differentiate_themselves(rng, place, fetch):
    problem = random_problem(rng, "bf16", batch=1, seqlen_q=20, seqlen_kv=30, heads_q=2, heads_kv=2, head_dim=32)
    score = ja.score.text("return score + 0.5f * sinf(score) * weights[h];", tensors={"weights": "fp32"}, name="wave")
    weights = rng.standard_normal(2).astype(numpy.float32)
    do, q, k, v = map(place, problem)
    tensors = {"weights": place(weights)}
    o, lse = ja.attention(q, k, v, score=score, tensors=tensors, return_lse=True)
    got = ja.attention_backward(do, q, k, v, o, lse, score=score, tensors=tensors)
    check(map(fetch, got), exact_gradients(*problem, score=lambda s, b, h, i, j: s + 0.5 * numpy.sin(s) * weights[h],
                                           slope=lambda s, b, h, i, j: 1 + 0.5 * numpy.cos(s) * weights[h]))


def test_gradients_of_tensors_sinks_and_lse(rng, place, fetch):
    problem = random_problem(rng, "bf16", batch=1, seqlen_q=9, seqlen_kv=12, heads_q=2, heads_kv=1, head_dim=16)
    do, q, k, v = map(place, problem)
    bias, sinks = rng.standard_normal((1, 2, 1, 12)).astype(numpy.float32), rng.standard_normal(2).astype(numpy.float32)
    dlse = rng.standard_normal((1, 2, 9)).astype(numpy.float32)
    given = dict(score=ja.score.bias(), tensors={"bias": place(bias)}, sinks=place(sinks))
    o, lse = ja.attention(q, k, v, return_lse=True, **given)

    def loss(q, k, v, bias, sinks):
        scores = 0.25 * q @ numpy.repeat(k, 2, 1).transpose(0, 1, 3, 2) + bias
        weights = numpy.exp(scores)
        total = weights.sum(-1) + numpy.exp(sinks)[:, None]
        o = weights @ numpy.repeat(v, 2, 1) / total[..., None]
        return (o * problem[0].astype(numpy.float64).transpose(0, 2, 1, 3)).sum() + (dlse * numpy.log(total)).sum()

    exact = [x.astype(numpy.float64).transpose(0, 2, 1, 3) for x in problem[1:]] + [bias * 1.0, sinks * 1.0]

    def difference(number):
        gradient = numpy.zeros(exact[number].shape)
        for at in numpy.ndindex(gradient.shape):
            sides = [[x.astype(numpy.float64).copy() for x in exact] for _ in range(2)]
            sides[0][number][at] += 1e-5
            sides[1][number][at] -= 1e-5
            gradient[at] = (loss(*sides[0]) - loss(*sides[1])) / 2e-5
        return gradient

    mine = place(numpy.full(bias.shape, numpy.nan, numpy.float32))
    *got, by_name, d_sinks = ja.attention_backward(do, q, k, v, o, lse, dlse=place(dlse), d_sinks=True,
                                                   d_tensors={"bias": mine}, **given)
    assert by_name["bias"] is mine and list(by_name) == ["bias"]
    check([fetch(x) for x in got], [difference(i).transpose(0, 2, 1, 3) for i in range(3)])
    for result, number in ((mine, 3), (d_sinks, 4)):
        expected = difference(number)
        assert fetch(result).shape == expected.shape
        assert numpy.abs(fetch(result) - expected).max() <= 0.01 * numpy.abs(expected).max()
    *_, by_name = ja.attention_backward(do, q, k, v, o, lse, dlse=place(dlse), d_tensors=["bias"], **given)
    assert numpy.array_equal(fetch(by_name["bias"]), fetch(mine))


def test_texts_may_give_their_derivative(rng, place, fetch):
    problem = random_problem(rng, "bf16", batch=1, seqlen_q=9, seqlen_kv=12, heads_q=1, heads_kv=1, head_dim=16)
    score = ja.score.text("float x = 2 * score; return x * x;", name="square", derivative="return 8 * score;")
    assert score == ja.score.parse(str(score), score.texts) and score.texts[0].derivative == "return 8 * score;"
    do, q, k, v = map(place, problem)
    o, lse = ja.attention(q, k, v, score=score, return_lse=True)
    got = ja.attention_backward(do, q, k, v, o, lse, score=score)
    check(map(fetch, got), exact_gradients(*problem, score=lambda s, *_: 4 * s * s, slope=lambda s, *_: 8 * s))


def test_layout_and_given_arrays(rng, place, fetch):
    problem = random_problem(rng, "fp16", batch=2, seqlen_q=20, seqlen_kv=20, heads_q=2, heads_kv=1, head_dim=32)
    exact = exact_gradients(*problem)
    do, q, k, v = (place(numpy.ascontiguousarray(x.swapaxes(1, 2))) for x in problem)
    o, lse = ja.attention(q, k, v, layout="BHSD", return_lse=True)
    dk = place(numpy.full(problem[2].swapaxes(1, 2).shape, numpy.nan, problem[2].dtype))
    got = ja.attention_backward(do, q, k, v, o, lse, layout="BHSD", dk=dk)
    assert got[1] is dk
    check([fetch(x).swapaxes(1, 2) for x in got], exact)


def test_sixteen_bit_integers(rng, emulated):
    if not emulated:
        pytest.skip("arrays of NumPy are computed on an emulated device")
    problem = random_problem(rng, "bf16", batch=1, seqlen_q=9, seqlen_kv=9, heads_q=1, heads_kv=1, head_dim=16)
    do, q, k, v = (x.view(numpy.uint16) for x in problem)
    o, lse = ja.attention(q, k, v, dtype="bf16", return_lse=True)
    got = ja.attention_backward(do, q, k, v, o.view(numpy.uint16), lse, dtype="bf16")
    check([x.view(ml_dtypes.bfloat16).astype(numpy.float64) for x in got], exact_gradients(*problem))


def test_errors_name_the_argument(rng, place):
    problem = random_problem(rng, "bf16", batch=1, seqlen_q=8, seqlen_kv=8, heads_q=2, heads_kv=2, head_dim=16)
    do, q, k, v = map(place, problem)
    o, lse = ja.attention(q, k, v, return_lse=True)
    good = dict(do=do, q=q, k=k, v=v, o=o, lse=lse)
    ja.attention_backward(**good)
    for name, wrong, words in [
        ("do", do[:, :4], "seqlen"),
        ("do", place(problem[0].astype(numpy.float32)), "attention takes bf16 and fp16"),
        ("do", place(problem[0].astype(numpy.float16)), "fp16"),
        ("o", o[..., :8], "head_dim"),
        ("lse", None, "is missing"),
        ("lse", lse[:, :1], "heads"),
        ("dq", q, "dq"),
        ("dv", v[:, :4].copy() if isinstance(v, numpy.ndarray) else v[:, :4].clone(), "seqlen"),
    ]:
        with pytest.raises(ja.InvalidArgumentError) as info:
            ja.attention_backward(**{**good, name: wrong})
        assert name in str(info.value) and words in str(info.value), (name, str(info.value))
    with pytest.raises(ja.InvalidArgumentError, match="dk.*dv|dv.*dk"):
        ja.attention_backward(**good, dk=(same := place(problem[2].copy())), dv=same)
    with pytest.raises(ja.InvalidArgumentError, match="alibi_slopes"):
        ja.attention_backward(**good, score=ja.score.alibi())
    slopes = place(rng.standard_normal(2).astype(numpy.float32))
    biased = dict(good, score=ja.score.alibi(), tensors={"alibi_slopes": slopes})
    for wrong, name, words in [
        (dict(d_tensors=["bias"]), "d_tensors.bias", "no array of that name"),
        (dict(d_tensors={"alibi_slopes": slopes}), "d_tensors.alibi_slopes", "shares memory with alibi_slopes"),
        (dict(d_tensors={"alibi_slopes": place(numpy.zeros(3, numpy.float32))}), "d_tensors.alibi_slopes", "shape"),
        (dict(d_sinks=True), "d_sinks", "no sinks"),
        (dict(dlse=place(numpy.zeros((1, 2, 7), numpy.float32))), "dlse", "seqlen"),
    ]:
        with pytest.raises(ja.InvalidArgumentError) as info:
            ja.attention_backward(**biased, **wrong)
        assert name in str(info.value) and words in str(info.value), str(info.value)
    with pytest.raises(TypeError, match="d_tensors"):
        ja.attention_backward(**biased, d_tensors="alibi_slopes")
