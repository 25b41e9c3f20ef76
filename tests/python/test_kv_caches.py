"""Caches of int8, int4, NVFP4 and MXFP4 under 16-bit queries: against double precision over what bytes stand for."""

import itertools

import jit_attention as ja
import numpy
import pytest
from exact_attention import DTYPES
from request_batches import causal
from seeded import paired, some
from stored_caches import DESCALE, NAMES, cached, call, pages, varlen

SHARE = 6  # kernels take long to compile


@pytest.mark.parametrize("name, inline", paired(NAMES, [False, True]))
def test_pages(rng, place, fetch, name, inline):
    batch = cached(rng, [1, 3, 0, 17], [100, 37, 5, 300], name)
    o, lse = call(place, batch, pages(rng, batch, 16, inline=inline), mask=ja.mask.causal(), return_lse=True)
    batch.check(fetch(o), fetch(lse), keep=causal)


@pytest.mark.parametrize("name, dtype", some(paired(NAMES, DTYPES)))
def test_varlen(rng, place, fetch, name, dtype):
    if DESCALE[name] == "token":
        dtype = "bf16"  # as which P times scales of tokens is rounded
    batch = cached(rng, [5, 40, 1], [2, 40, 130], name, dtype=DTYPES[dtype])
    o, lse = call(place, batch, varlen(batch), mask=ja.mask.causal(), return_lse=True)
    batch.check(fetch(o), fetch(lse), keep=causal)


@pytest.mark.parametrize(
    "name, sizes",
    some(
        [
            *(("int8", sizes) for sizes in [(1, 8, 8), (12, 72, 40), (2, 24, 48)]),
            *(("int4", sizes) for sizes in [(1, 8, 8), (12, 72, 40), (2, 24, 48), (3, 80, 128), (2, 256, 256)]),
            *(("nvfp4", sizes) for sizes in [(1, 16, 16), (3, 80, 48), (8, 128, 128), (2, 256, 256)]),
            *(("mxfp4", sizes) for sizes in [(1, 32, 96), (3, 160, 32), (8, 128, 128)]),
        ]
    ),
)
def test_heads_and_head_dims(rng, place, fetch, name, sizes):
    ratio, head_dim, head_dim_v = sizes
    batch = cached(rng, [1, 2], [90, 33], name, ratio=ratio, head_dim=head_dim, head_dim_v=head_dim_v)
    batch.check(fetch(call(place, batch, pages(rng, batch, 16))))


FEW_ROWS = [
    "key_warps=4 tile_kv=64 blocks_per_sm=1",
    "key_warps=2 tile_kv=32 row_warps=2",
    "key_warps=1 tile_kv=48 blocks_per_sm=1",
]


@pytest.mark.parametrize(
    "name, copies, config", some(itertools.product([*NAMES, "int8 of heads"], ["cp_async", "tma"], FEW_ROWS), 7)
)
def test_warps_of_few_rows(rng, place, fetch, name, copies, config):
    """Products that are transposed: rows of less than 8 queries and of more, masks and scores, spans of keys."""
    if copies == "tma" and not ja.devices()[0].arch.startswith("sm_90"):
        pytest.skip("TMA copies tiles on sm_90a")
    kind, by_head = name.split()[0], "heads" in name
    spans = int(rng.choice([0, 192 if "48" in config else 128]))
    widths = [128, 256] if copies == "tma" else [32, 96, 128, 256]  # words of scales of blocks
    width, width_v = (int(rng.choice(widths)) for _ in "kv")
    batch = cached(rng, [1, 9, 0, 3], [130, 20, 7, 64], kind, head_dim=width, head_dim_v=width_v, by_head=by_head)
    slopes = (0.5 ** numpy.arange(1, 9)).astype(numpy.float32)
    spec = ja.AttentionSpec(
        head_dim=width,
        head_dim_v=width_v,
        gqa_ratio=4,
        sequences_q="varlen",
        sequences_kv="paged",
        page_size=16,
        kv_dtype=kind,
        descale_per="head" if by_head else DESCALE[kind],
        mask=ja.mask.sliding_window(20, 0),
        score=ja.score.alibi(),
        split_keys=spans,
    )
    attend = ja.prepare(spec, config=f"family=forward_split_kv warp_rows=8 stages=2 copies={copies} {config}")
    tensors = {"alibi_slopes": place(slopes)}
    o, lse = call(place, batch, pages(rng, batch, 16), attend=attend, tensors=tensors, return_lse=True)
    with_slopes = lambda s, b, h, i, j, m, n: s - slopes[h] * numpy.abs(i + n - m - j)  # noqa: E731
    batch.check(fetch(o), fetch(lse), keep=window, score=with_slopes)


def window(b, h, i, j, seqlen_q, seqlen_k):
    place = i + seqlen_k - seqlen_q
    return (j <= place) & (j >= place - 20)


@pytest.mark.parametrize("name", some(NAMES, 2))
def test_masks_scores_sinks_and_splits(rng, place, fetch, name):
    batch = cached(rng, [1, 9, 3], [130, 20, 64], name)
    slopes = (0.5 ** numpy.arange(1, 9)).astype(numpy.float32)
    options = {"tensors": {"alibi_slopes": place(slopes)}, "score": ja.score.alibi()}
    arrays = pages(rng, batch, 16)
    o, lse = call(place, batch, arrays, mask=ja.mask.sliding_window(20, 0), return_lse=True, **options)
    with_slopes = lambda s, b, h, i, j, m, n: s - slopes[h] * numpy.abs(i + n - m - j)  # noqa: E731
    batch.check(fetch(o), fetch(lse), keep=window, score=with_slopes)
    sinks = place(numpy.full(8, -numpy.inf, numpy.float32))
    batch.check(fetch(call(place, batch, arrays, num_splits=3, sinks=sinks)))


@pytest.mark.parametrize("name, lies", some(paired(NAMES, ["pages", "varlen"])))
def test_prefill_by_numbers_of_16_bits(rng, place, fetch, name, lies):
    """A kernel ahead makes numbers of q's type of what is stored, with scales of tokens and of blocks."""
    if not ja.devices()[0].arch.startswith("sm_90"):
        pytest.skip("by wgmma")
    batch = cached(rng, [70, 1, 150], [0, 33, 210], name, head_dim=128, head_dim_v=64)
    arrays = pages(rng, batch, 16) if lies == "pages" else varlen(batch)
    spec = ja.AttentionSpec(
        head_dim=128,
        head_dim_v=64,
        gqa_ratio=4,
        sequences_q="varlen",
        sequences_kv="paged" if lies == "pages" else "varlen",
        page_size=16 if lies == "pages" else 0,
        kv_dtype=name,
        descale_per=DESCALE[name],
        mask=ja.mask.causal(),
    )
    attend = ja.prepare(
        spec, config="family=forward_wgmma upcast_ahead=true tile_q=128 tile_kv=64 stages_k=2 stages_v=2"
    )
    o, lse = call(place, batch, arrays, attend=attend, return_lse=True)
    batch.check(fetch(o), fetch(lse), keep=causal, rounded=True)


CONVERTED = {
    "forward_wgmma, 2 warps": "forward_wgmma tile_q=128 tile_kv=64 stages_k=2 stages_v=2 stages_stored=2 converter_warps=2",
    "forward_wgmma, 4 warps": "forward_wgmma tile_q=64 tile_kv=48 stages_k=1 stages_v=2 stages_stored=1 converter_warps=4",
    "forward_split_wgmma": "forward_split_wgmma tile_rows=128 tile_kv=64 stages=2 stages_stored=2",
    "forward_split_wgmma, spans": "forward_split_wgmma tile_rows=64 tile_kv=32 stages=1 stages_stored=1",
}


@pytest.mark.parametrize("name, family, lies", some(itertools.product(NAMES, CONVERTED, ["pages", "varlen"]), 12))
def test_scales_applied_by_converters(rng, place, fetch, name, family, lies):
    """Numbers of q's type are made of tiles that arrive, with scales of tokens and of blocks."""
    if not ja.devices()[0].arch.startswith("sm_90"):
        pytest.skip("by wgmma")
    width, width_v = (int(rng.choice([128, 256] if name == "mxfp4" else [64, 128, 192])) for _ in "kv")
    if name == "int8":
        width_v = 80
    if "4 warps" in family or name == "mxfp4":  # of whose registers there are few
        width_v = min(width_v, 128)
    dtype = str(rng.choice(list(DTYPES)))
    batch = cached(
        rng, [70, 1, 0, 150], [0, 33, 40, 210], name, head_dim=width, head_dim_v=width_v, dtype=DTYPES[dtype]
    )
    spec = ja.AttentionSpec(
        dtype=dtype,
        head_dim=width,
        head_dim_v=width_v,
        gqa_ratio=4,
        sequences_q="varlen",
        sequences_kv="paged" if lies == "pages" else "varlen",
        page_size=16 if lies == "pages" else 0,
        kv_dtype=name,
        descale_per=DESCALE[name],
        mask=ja.mask.causal(),
        split_keys=64 if "spans" in family else 0,
    )
    attend = ja.prepare(spec, config=f"family={CONVERTED[family]}")
    arrays = pages(rng, batch, 16) if lies == "pages" else varlen(batch)
    o, lse = call(place, batch, arrays, attend=attend, return_lse=True)
    batch.check(fetch(o), fetch(lse), keep=causal, rounded=True, by_halves=True)


@pytest.mark.parametrize("name", some(NAMES, 4))
def test_requests_of_many_queries_and_of_few(rng, place, fetch, name):
    if not ja.devices()[0].arch.startswith("sm_90"):
        pytest.skip("calls take two kernels on sm_90a")
    lengths_q, lengths_k = [200, 1, 65, 0, 3], [290, 700, 65, 30, 3]
    batch = cached(rng, lengths_q, lengths_k, name, head_dim=128)
    paged = dict(sequences_q="varlen", sequences_kv="paged", page_size=16)
    spec = ja.AttentionSpec(
        head_dim=128, gqa_ratio=4, kv_dtype=name, descale_per=DESCALE[name], mask=ja.mask.causal(), **paged
    )
    attend = ja.prepare(spec)
    arrays = pages(rng, batch, 16)
    o, lse = call(place, batch, dict(arrays), attend=attend, return_lse=True)
    batch.check(fetch(o), fetch(lse), keep=causal, rounded=True, by_halves=True)
    kernel = call(place, batch, arrays, attend=attend.kernel)
    assert "forward_split_wgmma" in repr(kernel) and "requests=many_queries" in kernel.why


INT8_FAMILIES = {
    "forward_split_kv copies=tma": "forward_split_kv copies=tma tile_kv=64 stages=2",
    "forward_split_wgmma": "forward_split_wgmma tile_rows=64 tile_kv=64 stages=2 stages_stored=1",
    "forward_split_cluster": "forward_split_cluster",
    "forward_wgmma": "forward_wgmma tile_q=64 tile_kv=64 stages_k=2 stages_v=2 stages_stored=1 converter_warps=2",
    "forward_wgmma, ahead": "forward_wgmma tile_q=64 tile_kv=64 stages_k=2 stages_v=2 upcast_ahead=true",
}


@pytest.mark.parametrize("family", some(INT8_FAMILIES))
def test_int8_with_scales_of_heads(rng, place, fetch, family):
    """Families that read fp8 with scales of heads read int8."""
    if not ja.devices()[0].arch.startswith("sm_90"):
        pytest.skip("families of sm_90a")
    batch = cached(rng, [5, 1, 60], [40, 130, 70], "int8", by_head=True)
    paged = dict(sequences_q="varlen", sequences_kv="paged", page_size=16)
    spec = ja.AttentionSpec(head_dim=64, gqa_ratio=4, kv_dtype="int8", mask=ja.mask.causal(), **paged)
    attend = ja.prepare(spec, config=f"family={INT8_FAMILIES[family]}")
    o, lse = call(place, batch, pages(rng, batch, 16), attend=attend, return_lse=True)
    batch.check(fetch(o), fetch(lse), keep=causal)


@pytest.mark.parametrize(
    "change, match",
    [
        (dict(kv_dtype="int4"), "descale_per.*must be token with kv_dtype int4"),
        (dict(kv_dtype="nvfp4", descale_per="token"), "descale_per.*must be head with kv_dtype nvfp4"),
        (dict(kv_dtype="mxfp4", head_dim=80), "kv_dtype.*multiples of 32"),
        (dict(kv_dtype="nvfp4", head_dim=512), "kv_dtype.*up to 256"),
        (dict(kv_dtype="int8", values_in_keys=True), "values_in_keys.*int8"),
        (dict(kv_dtype="int4", descale_per="token", dropout=True), "dropout"),
        (dict(dtype="fp8_e4m3", kv_dtype="int8"), "kv_dtype.*must be that of q"),
    ],
)
def test_specs_that_are_refused(change, match):
    with pytest.raises(ja.errors.InvalidSpecError, match=match):
        ja.prepare(ja.AttentionSpec(**{"head_dim": 64, **change}))


@pytest.mark.parametrize(
    "change, match",
    [
        (dict(head_dim=64), "warp_rows = 8 is for keys of 8 or 4 bits, this spec has bf16; 16 serves it"),
        (dict(head_dim=320, kv_dtype="fp8_e4m3"), "warp_rows = 8 is for rows of up to 256 columns"),
    ],
)
def test_configs_that_are_refused(change, match):
    with pytest.raises(ja.errors.NoValidConfigError, match=match):
        ja.prepare(ja.AttentionSpec(sequences_q="varlen", **change), config="family=forward_split_kv warp_rows=8")


def test_arrays_that_are_refused(rng, place):
    batch = cached(rng, [1], [20], "nvfp4")
    arrays = pages(rng, batch, 16)
    without = {name: array for name, array in arrays.items() if name != "v_block_scales"}
    with pytest.raises(ja.errors.InvalidArgumentError, match="v_block_scales"):
        call(place, batch, without)
    with pytest.raises(ja.errors.InvalidArgumentError, match="k_block_scales"):
        call(place, batch, {**arrays, "k_block_scales": arrays["k_block_scales"][..., :2]})
    every_second = numpy.repeat(arrays["k_block_scales"], 2, -1)[..., ::2]
    with pytest.raises(ja.errors.InvalidArgumentError, match="k_block_scales"):
        call(place, batch, {**arrays, "k_block_scales": every_second})
    with pytest.raises(ja.errors.InvalidArgumentError, match="k_block_scales.*given"):
        call(
            place,
            cached(rng, [1], [20], "int8"),
            {**pages(rng, cached(rng, [1], [20], "int8"), 16), "k_block_scales": arrays["k_block_scales"]},
        )


@pytest.mark.parametrize("name", NAMES)
def test_scales_that_are_no_numbers(rng, place, fetch, name):
    """NaN shows in rows that see such a key, and in no other."""
    batch = cached(rng, [2, 1], [30, 20], name)
    arrays = pages(rng, batch, 16)
    page = arrays["page_table"][0, 1], 29 - 16  # the last key of the first request, which its last query alone sees
    if DESCALE[name] == "token":
        arrays["v_descale"][page] = numpy.nan
    else:
        arrays["v_block_scales"][page] = {"nvfp4": 0x7F, "mxfp4": 255}[name]
    o = fetch(call(place, batch, arrays, mask=ja.mask.causal()))
    assert numpy.isnan(o[1]).all() and not numpy.isnan(o[2]).any()


@pytest.mark.parametrize("config", ["warp_rows=8 key_warps=2 tile_kv=32", "key_warps=1 tile_kv=64"])
@pytest.mark.parametrize("dtype, q, k, v", [("fp16", 2e-6, 1e5, 1), ("bf16", 1, 1, 1e-9), ("bf16", 1, 1, 1e12)])
def test_int4_of_any_size(rng, place, fetch, config, dtype, q, k, v):
    """Numbers are multiplied as digits of subnormal numbers, by queries and weights that are raised for it."""
    batch = cached(rng, [1, 2], [90, 33], "int4", dtype=DTYPES[dtype])
    batch.q = [(x.astype(numpy.float32) * q).astype(x.dtype) for x in batch.q]
    for part, factor in [*((x, k) for x in batch.parts["k"]), *((x, v) for x in batch.parts["v"])]:
        bits = part.scales.view(numpy.int32)
        scales = (bits & ~15).view(numpy.float32)
        larger = (scales * numpy.float32(factor)).view(numpy.int32) & ~15
        part.numbers *= larger.view(numpy.float32)[..., None].astype(float) / scales[..., None]
        part.scales = (larger | bits & 15).view(numpy.float32)
    spec = ja.AttentionSpec(
        dtype=dtype,
        head_dim=batch.q[0].shape[-1],
        gqa_ratio=batch.q[0].shape[1] // batch.parts["k"][0].scales.shape[1],
        sequences_q="varlen",
        sequences_kv="paged",
        page_size=16,
        kv_dtype="int4",
        descale_per="token",
    )
    attend = ja.prepare(spec, config=f"family=forward_split_kv blocks_per_sm=1 {config}")
    o = fetch(call(place, batch, pages(rng, batch, 16), attend=attend)).astype(numpy.float64) / v
    for part in batch.parts["v"]:
        part.numbers /= v
    batch.check(o)


def test_products_that_fp16_cannot_hold(rng, place, fetch):
    """With wgmma, numbers times scales of tokens become fp16: infinity, which other requests do not see."""
    if not ja.devices()[0].arch.startswith("sm_90"):
        pytest.skip("by wgmma")
    batch = cached(rng, [40, 40], [60, 50], "int8", dtype=DTYPES["fp16"])
    arrays = pages(rng, batch, 16)
    arrays["k_descale"][arrays["page_table"][0, 0], 3] = 1e5
    layout = dict(sequences_q="varlen", sequences_kv="paged", page_size=16)
    spec = ja.AttentionSpec(dtype="fp16", head_dim=64, gqa_ratio=4, kv_dtype="int8", descale_per="token", **layout)
    by_wgmma, by_mma = (
        fetch(call(place, batch, arrays, attend=ja.prepare(spec, config=f"family={family}")))
        for family in ("forward_split_wgmma stages_stored=2", "forward_split_kv")
    )
    assert numpy.isnan(by_wgmma[:40]).any() and numpy.isfinite(by_wgmma[40:]).all()
    assert numpy.isfinite(by_mma).all()
