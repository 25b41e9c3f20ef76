"""Outputs beside o and LSE: the largest score of each head and of each row, over calls."""

import collections

import jit_attention as ja
import ml_dtypes
import numpy
import pytest
from exact_attention import random_qkv
from request_batches import boundaries, call, causal, paged, requests

SHARE = 12  # kernels take long to compile

BOTH = ("max_logit", "row_max")


def exact_rows(q, k, *, keep=None, score=None, softmax_scale=None):
    """The largest score of each row (batch, heads_q, seqlen_q) in double precision."""
    qs, ks = (x.astype(numpy.float64).transpose(0, 2, 1, 3) for x in (q, k))
    scores = (q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale) * (
        qs @ numpy.repeat(ks, qs.shape[1] // ks.shape[1], 1).transpose(0, 1, 3, 2))
    places = numpy.ogrid[tuple(slice(size) for size in scores.shape)]
    if score is not None:
        scores = score(scores, *places)
    if keep is not None:
        scores = numpy.where(numpy.broadcast_to(keep(*places), scores.shape), scores, -numpy.inf)
    return scores.max(-1, initial=-numpy.inf)


def check(aux, rows, fetch, tolerance=4e-6):
    """`rows` as row_max is."""
    got = fetch(aux["row_max"])
    assert got.shape == rows.shape
    numpy.testing.assert_allclose(got, rows, rtol=tolerance, atol=tolerance)
    of_heads = fetch(aux["max_logit"])
    heads = numpy.moveaxis(got, -2, 0).reshape(len(of_heads), -1)
    numpy.testing.assert_array_equal(of_heads, heads.max(1, initial=-numpy.inf))  # bit for bit


def signed(q, k):
    """All products negative: rows that TMA fills up with zeros would be larger."""
    return numpy.abs(q), -numpy.abs(k)


CASES = {
    "plain": dict(),
    "causal": dict(mask=ja.mask.causal(), keep=lambda b, h, i, j: j <= i + 70),
    "window": dict(mask=ja.mask.sliding_window(9, 3), keep=lambda b, h, i, j: (j >= i + 61) & (j <= i + 73)),
    "softcap": dict(score=ja.score.softcap(3), applied=lambda s, b, h, i, j: 3 * numpy.tanh(s / 3)),
    "text": dict(score=ja.score.text("return score + 0.25f * (q - k);", name="slope"),
                 applied=lambda s, b, h, i, j: s + 0.25 * (i - j)),
    "empty rows": dict(mask=ja.mask.text("return q >= 3 && k <= q;", name="late"),
                       keep=lambda b, h, i, j: (i >= 3) & (j <= i)),
}
SHAPES = {
    "forward_wgmma tile_kv=48 rescale=lazy": dict(seqlen_q=130, alignment=16),
    "forward_wgmma tile_kv=48 rescale=on_overflow": dict(seqlen_q=130, alignment=16),
    "forward_mma_sync": dict(seqlen_q=130, alignment=8),
    "forward_split_wgmma": dict(seqlen_q=5, alignment=16),
    "forward_split_kv": dict(seqlen_q=5, alignment=8),
}


@pytest.mark.parametrize("family", SHAPES)
@pytest.mark.parametrize("case", CASES)
def test_all_families(rng, place, fetch, case, family):
    shape, options = dict(SHAPES[family]), dict(CASES[case])
    keep, applied = options.pop("keep", None), options.pop("applied", None)
    seqlen_q = shape.pop("seqlen_q")
    seqlen_kv = seqlen_q + 70
    heads_kv = 2 if seqlen_q > 8 else 1
    q, k, v = random_qkv(rng, batch=2, seqlen_q=seqlen_q, seqlen_kv=seqlen_kv, heads_q=4, heads_kv=heads_kv, dtype="bf16")
    if case in ("plain", "causal"):
        q, k = signed(q, k)
    if shape["alignment"] == 8:
        q, k, v = (numpy.ascontiguousarray(numpy.pad(x, ((0, 0),) * 3 + ((0, 4),)))[..., :64] for x in (q, k, v))
    spec = ja.AttentionSpec(head_dim=64, gqa_ratio=4 // heads_kv, max_logit=True, row_max=True, **shape, **options)
    prepared = ja.prepare(spec, config=f"family={family}")
    o, lse, aux = prepared(place(q), place(k), place(v), return_lse=True, return_aux=BOTH)
    plain, plain_lse = ja.attention(place(q), place(k), place(v), return_lse=True, **options)
    check(aux, exact_rows(q, k, keep=keep, score=applied), fetch, 1e-3 if case == "softcap" else 4e-6)
    numpy.testing.assert_allclose(fetch(o), fetch(plain), atol=2e-2)
    numpy.testing.assert_allclose(fetch(lse), fetch(plain_lse), atol=1e-5)


LOOKS = {"flat": dict(softmax_scale=0.002), "normal": dict(), "peaked": dict(softmax_scale=3.0),
         "negative": dict(score=ja.score.text("return -2.0f * fabsf(score) - 5.0f;", name="negative")),
         "rising": dict(score=ja.score.text("return 0.05f * k + score;", name="rising")),
         # a score of another row, and one that is larger by less than the bound of a sum could be wrong
         "near": dict(score=ja.score.text("return k == 0 && q == 5 ? 0.305f : k == 200 && q == 3 ? 0.33f : k < 64 ? 0.0f : -30.0f;",
                                          name="near")),
         "equal": dict(score=ja.score.text("return -1.5f;", name="equal")),
         # each tile's largest score is larger by one or a few last bits, and behind some others it is not
         "last bits": dict(score=ja.score.text("return __int_as_float(__float_as_int(2.5f) + k / 3 % 64);", name="last_bits")),
         "falling": dict(score=ja.score.text("return 1.0f + 0.001f * ((k / 64 * 37 + q) % 11);", name="falling")),
         # maxima move by exponentials, which round, and later scores are larger by last bits
         "rounded": dict(score=ja.score.text(
             "const float peak = 7.0f + 0.37f * h + 0.011f * q;"
             "return k == 70 ? peak : k == 133 || k == 260 ? __int_as_float(__float_as_int(peak) + k / 130) : 0.01f * score;",
             name="rounded"))}


@pytest.mark.parametrize("case", LOOKS)
def test_heads_alone(rng, place, fetch, case):
    """Tiles that cannot have a head's largest score are not looked at, and o does not depend on it."""
    if ja.devices()[0].arch != "sm_90a":
        pytest.skip("kernels that look for maxima later are Hopper's")
    q, k, v = (place(x) for x in random_qkv(rng, batch=2, seqlen_q=150, seqlen_kv=500, heads_q=4, heads_kv=2,
                                            head_dim=int(rng.choice([64, 128])), dtype="bf16"))
    options = dict(head_dim=q.shape[-1], gqa_ratio=2, mask=ja.mask.causal(), **LOOKS[case])
    config = "family=forward_wgmma tile_q=64 tile_kv=64 rescale=on_overflow"
    run = lambda aux=None, **outputs: ja.prepare(ja.AttentionSpec(**options, **outputs), config=config)(
        q, k, v, **({} if aux is None else {"return_aux": aux}))
    plain = run()
    held = place(numpy.full(4, -numpy.inf, numpy.float32))
    o, aux = run({"max_logit": held}, max_logit=True)
    _, rows = run(("max_logit", "row_max"), max_logit=True, row_max=True)
    numpy.testing.assert_array_equal(fetch(aux["max_logit"]), fetch(rows["row_max"]).max((0, 2)))
    numpy.testing.assert_array_equal(fetch(o), fetch(plain))
    again = run({"max_logit": held}, max_logit=True)[0]  # where all is known from the start
    numpy.testing.assert_array_equal(fetch(again), fetch(plain))
    numpy.testing.assert_array_equal(fetch(held), fetch(rows["max_logit"]))


@pytest.mark.parametrize("split_keys", [0, 64])
@pytest.mark.parametrize("paging", [0, 16])
def test_requests(rng, place, fetch, paging, split_keys):
    lengths_q, lengths_k = [1, 40, 0, 3], [700, 40, 5, 130]
    batch = requests(rng, lengths_q, lengths_k)
    batch.q, batch.k = [numpy.abs(q) for q in batch.q], [-numpy.abs(k) for k in batch.k]
    if paging:
        arrays = paged(rng, batch, paging)
    else:
        arrays = {"k": numpy.concatenate(batch.k), "v": numpy.concatenate(batch.v), "cu_seqlens_k": boundaries(lengths_k)}
    arrays["cu_seqlens_q"] = boundaries(lengths_q)
    arrays["sinks"] = numpy.full(8, 50, numpy.float32)  # no score
    q = numpy.concatenate([*batch.q, numpy.full((2, 8, 64), 9, batch.q[0].dtype)])  # padding rows, whose scores are larger
    total = len(q) - 2
    held = {"max_logit": place(numpy.full(8, -numpy.inf, numpy.float32)),
            "row_max": place(numpy.full((8, len(q)), -numpy.inf, numpy.float32))}
    _, aux = call(place, q, arrays, mask=ja.mask.causal(), split_keys=split_keys, return_aux=held)
    rows = [exact_rows(q[None], k[None], keep=lambda b, h, i, j, q=q, k=k: causal(b, h, i, j, len(q), len(k)))[0]
            for q, k in zip(batch.q, batch.k)]
    assert numpy.isneginf(fetch(aux["row_max"])[:, total:]).all()
    check({"row_max": aux["row_max"][:, :total], "max_logit": aux["max_logit"]}, numpy.concatenate(rows, 1), fetch)


def test_many_splits_and_families_agree(rng, place, fetch):
    q, k, v = random_qkv(rng, seqlen_q=2, seqlen_kv=3000, heads_q=4, heads_kv=1, dtype="bf16")
    results = []
    for num_splits in (1, 0, 7):
        _, aux = ja.attention(place(q), place(k), place(v), num_splits=num_splits, return_aux=BOTH)
        results.append(aux)
    spec = ja.AttentionSpec(head_dim=64, gqa_ratio=4, max_logit=True, row_max=True)
    for config in ("family=forward_mma_sync", "family=forward_split_kv", "family=forward_wgmma rescale=lazy",
                   "family=forward_wgmma rescale=on_overflow"):
        if "wgmma" in config and ja.devices()[0].arch != "sm_90a":
            continue
        results.append(ja.prepare(spec, config=config)(place(q), place(k), place(v), return_aux=BOTH)[1])
    check(results[0], exact_rows(q, k), fetch)
    for aux in results[1:]:
        for name in BOTH:
            numpy.testing.assert_array_equal(fetch(aux[name]), fetch(results[0][name]))


def test_buffers_hold_maxima_over_calls(rng, place, fetch):
    q, k, v = random_qkv(rng, seqlen_q=9, seqlen_kv=9, heads_q=3, dtype="fp16")
    held = rng.choice([-numpy.inf, -2.0, -1e-40, 0.0, 1e-40, 0.5, 900.0], (3,)).astype(numpy.float32)
    first = place(held.copy())
    exact = exact_rows(q, k).max((0, 2))
    _, aux = ja.attention(place(q), place(k), place(v), return_aux={"max_logit": first})
    assert aux["max_logit"] is first
    numpy.testing.assert_allclose(fetch(first), numpy.maximum(held, exact), rtol=4e-6)
    _, aux = ja.attention(place(q), place(k), place(v), softmax_scale=3.0, return_aux={"max_logit": first, "row_max": None})
    exact = exact_rows(q, k, softmax_scale=3.0)
    numpy.testing.assert_allclose(fetch(first), numpy.maximum(held, exact.max((0, 2))), rtol=4e-6)
    numpy.testing.assert_allclose(fetch(aux["row_max"]), exact, rtol=4e-6, atol=4e-6)


@pytest.mark.parametrize("text, most", [
    ("return -0.0f;", 0.0), ("return -3e38f;", -numpy.inf), ("return -INFINITY;", -numpy.inf),
    ("return k == 1 ? __int_as_float(0x7fc00000) : -2.0f;", -2.0), ("return -1e-42f;", -1e-42), ("return 1e30f * (k - 4);", 4e30)])
@pytest.mark.parametrize("seqlen_q", [2, 40])
def test_strange_scores(rng, place, fetch, text, most, seqlen_q):
    q, k, v = random_qkv(rng, seqlen_q=seqlen_q, seqlen_kv=9, heads_q=1, dtype="bf16")
    _, aux = ja.attention(place(q), place(k), place(v), score=ja.score.text(text, name="strange"), return_aux=BOTH)
    assert (fetch(aux["row_max"]) == numpy.float32(most)).all() and fetch(aux["max_logit"]) == numpy.float32(most)


def test_no_keys_and_no_queries(place, fetch):
    for seqlen_q, seqlen_kv in ((3, 0), (0, 3)):
        q = numpy.ones((2, seqlen_q, 2, 64), ml_dtypes.bfloat16)
        k = numpy.ones((2, seqlen_kv, 2, 64), ml_dtypes.bfloat16)
        _, aux = ja.attention(place(q), place(k), place(k), return_aux=BOTH)
        assert numpy.isneginf(fetch(aux["max_logit"])).all() and numpy.isneginf(fetch(aux["row_max"])).all()


@pytest.mark.parametrize("aux, field, reason", [
    (("entropy",), "return_aux", "names 'entropy'"),
    (("max_logit", "max_logit"), "return_aux", "twice"),
    ({"max_logit": numpy.zeros(3, numpy.float32)}, "max_logit", "it must be 2"),
    ({"max_logit": numpy.zeros((2, 1), numpy.float32)}, "max_logit", "dimensions"),
    ({"row_max": numpy.zeros((1, 2, 8), numpy.float32)}, "row_max", "it must be 9"),
    ({"row_max": numpy.zeros((1, 2, 9), numpy.float16)}, "row_max", "fp32"),
    ({"row_max": numpy.lib.stride_tricks.as_strided(numpy.zeros(9, numpy.float32), (1, 2, 9), (0, 0, 4))}, "row_max", "share memory"),
])
def test_bad_outputs(place, aux, field, reason):
    q = place(numpy.ones((1, 9, 2, 64), ml_dtypes.bfloat16))
    if isinstance(aux, dict):
        aux = {name: place(array) for name, array in aux.items()}
    with pytest.raises(ja.InvalidArgumentError, match=reason) as error:
        ja.attention(q, q, q, return_aux=aux)
    assert error.value.field == field


def test_types_of_return_aux(place):
    q = place(numpy.ones((1, 9, 2, 64), ml_dtypes.bfloat16))
    for wrong in ("max_logit", 3):
        with pytest.raises(TypeError, match="return_aux must be names"):
            ja.attention(q, q, q, return_aux=wrong)


def test_any_mapping_and_no_names(place, fetch):
    q = place(numpy.ones((1, 4, 2, 32), numpy.float16))
    held = place(numpy.full(2, -numpy.inf, numpy.float32))
    _, aux = ja.attention(q, q, q, return_aux=collections.UserDict(max_logit=held))
    assert aux["max_logit"] is held and numpy.isfinite(fetch(held)).all()
    for nothing in [], {}:
        o, aux = ja.attention(q, q, q, return_aux=nothing)
        assert o.shape == q.shape and aux == {}


def test_what_asks_and_what_is_given_agree(place):
    q = place(numpy.ones((1, 9, 2, 64), ml_dtypes.bfloat16))
    with pytest.raises(ja.InvalidArgumentError, match="max_logit"):
        ja.prepare(ja.AttentionSpec(head_dim=64, max_logit=True))(q, q, q)
    with pytest.raises(ja.InvalidArgumentError, match="row_max"):
        ja.prepare(ja.AttentionSpec(head_dim=64))(q, q, q, return_aux=("row_max",))


def test_refusals(place):
    fp8 = place(numpy.ones((1, 9, 2, 64), ml_dtypes.float8_e4m3fn).view(numpy.uint8))
    with pytest.raises(ja.InvalidSpecError, match="max_logit = true must be false with k and v of fp8_e4m3"):
        ja.attention(fp8, fp8, fp8, dtype="fp8_e4m3", return_aux=("max_logit",))
    (refusal,) = ja.refusals("sm_90a", kv_dtype="int8", row_max=True)
    assert (refusal.field, refusal.nearest) == ("row_max", "false")
    for arch in ("sm_80", "sm_90a", "sm_100a", "sm_120a"):
        assert not ja.refusals(arch, max_logit=True, head_dim=64)
    with pytest.raises(ja.Error, match="forward_wide_wgmma does not compute max_logit"):
        ja.compile(ja.AttentionSpec(head_dim=512, max_logit=True), "sm_90a", config="family=forward_wide_wgmma")


def test_gradients_ignore_outputs(rng, place, fetch):
    q, k, v = (place(x) for x in random_qkv(rng, seqlen_q=17, seqlen_kv=17, heads_q=2, dtype="fp16"))
    o, lse, _ = ja.attention(q, k, v, return_lse=True, return_aux=BOTH)
    dq, _, _ = ja.attention_backward(o, q, k, v, o, lse)
    assert numpy.isfinite(fetch(dq)).all()


def test_torch(rng, emulated):
    torch = pytest.importorskip("torch")
    jt = pytest.importorskip("jit_attention.torch")
    from torch import library

    device = "cpu" if emulated else "cuda"
    arrays = random_qkv(rng, batch=2, seqlen_q=20, seqlen_kv=20, heads_q=2, dtype="fp16")
    q, k, v = (torch.from_numpy(x).to(device) for x in arrays)
    exact = exact_rows(*arrays[:2])

    def right(aux, held=-numpy.inf):
        assert not aux["max_logit"].requires_grad
        numpy.testing.assert_allclose(aux["max_logit"].cpu(), numpy.maximum(exact.max((0, 2)), held), rtol=4e-6)

    for x in (q, q.clone().requires_grad_()):  # without gradients, and with them
        o, lse, aux = jt.attention(x, k, v, return_lse=True, return_aux=BOTH)
        right(aux)
        numpy.testing.assert_allclose(aux["row_max"].cpu(), exact, rtol=4e-6, atol=4e-6)
        held = torch.tensor([0.0, 900.0], device=device)
        o, aux = jt.attention(x, k, v, return_aux={"max_logit": held})
        assert aux["max_logit"] is held
        right(aux, [0.0, 900.0])
        if x.requires_grad:
            o.float().sum().backward()
            assert x.grad is not None

    for x in (q, q.clone().requires_grad_()):
        assert jt.attention(x, k, v, return_aux=())[1] == {}
        for bad in ({"max_logit": torch.zeros(3, 2, device=device)}, {"max_logit": torch.zeros(2, dtype=torch.float64)},
                    {"most": None}):
            with pytest.raises(ja.InvalidArgumentError, match="most|max_logit"):
                jt.attention(x, k, v, return_aux=bad)

    torch._dynamo.reset()
    compiled = torch.compile(lambda q: jt.attention(q, k, v, return_aux=("max_logit",)), backend="aot_eager", fullgraph=True)
    right(compiled(q)[1])
    arguments = (q, k, v, [], repr((None, None, (), None)), None, True, "BSHD", None)
    library.opcheck(torch.ops.jit_attention.attention.default, arguments, {"outputs": "row_max"})
