"""mean_score, the mean of each query's scores under its probabilities, and its gradient."""

import jit_attention as ja
import ml_dtypes
import numpy
import pytest
from exact_attention import random_qkv
from request_batches import boundaries, call, paged, requests

SHARE = 12  # kernels take long to compile

BF16 = numpy.dtype(ml_dtypes.bfloat16)


def exact_means(q, k, *, keep=None, score=None, softmax_scale=None, sinks=None):
    """Means, LSE and P (batch, heads_q, seqlen_q, …) in double precision, and the scores."""
    qs, ks = (x.astype(numpy.float64).transpose(0, 2, 1, 3) for x in (q, k))
    scores = (q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale) * (
        qs @ numpy.repeat(ks, qs.shape[1] // ks.shape[1], 1).transpose(0, 1, 3, 2))
    places = numpy.ogrid[tuple(slice(size) for size in scores.shape)]
    if score is not None:
        scores = score(scores, *places)
    if keep is not None:
        scores = numpy.where(numpy.broadcast_to(keep(*places), scores.shape), scores, -numpy.inf)
    largest = scores.max(-1, keepdims=True, initial=-numpy.inf)
    if sinks is not None:
        largest = numpy.maximum(largest, sinks[:, None, None])
    largest = numpy.where(numpy.isneginf(largest), 0, largest)
    weights = numpy.exp(scores - largest)
    total = weights.sum(-1, keepdims=True)
    if sinks is not None:
        total = total + numpy.exp(sinks[:, None, None] - largest)
    p = weights / numpy.where(total == 0, 1, total)
    finite = numpy.where(numpy.isneginf(scores), 0, scores)
    with numpy.errstate(divide="ignore"):
        lse = (numpy.log(total) + largest)[..., 0]
    return (p * finite).sum(-1), lse, p, finite


CASES = {
    "plain": dict(),
    "causal": dict(mask=ja.mask.causal(), keep=lambda b, h, i, j: j <= i + 70),
    "window": dict(mask=ja.mask.sliding_window(9, 3), keep=lambda b, h, i, j: (j >= i + 61) & (j <= i + 73)),
    "softcap": dict(score=ja.score.softcap(3), applied=lambda s, b, h, i, j: 3 * numpy.tanh(s / 3)),
    "text": dict(score=ja.score.text("return 3 * score + 0.25f * (q - k);", name="slope"),
                 applied=lambda s, b, h, i, j: 3 * s + 0.25 * (i - j)),
    "empty rows": dict(mask=ja.mask.text("return q >= 3 && k <= q;", name="late"),
                       keep=lambda b, h, i, j: (i >= 3) & (j <= i)),
    "minus infinity": dict(score=ja.score.text("return k % 3 == 1 ? -INFINITY : score;", name="holes"),
                           applied=lambda s, b, h, i, j: numpy.where(j % 3 == 1, -numpy.inf, s)),
    "large": dict(softmax_scale=40.0),
}
FAMILIES = ["forward_mma_sync", "forward_split_kv", "forward_split_wgmma", "forward_wgmma", "forward_wgmma output=direct"]


def families():
    return FAMILIES if ja.devices()[0].arch == "sm_90a" else FAMILIES[:2]


@pytest.mark.parametrize("head_dim", [64, 72])
def test_padding_rows(rng, place, fetch, head_dim):
    """With zero_padding their means are 0; without, nothing is written."""
    q, k, v = (place(x[0]) for x in random_qkv(rng, batch=1, seqlen_q=150, seqlen_kv=90, heads_q=2, heads_kv=1,
                                               head_dim=head_dim, dtype="bf16"))
    ends = dict(cu_seqlens_q=place(numpy.int32([0, 70, 100])), cu_seqlens_k=place(numpy.int32([0, 40, 90])))
    for padding in (False, True):
        means = place(numpy.full((2, 150), 7, numpy.float32))
        ja.attention(q, k, v, return_aux={"mean_score": means}, zero_padding=padding, **ends)
        assert (fetch(means)[:, 100:] == (0 if padding else 7)).all() and not (fetch(means)[:, :100] == 7).any()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("sinks", [False, True])
def test_all_families(rng, place, fetch, case, sinks):
    options = dict(CASES[case])
    keep, applied = options.pop("keep", None), options.pop("applied", None)
    head_dim = int(rng.choice([64, 72, 128]))
    q, k, v = random_qkv(rng, batch=2, seqlen_q=130, seqlen_kv=200, heads_q=4, heads_kv=2, head_dim=head_dim, dtype="bf16")
    logits = rng.standard_normal(4).astype(numpy.float32) * 3 if sinks else None
    exact = exact_means(q, k, keep=keep, score=applied, softmax_scale=options.get("softmax_scale"), sinks=logits)[0]
    given = {"sinks": place(logits)} if sinks else {}
    every = [family for family in families() if not sinks or family != "forward_mma_sync"]  # which reads no sinks
    for family in every:
        spec = ja.AttentionSpec(head_dim=head_dim, gqa_ratio=2, mean_score=True, sinks=sinks, **options)
        prepared = ja.prepare(spec, config=f"family={family}")
        mean = place(numpy.full((2, 4, 130), numpy.nan, numpy.float32))
        o, lse, aux = prepared(place(q), place(k), place(v), return_lse=True, return_aux={"mean_score": mean}, **given)
        assert aux["mean_score"] is mean
        scale = 1e-3 if case == "softcap" else 2e-5
        numpy.testing.assert_allclose(fetch(mean), exact, rtol=scale, atol=scale, err_msg=family)
    plain, plain_lse = ja.attention(place(q), place(k), place(v), return_lse=True, **options, **given)
    numpy.testing.assert_allclose(fetch(o), fetch(plain), atol=0.03)
    numpy.testing.assert_allclose(fetch(lse), fetch(plain_lse), atol=1e-3)


@pytest.mark.parametrize("paging", [0, 16])
def test_requests(rng, place, fetch, paging):
    lengths_q, lengths_k = [1, 40, 0, 3], [700, 40, 5, 130]
    batch = requests(rng, lengths_q, lengths_k)
    arrays = paged(rng, batch, paging) if paging else {
        "k": numpy.concatenate(batch.k), "v": numpy.concatenate(batch.v), "cu_seqlens_k": boundaries(lengths_k)}
    arrays["cu_seqlens_q"] = boundaries(lengths_q)
    q = numpy.concatenate([*batch.q, *batch.q[:1]])  # a row of nobody
    mean = place(numpy.full((8, len(q)), 7, numpy.float32))
    _, aux = call(place, q, arrays, mask=ja.mask.causal(), return_aux={"mean_score": mean, "row_max": None})
    got, begin = fetch(aux["mean_score"]), 0
    assert (got[:, -1] == 7).all()
    for queries, keys in zip(batch.q, batch.k, strict=True):
        late, end = len(keys) - len(queries), begin + len(queries)
        exact = exact_means(queries[None], keys[None], keep=lambda b, h, i, j: j <= i + late)[0]
        numpy.testing.assert_allclose(got[None, :, begin:end], exact, rtol=2e-5, atol=2e-5)
        begin = end


SPLITS = {
    "one block merges": dict(heads=(4, 2), head_dim=72),
    "all blocks merge": dict(heads=(32, 1), head_dim=128),
    "all blocks merge, slices of 8": dict(heads=(64, 1), head_dim=72),
    "scales of rows": dict(heads=(8, 1), head_dim=128, found=True),
    "scales of rows, split": dict(heads=(8, 1), head_dim=64, found=True),
}


@pytest.mark.parametrize("case", SPLITS)
@pytest.mark.parametrize("family", ["forward_split_kv", "forward_split_wgmma"])
def test_splits(rng, place, fetch, case, family):
    """Parts of a mean come together as parts of o do; scores are far from 0, which each part's maximum is not."""
    if family == "forward_split_wgmma" and ja.devices()[0].arch != "sm_90a":
        pytest.skip("the family is Hopper's")
    (heads_q, heads_kv), head_dim, found = (SPLITS[case].get(name, False) for name in ("heads", "head_dim", "found"))
    q, k, v = random_qkv(rng, batch=2, seqlen_q=3, seqlen_kv=1500, heads_q=heads_q, heads_kv=heads_kv, head_dim=head_dim,
                         dtype="bf16")
    used = numpy.int32([1500, int(rng.integers(3, 200))])
    logits = rng.standard_normal(heads_q).astype(numpy.float32) + 20
    score = ja.score.text("return score + 20.0f - 0.01f * k;", name="far")
    spec = ja.AttentionSpec(head_dim=head_dim, gqa_ratio=heads_q // heads_kv, mask=ja.mask.causal(), score=score, sinks=True,
                            mean_score=True, **(dict(out_dtype="int8", o_descale=True) if found else {}))
    outputs = {"mean_score": place(numpy.full((2, heads_q, 3), numpy.nan, numpy.float32))}
    if found:
        outputs["o_descale"] = None
    means = []
    for splits in (1, 0, 5):
        _, aux = ja.prepare(spec, config=f"family={family} blocks_per_sm=1")(
            place(q), place(k), place(v), sinks=place(logits), seqused_k=place(used), num_splits=splits, return_aux=outputs)
        means.append(fetch(aux["mean_score"]).copy())
    for b, keys in enumerate(used):
        exact = exact_means(q[b : b + 1], k[b : b + 1, :keys], keep=lambda b, h, i, j, late=keys - 3: j <= i + late,
                            score=lambda s, b, h, i, j: s + 20 - 0.01 * j, sinks=logits)[0]
        for mean in means:
            numpy.testing.assert_allclose(mean[b : b + 1], exact, rtol=2e-5, atol=2e-5)


def test_lengths_on_the_device(rng, place, fetch):
    """Dense tensors whose lengths only the device knows: queries behind the last one keep what was there."""
    q, k, v = random_qkv(rng, batch=3, seqlen_q=40, seqlen_kv=150, heads_q=4, heads_kv=2, dtype="bf16")
    used_q, used_k = numpy.int32([40, 3, 0]), numpy.int32([100, 150, 70])
    mean = place(numpy.full((3, 4, 40), 7, numpy.float32))
    ja.attention(place(q), place(k), place(v), mask=ja.mask.causal(), seqused_q=place(used_q), seqused_k=place(used_k),
                 return_aux={"mean_score": mean})
    for b, (n, keys) in enumerate(zip(used_q, used_k)):
        exact = exact_means(q[b : b + 1, :n], k[b : b + 1, :keys], keep=lambda b, h, i, j, late=keys - n: j <= i + late)[0]
        numpy.testing.assert_allclose(fetch(mean)[b : b + 1, :, :n], exact, rtol=2e-5, atol=2e-5)
        assert (fetch(mean)[b, :, n:] == 7).all()


def exact_gradients(q, k, v, do, dlse, dmean, *, scale, keep, slope=lambda s: (s, 1.0), sinks=None):
    """dq, dk, dv and the gradient of sinks in double precision; `slope` gives a score and its derivative."""
    ratio = q.shape[2] // k.shape[2]
    products = scale * (q.astype(numpy.float64).transpose(0, 2, 1, 3)
                        @ numpy.repeat(k.astype(numpy.float64), ratio, 2).transpose(0, 2, 3, 1))
    derivative = slope(products)[1]
    mean, lse, p, s = exact_means(q, k, keep=keep, score=lambda x, *_: slope(x)[0], softmax_scale=scale, sinks=sinks)
    heads = lambda x: x.astype(numpy.float64).transpose(0, 2, 1, 3)
    vs, dos = numpy.repeat(heads(v), ratio, 1), heads(do)
    d_p = dos @ vs.transpose(0, 1, 3, 2)
    seen = ~numpy.isneginf(lse)
    dmean, dlse = dmean * seen, dlse * seen
    delta = (dos * (p @ vs)).sum(-1) - dlse - dmean * (1 - mean)
    ds = p * (d_p - delta[..., None] + dmean[..., None] * s) * derivative
    grouped = lambda x: x.reshape(x.shape[0], -1, ratio, *x.shape[2:]).sum(2)
    back = lambda x: x.transpose(0, 2, 1, 3)
    dq = scale * ds @ numpy.repeat(heads(k), ratio, 1)
    of_sinks = None if sinks is None else -(numpy.exp(sinks[:, None] - lse) * (delta + dmean)).sum((0, 2))
    return (back(dq), back(grouped(scale * ds.swapaxes(-1, -2) @ heads(q))), back(grouped(p.swapaxes(-1, -2) @ dos)),
            of_sinks)


GRADIENT_CASES = {
    "causal": dict(mask=ja.mask.causal(), keep=lambda b, h, i, j: j <= i + 21),
    "softcap": dict(score=ja.score.softcap(3),
                    slope=lambda s: (3 * numpy.tanh(s / 3), 1 - numpy.tanh(s / 3) ** 2)),
    "sinks": dict(sinks=True, mask=ja.mask.text("return q >= 3 && k <= q;", name="late"),
                  keep=lambda b, h, i, j: (i >= 3) & (j <= i)),
    "wide heads": dict(head_dim=160),
    "wider heads": dict(head_dim=256, mask=ja.mask.causal(), keep=lambda b, h, i, j: j <= i + 21),
    "rows": dict(head_dim=128, sinks=True),
    "scale": dict(softmax_scale=0.4, mask=ja.mask.sliding_window(9, 3), keep=lambda b, h, i, j: (j >= i + 12) & (j <= i + 24)),
}


@pytest.mark.parametrize("case", GRADIENT_CASES)
@pytest.mark.parametrize("deterministic", [False, True])
def test_gradients(rng, place, fetch, emulated, case, deterministic):
    options = dict(GRADIENT_CASES[case])
    keep, slope = options.pop("keep", None), options.pop("slope", lambda s: (s, 1.0))
    head_dim, has_sinks = options.pop("head_dim", 64), options.pop("sinks", False)
    q, k, v = random_qkv(rng, batch=2, seqlen_q=70, seqlen_kv=91, heads_q=4, heads_kv=2, head_dim=head_dim, dtype="bf16")
    do = rng.standard_normal(q.shape).astype(BF16)
    dlse, dmean = (rng.standard_normal((2, 4, 70)).astype(numpy.float32) for _ in range(2))
    sinks = rng.standard_normal(4).astype(numpy.float32) if has_sinks else None
    given = {"sinks": place(sinks)} if has_sinks else {}
    arrays = [place(x) for x in (q, k, v)]
    o, lse, aux = ja.attention(*arrays, return_lse=True, return_aux=("mean_score",), **options, **given)
    with ja.trace() as seen:
        got = ja.attention_backward(place(do), *arrays, o, lse, dlse=place(dlse), mean_score=aux["mean_score"],
                                    d_mean_score=place(dmean), deterministic=deterministic, d_sinks=has_sinks, **options,
                                    **given)
    if emulated and ja.devices()[0].arch == "sm_90a":  # where products are scores one pass has all gradients
        assert any("backward_wgmma" in launch.kernel for launch in seen.launches) == ("score" not in options)
    scale = options.get("softmax_scale", head_dim**-0.5)
    wanted = exact_gradients(q, k, v, do, dlse, dmean, scale=scale, keep=keep, slope=slope, sinks=sinks)
    for name, one, exact in zip(("dq", "dk", "dv", "d_sinks"), got, wanted):
        error = numpy.abs(fetch(one) - exact).max() / numpy.abs(exact).max()
        assert error < 0.015, (name, error)
    plain = ja.attention_backward(place(do), *arrays, o, lse, dlse=place(dlse), d_sinks=has_sinks, **options, **given)
    assert numpy.abs(fetch(plain[0]) - wanted[0]).max() > 0.05 * numpy.abs(wanted[0]).max()


def test_gradients_of_requests(rng, place, fetch):
    lengths = [30, 1, 50, 7]
    q, k, v = (rng.standard_normal((sum(lengths), heads, 64)).astype(BF16) for heads in (4, 2, 2))
    do = rng.standard_normal(q.shape).astype(BF16)
    dmean = rng.standard_normal((4, sum(lengths))).astype(numpy.float32)
    cu = place(boundaries(lengths))
    options = dict(mask=ja.mask.causal(), cu_seqlens_q=cu, cu_seqlens_k=cu)
    arrays = [place(x) for x in (q, k, v)]
    o, lse, aux = ja.attention(*arrays, return_lse=True, return_aux=("mean_score",), **options)
    got = ja.attention_backward(place(do), *arrays, o, lse, mean_score=aux["mean_score"], d_mean_score=place(dmean),
                                **options)
    begin = 0
    for length in lengths:
        own = slice(begin, begin + length)
        exact = exact_gradients(*(x[None, own] for x in (q, k, v, do)), 0 * dmean[None, :, own], dmean[None, :, own],
                                scale=0.125, keep=lambda b, h, i, j: j <= i)
        for one, wanted in zip(got, exact):
            numpy.testing.assert_allclose(fetch(one)[own], wanted[0], atol=0.015 * numpy.abs(wanted).max() + 2e-3)
        begin += length


def test_gradients_with_dropout(rng, place, fetch):
    """P of the mean is that before dropout: a loss of the mean alone has the gradients that it has without."""
    q, k, v = (place(x) for x in random_qkv(rng, batch=1, seqlen_q=64, seqlen_kv=64, heads_q=2, heads_kv=2, dtype="bf16"))
    dmean = place(rng.standard_normal((1, 2, 64)).astype(numpy.float32))
    zeros = place(numpy.zeros((1, 64, 2, 64), BF16))
    state = place(numpy.int64([3, 4]))
    every = []
    for options in ({}, {"dropout_p": 0.3, "rng_state": state}):
        o, lse, aux = ja.attention(q, k, v, return_lse=True, return_aux=("mean_score",), **options)
        every.append(ja.attention_backward(zeros, q, k, v, o, lse, mean_score=aux["mean_score"], d_mean_score=dmean,
                                           **options)[:2] + (aux["mean_score"],))
    for one, other in zip(*every):
        most = numpy.abs(fetch(one)).max()
        numpy.testing.assert_allclose(fetch(one), fetch(other), atol=0.01 * most)
        assert most > 0


def test_what_is_refused(rng, place):
    q, k, v = (place(x) for x in random_qkv(rng, batch=1, seqlen_q=16, seqlen_kv=16, heads_q=2, heads_kv=2, dtype="bf16"))
    o, lse, aux = ja.attention(q, k, v, return_lse=True, return_aux=("mean_score",))
    ones = lambda *shape, dtype=numpy.float32: place(numpy.ones(shape, dtype))
    backward = lambda **options: ja.attention_backward(o, q, k, v, o, lse, **options)
    mean = aux["mean_score"]
    for error, text, attempt in (
            (ja.InvalidArgumentError, "mean_score: is missing", lambda: backward(d_mean_score=ones(1, 2, 16))),
            (ja.InvalidArgumentError, "d_mean_score: is missing", lambda: backward(mean_score=mean)),
            (ja.InvalidArgumentError, "d_mean_score: has heads = 3", lambda: backward(
                mean_score=mean, d_mean_score=ones(1, 3, 16))),
            (ja.InvalidArgumentError, "d_mean_score: is fp16", lambda: backward(
                mean_score=mean, d_mean_score=ones(1, 2, 16, dtype=numpy.float16))),
            (ja.InvalidSpecError, "must be false with split_keys", lambda: ja.AttentionSpec(mean_score=True, split_keys=64)),
            (ja.InvalidSpecError, "must be false with k and v of int8", lambda: ja.AttentionSpec(mean_score=True, kv_dtype="int8")),
            (ja.InvalidSpecError, "must be false with values_in_keys", lambda: ja.AttentionSpec(
                mean_score=True, values_in_keys=True)),
            (ja.Error, "forward_split_cluster does not compute mean_score", lambda: ja.compile(
                ja.AttentionSpec(mean_score=True), "sm_90a", "family=forward_split_cluster")),
            (ja.Error, "rescale must be lazy with mean_score", lambda: ja.compile(
                ja.AttentionSpec(mean_score=True), "sm_90a", "family=forward_wgmma rescale=on_overflow"))):
        with pytest.raises(error) as caught:
            attempt()
        assert text in str(caught.value)
