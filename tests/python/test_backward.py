"""attention_backward() against double precision, and what it refuses."""

import math

import jit_attention as ja
import ml_dtypes
import numpy
import pytest
from exact_attention import DTYPES, random_qkv
from request_batches import BF16, boundaries, int32, requests
from seeded import some

SHARE = 9  # kernels take long to compile


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
        return x.reshape(x.shape[0], x.shape[1] // ratio, ratio, *x.shape[2:]).sum(2)

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


@pytest.mark.parametrize("dtype", some(DTYPES))
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
        assert numpy.abs(fetch(result) - expected).max() <= 0.01 * max(1, numpy.abs(expected).max())  # sums cancel
    *_, by_name = ja.attention_backward(do, q, k, v, o, lse, dlse=place(dlse), d_tensors=["bias"], **given)
    assert numpy.array_equal(fetch(by_name["bias"]), fetch(mine))


def test_texts_may_give_their_derivative(rng, place, fetch):
    problem = random_problem(rng, "bf16", batch=1, seqlen_q=9, seqlen_kv=12, heads_q=1, heads_kv=1, head_dim=16)
    derivative = "const float t = tanhf(score / 2); return 1 - t * t;"
    score = ja.score.text("float x = score / 2; return 2 * tanhf(x);", name="bent", derivative=derivative)
    assert score == ja.score.parse(str(score), score.texts) and score.texts[0].derivative == derivative
    do, q, k, v = map(place, problem)
    o, lse = ja.attention(q, k, v, score=score, return_lse=True)
    got = ja.attention_backward(do, q, k, v, o, lse, score=score)
    check(map(fetch, got), exact_gradients(*problem, score=lambda s, *_: 2 * numpy.tanh(s / 2),
                                           slope=lambda s, *_: 1 - numpy.tanh(s / 2) ** 2))


def test_stated_derivatives_equal_difference_quotients(rng, place, fetch):
    problem = random_problem(rng, "bf16", batch=2, seqlen_q=9, seqlen_kv=12, heads_q=2, heads_kv=1, head_dim=16)
    do, q, k, v = map(place, problem)
    weights, table = (rng.standard_normal(n).astype(numpy.float32) for n in (2, 5))
    score = ja.score.text("const float x = score; return x + weights[h] * erfcf(x) - table[k % 5];", name="warp",
                          tensors={"weights": "fp32", "table": "fp32"},
                          derivative="""
                              d_weights[h] += erfcf(score);
                              d_table[k % 5] -= 1;
                              return 1 - weights[h] * 1.1283791671f * expf(-score * score);""")
    given = dict(score=score, tensors={"weights": place(weights), "table": place(table)})
    o, lse = ja.attention(q, k, v, return_lse=True, **given)
    *_, got = ja.attention_backward(do, q, k, v, o, lse, d_tensors=["weights", "table"], **given)
    exact_do, exact_q, exact_k, exact_v = (x.astype(numpy.float64).transpose(0, 2, 1, 3) for x in problem)
    erfc = numpy.vectorize(math.erfc)
    raw = 0.25 * exact_q @ exact_k.transpose(0, 1, 3, 2)

    def loss(weights, table):
        scores = numpy.exp(raw + weights[:, None, None] * erfc(raw) - table[numpy.arange(12) % 5])
        return (exact_do * (scores / scores.sum(-1, keepdims=True) @ exact_v)).sum()

    exact = {"weights": weights.astype(numpy.float64), "table": table.astype(numpy.float64)}
    for name, array in exact.items():
        steps = [{**exact, name: array + step} for step in 1e-5 * numpy.eye(len(array))]
        expected = numpy.array([loss(**above) - loss(**exact) for above in steps]) / 1e-5
        assert numpy.abs(fetch(got[name]) - expected).max() <= 0.02 * max(1, numpy.abs(expected).max()), name


def test_statements_are_refused_by_name_and_at_their_line(rng, place):
    problem = random_problem(rng, "bf16", batch=1, seqlen_q=8, seqlen_kv=8, heads_q=1, heads_kv=1, head_dim=16)
    do, q, k, v = map(place, problem)
    o, lse = ja.attention(q, k, v, return_lse=True)

    def backward(derivative, name):
        score = ja.score.text("return score * heat[0];", name="warm", tensors={"heat": "fp32"}, derivative=derivative)
        heat = {"heat": place(numpy.ones(1, numpy.float32))}
        return ja.attention_backward(do, q, k, v, o, lse, score=score, tensors=heat, d_tensors=[name])

    with pytest.raises(ja.InvalidArgumentError, match=r"d_tensors.heat: .*'warm'.*write `d_heat\[...\] \+= ...` there"):
        backward("return heat[0];", "heat")
    with pytest.raises(ja.CompileFailedError, match="`d_table") as info:
        backward("d_heat[0] += score;\nd_cold[0] += score;\nreturn heat[0];", "heat")
    assert 'warm.derivative:2: error: identifier "d_cold" is undefined' in info.value.log


@pytest.mark.parametrize("given, message", [
    (dict(tensors={"bias": None}), r'tensors\["bias"\] is None; it must be an array'),
    (dict(tensors={3: None}), "tensors must have names, each a str, not 3"),
    (dict(d_tensors=[3]), "d_tensors must have names, each a str, not 3"),
])
def test_names_of_arrays(rng, place, given, message):
    problem = random_problem(rng, "bf16", batch=1, seqlen_q=8, seqlen_kv=8, heads_q=1, heads_kv=1, head_dim=16)
    do, q, k, v, lse = map(place, (*problem, numpy.zeros((1, 1, 8), numpy.float32)))
    with pytest.raises(TypeError, match=message):
        ja.attention_backward(do, q, k, v, do, lse, score=ja.score.bias(), **given)


def test_each_tuning_mode_computes(rng, place, fetch):
    problem = random_problem(rng, "bf16", batch=1, seqlen_q=8, seqlen_kv=8, heads_q=2, heads_kv=2, head_dim=16)
    do, q, k, v = map(place, problem)
    o, lse = ja.attention(q, k, v, return_lse=True)
    for mode in (None, "off", "recorded", "first_run"):
        check(map(fetch, ja.attention_backward(do, q, k, v, o, lse, tuning=mode)), exact_gradients(*problem))
    with pytest.raises(ja.InvalidArgumentError, match="tuning: is 'never'; it must be None or one of"):
        ja.attention_backward(do, q, k, v, o, lse, tuning="never")


def test_prepared_calls_only_launch(rng, place, fetch, caplog):
    caplog.set_level("INFO", "jit_attention")
    problem = random_problem(rng, "fp16", batch=1, seqlen_q=8, seqlen_kv=8, heads_q=2, heads_kv=2, head_dim=24)
    do, q, k, v = map(place, problem)
    o, lse = ja.attention(q, k, v, return_lse=True)
    dq = place(numpy.full(problem[1].shape, numpy.nan, problem[1].dtype))
    kernels = ja.prepare_backward(do, q, k, v, o, lse, dq=dq, tuning="off")
    assert numpy.isnan(fetch(dq)).all()
    assert any("backward" in kernel.source for kernel in kernels) and all(kernel.why for kernel in kernels)
    caplog.clear()
    got = ja.attention_backward(do, q, k, v, o, lse, dq=dq, tuning="off")
    assert not caplog.records
    check(map(fetch, got), exact_gradients(*problem))
    slopes = place(numpy.ones(2, numpy.float32))
    more = ja.prepare_backward(do, q, k, v, o, lse, score=ja.score.alibi(), tensors={"alibi_slopes": slopes},
                               d_tensors=["alibi_slopes"], tuning="off")
    assert len(more) > len(kernels)
    with pytest.raises(ja.InvalidArgumentError, match="do: has"):
        ja.prepare_backward(do[:, :4], q, k, v, o, lse)


def test_layout_and_given_arrays(rng, place, fetch):
    problem = random_problem(rng, "fp16", batch=2, seqlen_q=20, seqlen_kv=20, heads_q=2, heads_kv=1, head_dim=32)
    exact = exact_gradients(*problem)
    do, q, k, v = (place(numpy.ascontiguousarray(x.swapaxes(1, 2))) for x in problem)
    o, lse = ja.attention(q, k, v, layout="BHSD", return_lse=True)
    dk = place(numpy.full(problem[2].swapaxes(1, 2).shape, numpy.nan, problem[2].dtype))
    got = ja.attention_backward(do, q, k, v, o, lse, layout="BHSD", dk=dk)
    assert got[1] is dk
    check([fetch(x).swapaxes(1, 2) for x in got], exact)


def test_lse_of_stride_0(rng, place, fetch):
    do, q, k, v = random_problem(rng, "bf16", batch=1, seqlen_q=9, seqlen_kv=12, heads_q=2, heads_kv=1, head_dim=16)
    q[:, :, 1] = q[:, :, 0]  # heads of equal lse, of which one may stand for both
    do, q, k, v = map(place, (do, q, k, v))
    o, lse = ja.attention(q, k, v, return_lse=True)
    lse = numpy.ascontiguousarray(fetch(lse), numpy.float32)
    expected, got = (ja.attention_backward(do, q, k, v, o, place(x), deterministic=True)
                     for x in (lse, numpy.broadcast_to(lse[:, :1], lse.shape)))
    for right, gradient in zip(expected, got, strict=True):
        assert numpy.array_equal(fetch(gradient), fetch(right))


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
        ("do", place(problem[0].astype(numpy.float32)), "gradients are those of bf16 and fp16"),
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


def varlen(rng, lengths_q, lengths_k, **sizes):
    """Requests, the gradient of each one's output, and the arrays of a call: poison where no request has a row."""
    batch = requests(rng, lengths_q, lengths_k, **sizes)
    do = [rng.standard_normal((*q.shape[:2], v.shape[2])).astype(q.dtype) for q, v in zip(batch.q, batch.v)]
    return batch, do


def packed(place, rows, spare=0):
    """The rows of all requests, one behind another, each with room for more."""
    end = numpy.full((spare, *rows[0].shape[1:]), numpy.nan, rows[0].dtype)
    return place(numpy.concatenate([part for own in rows for part in (own, end)]))


def check_requests(got, batch, do, spare=0, **exact):
    """`exact` has functions of the lengths of a request that make what exact_gradients takes."""
    begins = {"q": 0, "k": 0}
    for own_do, q, k, v in zip(do, batch.q, batch.k, batch.v):
        rows = [slice(begins[side], begins[side] + len(x)) for side, x in (("q", q), ("k", k), ("k", v))]
        own = {name: make(len(q), len(k)) for name, make in exact.items()}
        expected = exact_gradients(own_do[None], q[None], k[None], v[None], **own)
        check([x[None, at] for x, at in zip(got, rows)], expected)
        begins["q"] += len(q) + spare
        begins["k"] += len(k) + spare


def bottom_right(seqlen_q, seqlen_k):
    return lambda b, h, i, j: j <= i + seqlen_k - seqlen_q


@pytest.mark.parametrize("spare", [0, 5])
def test_varlen_sequences(rng, place, fetch, spare):
    lengths_q, lengths_k = [33, 0, 1, 70], [40, 9, 0, 65]
    batch, do = varlen(rng, lengths_q, lengths_k, heads_kv=2, ratio=2, head_dim=32, head_dim_v=24)
    q, k, v, gradient = (packed(place, rows, spare) for rows in (batch.q, batch.k, batch.v, do))
    arrays = {"cu_seqlens_q": boundaries([n + spare for n in lengths_q]),
              "cu_seqlens_k": boundaries([n + spare for n in lengths_k])}
    if spare:
        arrays |= {"seqused_q": int32(lengths_q), "seqused_k": int32(lengths_k)}
    options = {name: place(array) for name, array in arrays.items()}
    options |= dict(mask=ja.mask.causal(), score=ja.score.softcap(2.0))
    o, lse = ja.attention(q, k, v, return_lse=True, **options)
    given = [place(numpy.full(x.shape, 7, BF16)) for x in (q, k, v)]
    got = ja.attention_backward(gradient, q, k, v, o, lse, dq=given[0], dk=given[1], dv=given[2], **options)
    assert all(a is b for a, b in zip(got, given))
    got = [fetch(x) for x in got]
    check_requests(got, batch, do, spare, keep=bottom_right, score=lambda *_: lambda s, *_: 2 * numpy.tanh(s / 2),
                   slope=lambda *_: lambda s, *_: 1 - numpy.tanh(s / 2) ** 2)
    for x, lengths in zip(got, (lengths_q, lengths_k, lengths_k)):
        if spare:  # rows of nobody
            ends = numpy.cumsum([n + spare for n in lengths])
            assert all((x[end - spare : end] == 7).all() for end in ends)


@pytest.mark.parametrize("deterministic", some([False, True]))  # one pass where there is one, or two
def test_varlen_sequences_with_sinks_tensors_and_a_gradient_of_lse(rng, place, fetch, deterministic):
    """As each request alone, and what requests share as the sum of their gradients."""
    lengths_q, lengths_k, spare = [21, 0, 2, 70, 5], [30, 9, 9, 65, 0], 6
    ends = dict(cu_seqlens_q=place(boundaries([n + spare for n in lengths_q])),
                cu_seqlens_k=place(boundaries([n + spare for n in lengths_k])))
    batch, do = varlen(rng, lengths_q, lengths_k, heads_kv=1, ratio=2, head_dim=32)
    q, k, v, gradient = (packed(place, rows, spare) for rows in (batch.q, batch.k, batch.v, do))
    dlse = rng.standard_normal((2, q.shape[0])).astype(numpy.float32)
    sinks, table = (rng.standard_normal(n).astype(numpy.float32) for n in (2, 7))
    warmth = 1 + rng.random((5, 2)).astype(numpy.float32)  # of a request's head
    score = ja.score.text("return score * warmth[b * heads_q + h] + table[k % 7] * table[q % 7];", name="shared",
                          tensors={"warmth": "fp32", "table": "fp32"})
    common = dict(mask=ja.mask.causal(), score=score, sinks=place(sinks))
    wanted = dict(d_sinks=True, d_tensors=["table", "warmth"], deterministic=deterministic)
    options = dict(common, tensors={"warmth": place(warmth), "table": place(table)}, **ends)
    # Rows of nobody count for nothing, whatever they hold: here what they left as queries.
    whole = [place(rng.standard_normal(x.shape).astype(BF16)) for x in (gradient, q, k, v)]
    ja.attention_backward(*whole, *ja.attention(*whole[1:], return_lse=True, **options), **options, **wanted)
    options |= dict(seqused_q=place(int32(lengths_q)), seqused_k=place(int32(lengths_k)))
    o, lse = ja.attention(q, k, v, return_lse=True, **options)
    first, again = (ja.attention_backward(gradient, q, k, v, o, lse, dlse=place(dlse), **options, **wanted)
                    for _ in range(2))
    got, shared = [fetch(x) for x in first[:3]], [*map(fetch, first[3].values()), fetch(first[4])]
    for x, y in zip(shared, [*again[3].values(), again[4]]):
        assert numpy.array_equal(x, fetch(y))
    exact_shared = [numpy.zeros(7), numpy.zeros((5, 2)), numpy.zeros(2)]
    begin_q = begin_k = 0
    for i, (count_q, count_k) in enumerate(zip(lengths_q, lengths_k)):
        own = [place(x[None]) for x in (do[i], batch.q[i], batch.k[i], batch.v[i])]
        own_options = dict(common, tensors={"warmth": place(warmth[i : i + 1]), "table": place(table)})
        rows = [slice(begin, begin + n) for begin, n in ((begin_q, count_q), (begin_k, count_k), (begin_k, count_k))]
        own_o = place(fetch(o)[None, rows[0]].astype(BF16))
        own_lse, own_dlse = (place(x[None, :, rows[0]].astype(numpy.float32)) for x in (fetch(lse), dlse))
        *exact, by_name, d_sinks = ja.attention_backward(*own, own_o, own_lse, dlse=own_dlse, **own_options, **wanted)
        check([x[None, at] for x, at in zip(got, rows)], [fetch(x) for x in exact])
        exact_shared[0] += fetch(by_name["table"])
        exact_shared[1][i] = fetch(by_name["warmth"])[0]
        exact_shared[2] += fetch(d_sinks)
        begin_q, begin_k = begin_q + count_q + spare, begin_k + count_k + spare
    for x, exact in zip(shared, exact_shared):
        assert numpy.abs(x - exact).max() <= 1e-4 * numpy.abs(exact).max()
    assert (exact_shared[1] != 0).any(1).tolist() == [True, False, True, True, False]


@pytest.mark.parametrize("deterministic", some([False, True]))
def test_stated_derivatives_of_varlen_sequences(rng, place, fetch, deterministic):
    """As those of a text that differentiates itself."""
    lengths_q, lengths_k = [21, 0, 2, 70, 5], [30, 9, 9, 65, 0]
    batch, do = varlen(rng, lengths_q, lengths_k, heads_kv=1, ratio=2, head_dim=32)
    q, k, v, gradient = (packed(place, rows) for rows in (batch.q, batch.k, batch.v, do))
    table, warmth = (x.astype(numpy.float32) for x in (rng.standard_normal(7), 1 + rng.random((5, 2))))
    body = "return score * warmth[b * heads_q + h] + table[k % 7] * table[q % 7];"
    derivative = """
        d_warmth[b * heads_q + h] += score;
        d_table[k % 7] += table[q % 7];
        d_table[q % 7] += table[k % 7];
        return warmth[b * heads_q + h];"""
    kinds = {"warmth": "fp32", "table": "fp32"}
    options = dict(tensors={"warmth": place(warmth), "table": place(table)}, mask=ja.mask.causal(),
                   cu_seqlens_q=place(boundaries(lengths_q)), cu_seqlens_k=place(boundaries(lengths_k)))

    def gradients(score):
        o, lse = ja.attention(q, k, v, return_lse=True, score=score, **options)
        *got, by_name = ja.attention_backward(gradient, q, k, v, o, lse, score=score, d_tensors=list(kinds),
                                              deterministic=deterministic, **options)
        return [fetch(x) for x in (*got, *by_name.values())]

    itself = ja.score.text(body, name="itself", tensors=kinds)
    stated = ja.score.text(body, name="stated", tensors=kinds, derivative=derivative)
    for ours, expected in zip(gradients(stated), gradients(itself), strict=True):
        assert numpy.abs(ours - expected).max() <= 1e-2 * numpy.abs(expected).max()


def test_varlen_queries_or_keys_alone_with_sinks(rng, place, fetch):
    """Dense queries whose requests use some rows, and varlen queries of dense keys: as when both are varlen."""
    batch, do = varlen(rng, [7, 7], [20, 20], heads_kv=1, ratio=2, head_dim=16)
    sinks, slopes = (rng.standard_normal(2).astype(numpy.float32) for _ in range(2))
    options = dict(mask=ja.mask.causal(), score=ja.score.alibi(), sinks=place(sinks),
                   tensors={"alibi_slopes": place(slopes)}, seqused_q=place(int32([7, 3])))
    ends = [{"cu_seqlens_q": place(boundaries([7, 7]))}, {"cu_seqlens_k": place(boundaries([20, 20]))}]

    def shared(rows_of_q, rows_of_k, sequences):
        q, gradient = (place(rows_of_q(x)) for x in (batch.q, do))
        k, v = (place(rows_of_k(x)) for x in (batch.k, batch.v))
        o, lse = ja.attention(q, k, v, return_lse=True, **options, **sequences)
        *_, by_name, d_sinks = ja.attention_backward(gradient, q, k, v, o, lse, d_sinks=True,
                                                     d_tensors=["alibi_slopes"], **options, **sequences)
        return fetch(by_name["alibi_slopes"]), fetch(d_sinks)

    exact = shared(numpy.concatenate, numpy.concatenate, ends[0] | ends[1])
    for alone in some([(numpy.concatenate, numpy.stack, ends[0]), (numpy.stack, numpy.concatenate, ends[1])]):
        for x, y in zip(shared(*alone), exact):
            assert numpy.abs(x - y).max() <= 1e-4 * numpy.abs(y).max() > 0


@pytest.mark.parametrize("deterministic", some([False, True]))
def test_not_a_number_stays_in_its_row_and_its_kv_head(rng, place, fetch, deterministic):
    problem = random_problem(rng, "bf16", batch=2, seqlen_q=70, seqlen_kv=90, heads_q=4, heads_kv=2,
                             head_dim=32)
    do, q, k, v = map(place, problem)
    mask = ja.mask.causal()
    o, lse = ja.attention(q, k, v, mask=mask, return_lse=True)

    def gradients(do):
        made = ja.attention_backward(do, q, k, v, o, lse, mask=mask, deterministic=deterministic)
        return [fetch(x).astype(numpy.float32) for x in made]

    right = gradients(do)
    for value in (numpy.nan, numpy.inf):
        spoilt = problem[0].copy()
        spoilt[1, 33, 2, 5] = value
        for name, got, expected in zip(("dq", "dk", "dv"), gradients(place(spoilt)), right, strict=True):
            assert not numpy.isfinite(got[1, 33, 2] if name == "dq" else got[1, :, 1]).all(), name
            where = (1, 33, 2) if name == "dq" else (1, slice(None), 1)
            got[where] = expected[where]
            numpy.testing.assert_allclose(got, expected, rtol=0.01, atol=0.01, err_msg=name)


@pytest.mark.parametrize("sequences, rows, heads", [(0, 0, 2), (0, 5, 2), (2, 0, 2), (2, 5, 0)])
def test_what_nothing_shares_has_gradients_of_zero(place, fetch, sequences, rows, heads):
    q, o = (place(numpy.zeros((rows, heads, 16), BF16)) for _ in "qo")
    ends = place(int32([0] * (sequences + 1)))
    options = dict(cu_seqlens_q=ends, cu_seqlens_k=ends, score=ja.score.alibi(),
                   sinks=place(numpy.zeros(heads, numpy.float32)),
                   tensors={"alibi_slopes": place(numpy.zeros(heads, numpy.float32))})
    lse = place(numpy.zeros((heads, rows), numpy.float32))
    given = {"alibi_slopes": place(numpy.full(heads, numpy.nan, numpy.float32))}
    *_, d_sinks = ja.attention_backward(q, q, q, q, o, lse, d_sinks=True, d_tensors=given, **options)
    assert not fetch(d_sinks).any() and not fetch(given["alibi_slopes"]).any()


@pytest.mark.parametrize("deterministic", some([False, True]))
def test_varlen_tensors_of_functors(rng, place, fetch, deterministic):
    lengths = [20, 3, 17]
    batch, do = varlen(rng, lengths, lengths, heads_kv=1, ratio=2, head_dim=16)
    q, k, v, gradient = (packed(place, rows) for rows in (batch.q, batch.k, batch.v, do))
    slopes, causal = rng.random(2).astype(numpy.float32), numpy.array([True, False, True])
    ends = place(boundaries(lengths))
    options = dict(cu_seqlens_q=ends, cu_seqlens_k=ends, mask=ja.mask.causal_per_request(), score=ja.score.alibi(),
                   tensors={"alibi_slopes": place(slopes), "is_causal": place(int32(causal))})
    o, lse = ja.attention(q, k, v, return_lse=True, **options)
    made = ja.attention_backward(gradient, q, k, v, o, lse, deterministic=deterministic, **options)
    got, flags = [fetch(x) for x in made], iter(causal)
    check_requests(got, batch, do, score=lambda *_: lambda s, b, h, i, j: s - slopes[h] * numpy.abs(i - j),
                   keep=lambda *_: (lambda flag: lambda b, h, i, j: (j <= i) | ~flag)(next(flags)))


@pytest.mark.parametrize("deterministic", some([False, True]))
def test_wild_values_on_the_device_read_and_write_nothing_else(rng, place, fetch, deterministic):
    batch, do = varlen(rng, [4, 4], [32, 32], heads_kv=1, ratio=1, head_dim=16)
    q, k, v, gradient = (packed(place, rows) for rows in (batch.q, batch.k, batch.v, do))
    good = {"cu_seqlens_q": int32([0, 4, 8]), "cu_seqlens_k": int32([0, 32, 64])}
    o, lse = ja.attention(q, k, v, return_lse=True, **{name: place(array) for name, array in good.items()})
    for wild in (
        {"cu_seqlens_q": int32([-5, 4, 1 << 30])},  # cut to what is right
        {"cu_seqlens_k": int32([-(1 << 30), 32, 2000000000])},
        {"seqused_q": int32([1 << 30, 4]), "seqused_k": int32([32, 2000000000])},
    ):
        arrays = {name: place(array) for name, array in (good | wild).items()}
        got = ja.attention_backward(gradient, q, k, v, o, lse, deterministic=deterministic, **arrays)
        check_requests([fetch(x) for x in got], batch, do)
    for wild in (
        {"cu_seqlens_q": int32([8, 2, 8]), "seqused_q": int32([-3, 7])},
        {"cu_seqlens_k": int32([64, -9, 1 << 30])},
        {"cu_seqlens_q": int32([1 << 30, 8, -7]), "cu_seqlens_k": int32([60, 70, 3])},
    ):
        arrays = {name: place(array) for name, array in (good | wild).items()}
        # An emulated device finds what is outside.
        ja.attention_backward(gradient, q, k, v, o, lse, deterministic=deterministic, **arrays)


def test_varlen_refusals_name_the_argument(rng, place):
    batch, do = varlen(rng, [4], [6], heads_kv=1, ratio=1, head_dim=16)
    q, k, v, gradient = (packed(place, rows) for rows in (batch.q, batch.k, batch.v, do))
    good = dict(cu_seqlens_q=place(int32([0, 4])), cu_seqlens_k=place(int32([0, 6])))
    o, lse = ja.attention(q, k, v, return_lse=True, **good)
    good |= dict(do=gradient, q=q, k=k, v=v, o=o, lse=lse)
    one = place(int32([1]))
    for name, changes, words in [
        ("page_table", dict(page_table=one), "no gradients of caches"),
        ("cache_leftpad", dict(cache_leftpad=one), "no gradients of caches"),
        ("cu_seqlens_k", dict(cu_seqlens_k=place(int32([0, 3, 6]))), r"batch \+ 1 = 3; it must be 2"),
        ("cu_seqlens_q", dict(cu_seqlens_q=place(numpy.zeros(2, numpy.float32))), "must be int32"),
        ("seqused_q", dict(seqused_q=place(int32([1, 1]))), "batch = 2"),
        ("q", dict(q=place(numpy.zeros((1, 4, 1, 16), BF16))), "3 beside cu_seqlens"),
        ("k", dict(cu_seqlens_k=None), "must have 4"),
    ]:
        with pytest.raises(ja.InvalidArgumentError, match=words) as info:
            ja.attention_backward(**good | changes)
        assert info.value.field == name


def test_rows_in_use_of_dense_arrays(rng, place, fetch):
    """Gradients of rows in use are those of short arrays; others stay as they are."""
    do, q, k, v = random_problem(rng, "bf16", batch=2, seqlen_q=40, seqlen_kv=70, heads_q=4, heads_kv=2, head_dim=32)
    used_q, used_k = numpy.array([40, 13], numpy.int32), numpy.array([5, 70], numpy.int32)
    arguments = dict(seqused_q=place(used_q), seqused_k=place(used_k), mask=ja.mask.causal())
    here = [place(x) for x in (q, k, v)]
    o, lse = ja.attention(*here, return_lse=True, **arguments)
    poisoned = [place(numpy.full_like(x, numpy.nan)) for x in (q, k, v)]
    got = ja.attention_backward(place(do), *here, o, lse, **dict(zip(("dq", "dk", "dv"), poisoned)), **arguments)
    for b in range(2):
        queries, keys = slice(None, used_q[b]), slice(None, used_k[b])
        short = [place(numpy.ascontiguousarray(x[b : b + 1, part])) for x, part in
                 zip((do, q, k, v), (queries, queries, keys, keys))]
        o, lse = ja.attention(*short[1:], return_lse=True, mask=ja.mask.causal())
        wanted = ja.attention_backward(*short, o, lse, mask=ja.mask.causal())
        for one, other, part in zip(got, wanted, (queries, keys, keys)):
            one, other = fetch(one)[b], fetch(other)[0]
            assert numpy.abs(one[part] - other).max() <= 0.02 * numpy.abs(other).max()
            assert numpy.isnan(one[part.stop :]).all()


def test_deterministic_calls_run_beside_each_other(emulated):
    """Blocks of a call wait for one another, and those of two calls do not fit at a time: none keeps the other out."""
    if emulated:
        pytest.skip("launches on an emulated device run one after another")
    import torch

    streams = [torch.cuda.Stream(priority=priority) for priority in (0, -1)]
    q, k, v, do = (torch.randn(1, 16384, 1, 128, device="cuda", dtype=torch.bfloat16) for _ in range(4))
    o, lse = ja.attention(q, k, v, mask=ja.mask.causal(), return_lse=True)
    wanted = ja.attention_backward(do, q, k, v, o, lse, mask=ja.mask.causal(), deterministic=True)
    torch.cuda.synchronize()
    for _ in range(50):
        got = []
        for stream in streams:
            with torch.cuda.stream(stream):
                got.append(ja.attention_backward(do, q, k, v, o, lse, mask=ja.mask.causal(), deterministic=True))
        torch.cuda.synchronize()
        assert all(torch.equal(a, b) for gradients in got for a, b in zip(gradients, wanted, strict=True))
