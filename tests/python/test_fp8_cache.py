"""Caches of fp8 under queries of 16 bits: against double precision over the numbers that codes and scales stand for."""

import pathlib

import jit_attention as ja
import ml_dtypes
import numpy
import pytest
from exact_attention import DTYPES, exact_attention
from fp8_caches import FP8, KINDS, cached, call, dense, pages, poison, varlen
from request_batches import BF16, boundaries, causal, int32
from seeded import paired, some

SHARE = 12  # kernels take long to compile


@pytest.mark.parametrize("name, kind", [*(("fp8_e4m3", kind) for kind in [*KINDS, "inline"]), ("fp8_e5m2", "token")])
def test_scales(rng, place, fetch, name, kind):
    batch = cached(rng, [1, 3, 0, 17], [100, 37, 5, 300], name, "token" if kind == "inline" else kind)
    arrays = pages(rng, batch, 16, inline=kind == "inline")
    if kind == "none":
        del arrays["k_descale"], arrays["v_descale"]
    o, lse = call(place, batch, arrays, mask=ja.mask.causal(), return_lse=True)
    batch.check(fetch(o), fetch(lse), keep=causal)


@pytest.mark.parametrize("dtype, kind", some(paired(DTYPES, ["head", "token"])))
def test_scales_far_from_one(rng, place, fetch, dtype, kind):
    """Values that are tiny in fp16, too, where their scales bring them there."""
    batch = cached(rng, [2], [60], "fp8_e4m3", kind, dtype=DTYPES[dtype])
    far = numpy.float32(2.0**-20)
    batch.scales["v"] = [scales * far for scales in batch.scales["v"]]
    if kind == "head":
        batch.shared["v"] = batch.shared["v"] * far
    o = fetch(call(place, batch, pages(rng, batch, 16)))
    assert numpy.abs(o).max() < 1e-5
    if dtype == "bf16":
        batch.check(o)
    else:  # o itself has few digits there
        exact = batch.requests().q[0], *(x[0].astype(numpy.float64) for x in (batch.requests().k, batch.requests().v))
        assert numpy.abs(o - exact_attention(*(x[None] for x in exact)).o[0]).max() < 2.0**-24


@pytest.mark.parametrize("page_size, kind", some(paired([1, 7, 64], ["head", "token"])))
def test_pages_of_any_size(rng, place, fetch, page_size, kind):
    dtype = DTYPES["bf16" if kind == "token" else "fp16"]  # what probabilities are rounded to, which bounds errors
    batch = cached(rng, [2, 1], [70, 129], "fp8_e4m3", kind, ratio=1, dtype=dtype)
    o, lse = call(place, batch, pages(rng, batch, page_size), mask=ja.mask.causal(), return_lse=True)
    batch.check(fetch(o), fetch(lse), keep=causal)


@pytest.mark.parametrize("lies, kind", some(paired(["varlen", "dense"], ["request_head", "token"])))
def test_varlen_and_dense(rng, place, fetch, lies, kind):
    batch = cached(rng, [5, 40, 1], [2, 40, 130], "fp8_e5m2", kind)
    arrays = varlen(batch) if lies == "varlen" else dense(rng, batch, 150)
    o, lse = call(place, batch, arrays, mask=ja.mask.causal(), return_lse=True)
    batch.check(fetch(o), fetch(lse), keep=causal)


@pytest.mark.parametrize(
    "sizes, kind",
    some(paired([(1, 8, 8), (12, 72, 40), (3, 80, 128), (2, 24, 48), (8, 128, 128), (2, 256, 256)], ["head", "token"])),
)
def test_heads_and_head_dims(rng, place, fetch, sizes, kind):
    ratio, head_dim, head_dim_v = sizes
    batch = cached(rng, [1, 2], [90, 33], "fp8_e4m3", kind, ratio=ratio, head_dim=head_dim, head_dim_v=head_dim_v)
    o = call(place, batch, pages(rng, batch, 16))
    batch.check(fetch(o))


@pytest.mark.parametrize("alignment", some([2, 4, 8]))
def test_rows_of_any_alignment(rng, place, fetch, alignment):
    batch = cached(rng, [2], [50], "fp8_e4m3", "head", head_dim=72)
    arrays = pages(rng, batch, 16)
    for name in "kv":
        wide = poison(rng, (*arrays[name].shape[:3], 72 + alignment))
        wide[..., alignment:] = arrays[name].view(numpy.uint8)
        arrays[name] = wide[..., alignment:].view(FP8["fp8_e4m3"])
    o = call(place, batch, arrays)
    batch.check(fetch(o))


def window(b, h, i, j, seqlen_q, seqlen_k):
    place = i + seqlen_k - seqlen_q
    return (j <= place) & (j >= place - 20)


@pytest.mark.parametrize("kind", some(["head", "token"]))
def test_masks_and_scores(rng, place, fetch, kind):
    batch = cached(rng, [1, 9, 3], [130, 20, 64], "fp8_e4m3", kind)
    slopes = (0.5 ** numpy.arange(1, 9)).astype(numpy.float32)
    o, lse = call(
        place,
        batch,
        pages(rng, batch, 16),
        mask=ja.mask.sliding_window(20, 0),
        score=ja.score.alibi(),
        tensors={"alibi_slopes": place(slopes)},
        return_lse=True,
    )
    with_slopes = lambda s, b, h, i, j, m, n: s - slopes[h] * numpy.abs(i + n - m - j)  # noqa: E731
    batch.check(fetch(o), fetch(lse), keep=window, score=with_slopes)


@pytest.mark.parametrize("kind", some(["head", "token"], turn=1))
def test_sinks_and_splits(rng, place, fetch, kind):
    batch = cached(rng, [1, 2], [900, 0], "fp8_e4m3", kind, heads_kv=1)
    arrays = pages(rng, batch, 16)
    whole = fetch(call(place, batch, arrays, num_splits=1))
    batch.check(whole)
    batch.check(fetch(call(place, batch, arrays)))
    sinks = place(numpy.full(4, -numpy.inf, numpy.float32))
    batch.check(fetch(call(place, batch, arrays, num_splits=3, sinks=sinks)))


@pytest.mark.parametrize("kind", some(["head", "token"]))
def test_bits_of_a_request_alone(rng, place, fetch, kind):
    """With split_keys they depend neither on the batch nor on pages, and runs repeat them."""
    options = {"mask": ja.mask.causal(), "split_keys": 128}
    batch = cached(rng, [3, 1], [700, 90], "fp8_e4m3", kind)
    both = fetch(call(place, batch, pages(rng, batch, 16), **options))
    again = fetch(call(place, batch, pages(rng, batch, 16), **options))
    assert numpy.array_equal(both, again)
    first = cached(rng, [3], [700], "fp8_e4m3", kind)
    first.q = batch.q[:1]
    for name in "kv":
        first.codes[name], first.scales[name] = batch.codes[name][:1], batch.scales[name][:1]
        first.shared[name] = batch.shared[name]
    alone = fetch(call(place, first, pages(rng, first, 16, spare=40), **options))
    assert numpy.array_equal(both[:3], alone)
    batch.check(both, keep=causal)


def check_all_codes(place, fetch, name, kind):
    """One key with every code, under queries that each see one of its elements: LSE is that element, o is the value."""
    codes = numpy.arange(256, dtype=numpy.uint8)
    q = numpy.eye(256, dtype=numpy.float32).astype(kind)[None, :, None]
    keys = place(codes[None, None, None].copy())
    o, lse = ja.attention(place(q), keys, keys, softmax_scale=1.0, return_lse=True, kv_dtype=name)
    wide = codes.view(FP8[name]).astype(numpy.float64)
    # A NaN or an infinity among the others times 0 is NaN in every product.
    assert numpy.isnan(fetch(lse)).all()
    finite = numpy.where(numpy.isfinite(wide), codes, 0).astype(numpy.uint8)
    keys = place(finite[None, None, None].copy())
    o, lse = ja.attention(place(q), keys, place(codes[None, None, None].copy()), softmax_scale=1.0, return_lse=True,
                          kv_dtype=name)  # fmt: skip
    numbers = finite.view(FP8[name]).astype(numpy.float64)
    assert numpy.allclose(fetch(lse)[0, 0], numbers, rtol=1e-6, atol=0)  # a power of two on the way
    assert numpy.array_equal(fetch(o)[0, 0, 0], wide, equal_nan=True)  # of the query whose score is 0


@pytest.mark.parametrize("name, kind", some(paired(FP8, DTYPES)))
def test_all_codes(place, fetch, name, kind):
    check_all_codes(place, fetch, name, DTYPES[kind])


def test_where_there_is_no_instruction(run_python):
    """sm_80 has none: the kernel converts by integer arithmetic."""
    tests = pathlib.Path(__file__)
    script = f"""
import sys
sys.path.insert(0, {str(tests.parent)!r})
import numpy, test_fp8_cache as tests
identity, wide = (lambda x: x), (lambda x: numpy.asarray(x).astype(numpy.float64))
for name, kind in {some(paired(FP8, DTYPES), turn=1)!r}:
    tests.check_all_codes(identity, wide, name, tests.DTYPES[kind])
tests.test_scales(numpy.random.default_rng(7), identity, wide, "fp8_e4m3", "token")
"""
    run_python(script, JIT_ATTENTION_DEVICE="emulated:sm_80")


@pytest.mark.parametrize("per_head", [False, True])
@pytest.mark.parametrize("name", some(FP8))
def test_reads_what_append_stores(rng, place, fetch, name, per_head):
    tokens, pages_of_cache, page_size = 40, 9, 8
    k, v = (rng.standard_normal((tokens, 2, 64)).astype(BF16) for _ in "kv")
    scales = [rng.uniform(0.01, 0.1, 2 if per_head else 1).astype(numpy.float32) for _ in "kv"]
    caches = [place(poison(rng, (pages_of_cache, page_size, 2, 64))) for _ in "kv"]
    table = int32(rng.permutation(pages_of_cache)[:5][None])
    slots = (table[0, numpy.arange(tokens) // page_size] * page_size + numpy.arange(tokens) % page_size).astype("i8")
    k_scale, v_scale = (place(scale) for scale in scales)
    stored = dict(k_scale=k_scale, v_scale=v_scale, cache_dtype=name)
    ja.append(place(k), place(v), *caches, slot_mapping=place(slots), **stored)

    kept = cached(rng, [3], [tokens], name, "head" if per_head else "tensor", head_dim=64)
    for each, new, scale in zip("kv", (k, v), scales):
        kept.codes[each] = [(new.astype(numpy.float32) / scale[:, None]).astype(FP8[name])]
        kept.scales[each] = [numpy.broadcast_to(scale, (tokens, 2))]
    o, lse = ja.attention(
        place(numpy.stack(kept.q)),
        *caches,
        page_table=place(table),
        seqused_k=place(int32([tokens])),
        k_descale=k_scale,
        v_descale=v_scale,
        kv_dtype=name,
        return_lse=True,
    )
    kept.check(fetch(o)[0], fetch(lse)[0])


@pytest.mark.parametrize("kind", some(["head", "token"], turn=1))
def test_scales_that_are_no_numbers(rng, place, fetch, kind):
    """They stay within their head, and leave rows without keys alone."""
    batch = cached(rng, [1, 2], [40, 0], "fp8_e4m3", kind)
    arrays = pages(rng, batch, 16)
    right = fetch(call(place, batch, arrays))

    def of_first_head(name, value):
        changed = arrays[f"{name}_descale"].copy()
        if kind == "head":
            changed[0] = value
        else:
            changed[batch_page(arrays), 0, 0] = value
        return fetch(call(place, batch, arrays | {f"{name}_descale": changed}))

    for value in (numpy.nan, numpy.inf):
        for name in "kv":
            o = of_first_head(name, value)
            # A key whose score is −inf is left out.
            assert (name == "k" and value == numpy.inf) or not numpy.isfinite(o[0, :4]).all()
            assert numpy.array_equal(o[0, 4:], right[0, 4:])
            assert (o[1:] == 0).all()
    if kind == "head":
        assert (of_first_head("v", 0)[0, :4] == 0).all()
        evenly = batch.requests().v[0][:, 0].mean(0)  # all scores are 0
        assert numpy.abs(of_first_head("k", 0)[0, :4] - evenly).max() < 0.01


def batch_page(arrays):
    return arrays["page_table"][0, 0]


def test_fp8_arrays_need_no_name(rng, emulated):
    if not emulated:
        pytest.skip("NumPy's fp8 cannot be carried to a GPU")
    batch = cached(rng, [2], [40], "fp8_e5m2", "tensor")
    arrays = varlen(batch)
    o = ja.attention(
        batch.q[0],
        arrays.pop("k"),
        arrays.pop("v"),
        cu_seqlens_q=int32([0, 2]),
        **arrays,
    )
    batch.check(o.astype(numpy.float64))


@pytest.mark.parametrize("kind", some(["head", "token"]))
def test_heads_before_rows(rng, place, fetch, kind):
    """With layout="BHSD" scales of keys lie as keys do."""
    batch = cached(rng, [2, 2], [30, 50], "fp8_e4m3", kind)
    arrays = dense(rng, batch, 60)
    for name in "kv":
        arrays[name] = arrays[name].transpose(0, 2, 1, 3)
        if kind == "token":
            arrays[f"{name}_descale"] = numpy.ascontiguousarray(arrays[f"{name}_descale"].transpose(0, 2, 1))
    o = ja.attention(
        place(numpy.stack(batch.q).transpose(0, 2, 1, 3)),
        *(place(arrays.pop(name).view(numpy.uint8)) for name in "kv"),
        **{name: place(array) for name, array in arrays.items()},
        kv_dtype="fp8_e4m3",
        layout="BHSD",
    )
    batch.check(fetch(o).transpose(0, 2, 1, 3).reshape(4, 8, 64))


def test_a_prepared_kernel(rng, place, fetch):
    batch = cached(rng, [1, 2], [30, 50], "fp8_e4m3", "token")
    spec = ja.AttentionSpec(
        head_dim=64,
        gqa_ratio=4,
        kv_dtype="float8_e4m3fn",
        descale_per="token",
        sequences_q="varlen",
        sequences_kv="paged",
        page_size=16,
    )
    assert spec.kv_dtype == "fp8_e4m3"
    attention = ja.prepare(spec)
    arrays = {key: place(a.view(numpy.uint8) if a.dtype == FP8["fp8_e4m3"] else a)
              for key, a in pages(rng, batch, 16).items()}  # fmt: skip
    o = attention(
        place(numpy.concatenate(batch.q)),
        arrays.pop("k"),
        arrays.pop("v"),
        cu_seqlens_q=place(int32([0, 1, 3])),
        **arrays,
    )
    batch.check(fetch(o))
    assert attention.kernel().config["family"].startswith("forward_split")


def random_operands(rng, place, kv_dtype=numpy.uint8):
    q = place(rng.standard_normal((1, 2, 4, 64)).astype(BF16))
    k = place(numpy.zeros((1, 8, 2, 64), kv_dtype))
    return q, k, k


@pytest.mark.parametrize(
    "options, argument, words",
    [
        ({}, "k", "holds bytes; say with kv_dtype"),
        ({"kv_dtype": "bf16"}, "kv_dtype", "it must be None"),
        ({"kv_dtype": "fp8_e4m3", "k_descale": (3,)}, "k_descale", "has heads = 3; it must be 2"),
        ({"kv_dtype": "fp8_e4m3", "v_descale": (2, 2)}, "v_descale", "has batch = 2; it must be 1"),
        ({"kv_dtype": "fp8_e4m3", "k_descale": (1, 8, 2)}, "v_descale", "is missing"),
        ({"kv_dtype": "fp8_e4m3", "k_descale": (1, 7, 2), "v_descale": (1, 8, 2)}, "k_descale", "has seqlen = 7"),
        ({"kv_dtype": "fp8_e4m3", "descale_per": "tensor"}, "descale_per", "'tensor' is no kind of scales"),
        ({"kv_dtype": "fp8_e4m3", "dropout_p": 0.1}, "dropout", "must be false where k and v are of fp8"),
    ],
)
def test_refusals(rng, place, options, argument, words):
    options = {
        name: place(numpy.ones(value, numpy.float32)) if isinstance(value, tuple) else value
        for name, value in options.items()
    }
    if "dropout_p" in options:
        options["rng_state"] = place(numpy.array([1, 2], numpy.int64))
    with pytest.raises(ja.Error) as refused:
        ja.attention(*random_operands(rng, place), **options)
    assert argument in refused.value.field and words in str(refused.value)


def test_scales_beside_keys_of_16_bits_are_refused(rng, place):
    q, k, v = (place(rng.standard_normal((1, 2, 4, 64)).astype(BF16)) for _ in "qkv")
    with pytest.raises(ja.InvalidArgumentError, match="k_descale: was given, but the spec has no kv_dtype of 8 or 4 bits"):
        ja.attention(q, k, v, k_descale=place(numpy.ones(1, numpy.float32)))


def test_as_many_requests_as_keys(rng, place, fetch):
    """Then the shape of scales of varlen keys does not say what they are for."""
    batch = cached(rng, [1, 1, 1], [2, 0, 1], "fp8_e4m3", "token")
    with pytest.raises(ja.InvalidArgumentError, match='descale_per="head" or "token"'):
        call(place, batch, varlen(batch))
    batch.check(fetch(call(place, batch, varlen(batch), descale_per="token")))


def test_there_is_no_backward(rng, place):
    q, k, v = random_operands(rng, place)
    lse = place(numpy.zeros((1, 4, 2), numpy.float32))
    with pytest.raises(ja.InvalidArgumentError, match="k: is uint8; gradients are those of bf16 and fp16"):
        ja.attention_backward(q, q, k, v, q, lse)


def test_families_that_read_no_fp8():
    spec = ja.AttentionSpec(head_dim=64, kv_dtype="fp8_e4m3")
    with pytest.raises(ja.NoValidConfigError, match="forward_mma_sync reads k and v of the type of q, bf16"):
        ja.prepare(spec, config="family=forward_mma_sync")


#: Of forward_wgmma: two of the producers' warps upcast keys and values, or a warpgroup, or a kernel ahead; O lies
#: over Q, apart, or nowhere.
UPCAST = {
    "spare": "tile_q=128 tile_kv=80 stages_q=2 stages_k=2 stages_v=2 order=ping_pong rescale=on_overflow "
    "stages_stored=2 converter_warps=2",
    "direct": "tile_q=192 tile_kv=48 stages_k=2 stages_v=2 output=direct "
    "stages_stored=1 converter_warps=2",
    "own": "tile_q=128 tile_kv=64 stages_k=2 stages_v=3 output=separate stages_stored=1 converter_warps=4",
    "ahead": "tile_q=128 tile_kv=64 stages_q=2 stages_k=2 stages_v=2 order=ping_pong rescale=on_overflow "
    "upcast_ahead=true",
    "ahead_direct": "tile_q=64 tile_kv=48 stages_k=2 output=direct rescale=lazy upcast_ahead=true",
}


def upcast(place, fetch, batch, arrays, config, **spec):
    """o and LSE of requests by a config of forward_wgmma. Rows behind them are no query's, and become 0."""
    if ja.devices()[0].arch != "sm_90a":
        pytest.skip("forward_wgmma is for sm_90a")
    name = next(name for name, kind in FP8.items() if kind == arrays["k"].dtype)
    tensors = arrays.pop("tensors", {})
    arrays = {key: place(a.view(numpy.uint8) if a.dtype == FP8[name] else a) for key, a in arrays.items()}
    if tensors:
        arrays |= {"tensors": tensors}
    q = numpy.concatenate(batch.q)
    rows = len(q)
    q = numpy.concatenate([q, numpy.full((5, *q.shape[1:]), numpy.nan, q.dtype)])
    if "page_table" in arrays:
        spec |= {"sequences_kv": "paged", "page_size": arrays["k"].shape[1]}
    elif "cu_seqlens_k" in arrays:
        spec |= {"sequences_kv": "varlen"}
    ratio, head_dim, head_dim_v = q.shape[1] // arrays["k"].shape[-2], q.shape[2], arrays["v"].shape[-1]
    spec |= {"sequences_q": "varlen", "gqa_ratio": ratio, "head_dim": head_dim, "head_dim_v": head_dim_v}
    dtype = "bf16" if q.dtype == BF16 else "fp16"
    attention = ja.prepare(
        ja.AttentionSpec(dtype=dtype, kv_dtype=name, sinks="sinks" in arrays, **spec),
        config=f"family=forward_wgmma {config}",
    )
    out = place(numpy.full((*q.shape[:2], head_dim_v), 7, q.dtype))
    o, lse = attention(
        place(q),
        arrays.pop("k"),
        arrays.pop("v"),
        cu_seqlens_q=place(boundaries([len(q) for q in batch.q])),
        **arrays,
        out=out,
        return_lse=True,
        zero_padding=True,
    )
    o, lse = fetch(o), fetch(lse)
    assert (o[rows:] == 0).all() and (lse[:, rows:] == -numpy.inf).all()
    return o[:rows], lse[:, :rows]


# Requests without queries, without keys, of one query, and of more work tiles than the kernel keeps at once.
MANY, KEYS = [150, 1, 0, 70, 3, 200], [250, 37, 5, 0, 3, 130]


@pytest.mark.parametrize(
    "config, page_size, name, dtype, head_dim",
    [
        ("spare", 16, "fp8_e4m3", "bf16", 128),
        ("own", 8, "fp8_e5m2", "fp16", 64),
        ("ahead", 16, "fp8_e4m3", "bf16", 128),
        ("ahead_direct", 3, "fp8_e5m2", "fp16", 256),
    ],
)
def test_prefill_over_pages(rng, place, fetch, config, page_size, name, dtype, head_dim):
    """Rows that belong to no request are NaN, in pages and behind the ends of requests."""
    batch = cached(rng, MANY, KEYS, name, "request_head", ratio=2, head_dim=head_dim, dtype=DTYPES[dtype])
    arrays = pages(rng, batch, page_size)
    o, lse = upcast(place, fetch, batch, arrays, UPCAST[config], mask=ja.mask.causal())
    batch.check(o, lse, keep=causal)
    if config in ("spare", "ahead"):
        again, _ = upcast(place, fetch, batch, arrays, UPCAST[config], mask=ja.mask.causal())
        assert numpy.array_equal(o, again)


@pytest.mark.parametrize("config, far, has_slopes", some([("spare", 40, False), ("own", -40, True), ("ahead", 40, True)]))
def test_prefill_of_queries_beyond_fp16(rng, place, fetch, config, far, has_slopes):
    """Some are multiplied as fp16, whose range has neither such rows nor, beside them, ordinary ones."""
    batch = cached(rng, [70, 3], [90, 130], "fp8_e4m3", "head")
    batch.q = [(q.astype(numpy.float32) * numpy.float32(2.0**-far)).astype(BF16) for q in batch.q]
    batch.shared["k"] = batch.shared["k"] * numpy.float32(2.0**far)
    batch.scales["k"] = [scales * numpy.float32(2.0**far) for scales in batch.scales["k"]]
    slopes = (0.5 ** numpy.arange(1, 9)).astype(numpy.float32)
    arrays, options, spec = pages(rng, batch, 16), {}, {"mask": ja.mask.causal()}
    if has_slopes:
        arrays |= {"tensors": {"alibi_slopes": place(slopes)}}
        spec |= {"score": ja.score.alibi()}
        options = {"score": lambda s, b, h, i, j, m, n: s - slopes[h] * numpy.abs(i + n - m - j)}
    o, lse = upcast(place, fetch, batch, arrays, UPCAST[config], **spec)
    batch.check(o, lse, keep=causal, **options)


@pytest.mark.parametrize("config, lies", some(paired(["direct", "own", "ahead_direct"], ["varlen", "dense"])))
def test_prefill_over_rows(rng, place, fetch, config, lies):
    """With a score, which takes scaled products, and sinks."""
    batch = cached(rng, MANY, KEYS, "fp8_e4m3", "head", ratio=1, head_dim=80, head_dim_v=48)
    arrays = varlen(batch) if lies == "varlen" else dense(rng, batch, 300)
    arrays["sinks"] = numpy.full(2, -numpy.inf, numpy.float32)
    mask, score = ja.mask.sliding_window(20, 0), ja.score.softcap(5.0)
    o, lse = upcast(place, fetch, batch, arrays, UPCAST[config], mask=mask, score=score)
    batch.check(o, lse, keep=window, score=lambda s, b, h, i, j, m, n: 5 * numpy.tanh(s / 5))


@pytest.mark.parametrize("config", some(["own", "ahead"]))
def test_prefill_behind_padding(rng, place, fetch, config):
    """Rows before the first key are NaN, as those behind the last one are."""
    batch = cached(rng, [70, 3], [90, 130], "fp8_e4m3", "head")
    arrays, pads = dense(rng, batch, 200), int32([9, 66])
    for name in "kv":
        arrays[name] = numpy.stack([numpy.roll(rows, pad, 0) for rows, pad in zip(arrays[name], pads)])
    arrays |= {"seqused_k": arrays["seqused_k"] + pads, "cache_leftpad": pads}
    o, lse = upcast(place, fetch, batch, arrays, UPCAST[config], mask=ja.mask.causal())
    batch.check(o, lse, keep=causal)


def test_prefill_over_pages_that_do_not_exist(rng, place, fetch):
    """They are zeros, however the workspace was filled."""
    batch = cached(rng, [70], [100], "fp8_e4m3", "head")
    arrays = pages(rng, batch, 16)
    upcast(place, fetch, batch, dict(arrays), UPCAST["ahead"])
    table = arrays["page_table"].copy()
    table[0, 2], table[0, 4] = -1, 1 << 30
    for codes in batch.codes.values():
        codes[0][32:48] = codes[0][64:80] = 0
    o, lse = upcast(place, fetch, batch, arrays | {"page_table": table}, UPCAST["ahead"])
    batch.check(o, lse)


@pytest.mark.parametrize("config", ["spare", "ahead"])
def test_prefill_scales_that_are_no_numbers(rng, place, fetch, config):
    """They stay within their head, and leave rows without keys alone."""
    batch = cached(rng, [40, 10], [130, 0], "fp8_e4m3", "head", ratio=2)
    arrays = pages(rng, batch, 16)

    def of_first_head(name, value):
        changed = arrays[f"{name}_descale"].copy()
        changed[0] = value
        return upcast(place, fetch, batch, arrays | {f"{name}_descale": changed}, UPCAST[config])[0]

    right = of_first_head("k", arrays["k_descale"][0])
    for value in (numpy.nan, numpy.inf, -0.5, 0):
        for name in "kv":
            o = of_first_head(name, value)
            assert numpy.array_equal(o[:40, 2:], right[:40, 2:])
            assert (o[40:] == 0).all()
            assert numpy.isfinite(value) == numpy.isfinite(o[:40, :2]).all() or (name == "k" and value == numpy.inf)
    evenly = batch.requests().v[0][:, 0].mean(0)  # all scores are 0
    assert numpy.abs(of_first_head("k", 0)[:40, :2] - evenly).max() < 0.01
    assert (of_first_head("v", 0)[:40, :2] == 0).all()
    batch.scales["k"] = [numpy.broadcast_to(scale * [-1, 1], scale.shape) for scale in batch.scales["k"]]
    o = of_first_head("k", -arrays["k_descale"][0])
    batch.check(o)


def test_prefill_beside_decoding(rng, place, fetch):
    """Two kernels share a call."""
    if ja.devices()[0].arch != "sm_90a":
        pytest.skip("calls take two kernels on sm_90a")
    lengths_q, lengths_k = [200, 1, 65, 64, 0, 1, 3], [210, 300, 80, 100, 30, 0, 3]
    batch = cached(rng, lengths_q, lengths_k, "fp8_e4m3", "request_head", heads_kv=1)
    arrays = pages(rng, batch, 16)
    o, lse = call(place, batch, arrays, mask=ja.mask.causal(), return_lse=True)
    batch.check(fetch(o), fetch(lse), keep=causal)
    spec = ja.AttentionSpec(
        head_dim=64,
        gqa_ratio=4,
        kv_dtype="fp8_e4m3",
        sequences_q="varlen",
        sequences_kv="paged",
        page_size=16,
        mask=ja.mask.causal(),
    )
    arrays = {key: place(a.view(numpy.uint8) if a.dtype == FP8["fp8_e4m3"] else a) for key, a in arrays.items()}
    q, k, v = place(numpy.concatenate(batch.q)), arrays.pop("k"), arrays.pop("v")
    kernel = ja.prepare(spec).kernel(q, k, v, cu_seqlens_q=place(boundaries(lengths_q)), **arrays)
    assert "requests=few_queries" in repr(kernel) and "requests=many_queries" in kernel.why


def test_specs():
    assert not ja.refusals("sm_80", kv_dtype="fp8_e5m2")
    (refusal,) = ja.refusals("sm_90a", kv_dtype="fp16")
    assert (refusal.field, refusal.nearest) == ("kv_dtype", "fp8_e4m3")
    (refusal,) = ja.refusals("sm_90a", descale_per="token")
    assert refusal.field == "descale_per"
    assert ml_dtypes.finfo(FP8["fp8_e4m3"]).max == 448
