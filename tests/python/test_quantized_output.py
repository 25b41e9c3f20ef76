"""o of e4m3 and int8 with a scale for each row, found where it is written or given, in every kernel that writes it."""

import jit_attention as ja
import ml_dtypes
import numpy
import pytest
from exact_attention import exact_attention, random_qkv
from request_batches import boundaries, call, paged, requests

SHARE = 12  # kernels take long to compile

BF16 = numpy.dtype(ml_dtypes.bfloat16)
E4M3 = numpy.dtype(ml_dtypes.float8_e4m3fn)
TYPES = {"fp8_e4m3": (E4M3, 448), "int8": (numpy.dtype(numpy.int8), 127)}
#: How far neighbors lie apart, of the largest number and of a number.
STEPS = {"fp8_e4m3": (2**-9 / 448, 2**-3), "int8": (1 / 127, 0)}

CONFIGS = {
    "forward_mma_sync": (130, 64, "forward_mma_sync"),
    "chosen, two warps for the columns": (20, 320, None),
    "forward_wgmma": (130, 64, "forward_wgmma output=direct"),
    "forward_wgmma by TMA": (130, 64, "forward_wgmma output=separate"),
    "forward_wgmma by TMA, 80 columns": (130, 80, "forward_wgmma output=separate"),
    "forward_wgmma over Q": (200, 128, "forward_wgmma output=over_q"),
    "forward_wgmma, 8 columns left": (130, 72, "forward_wgmma output=direct"),
    "forward_wgmma, 256 columns": (130, 256, "forward_wgmma output=direct"),
    "forward_split_kv": (5, 72, "forward_split_kv"),
    "forward_split_kv, many columns": (5, 256, "forward_split_kv tile_kv=32 key_warps=2 stages=2 blocks_per_sm=1"),
    "forward_split_wgmma": (5, 64, "forward_split_wgmma"),
}


def skip_unless_there(config):
    if "wgmma" in (config or "") and ja.devices()[0].arch != "sm_90a":
        pytest.skip("the family is Hopper's")


def rounded(x, scale, name):
    """Elements that floats become, computed in fp32."""
    dtype, largest = TYPES[name]
    with numpy.errstate(over="ignore", invalid="ignore"):
        x = x.astype(numpy.float32) * (numpy.float32(1) / scale.astype(numpy.float32))
        if name == "fp8_e4m3":
            return numpy.clip(x, -largest, largest).astype(dtype)
        return numpy.clip(numpy.nan_to_num(numpy.rint(x), nan=0), -128, largest).astype(dtype)


def scales_of(o, name):
    """(batch, heads, rows), as LSE."""
    magnitude = numpy.fmax.reduce(numpy.abs(o.astype(numpy.float32)), axis=-1)
    magnitude = numpy.minimum(numpy.nan_to_num(magnitude, nan=0, posinf=numpy.inf), numpy.finfo(numpy.float32).max)
    scale = numpy.where(magnitude < 2.0**-100, numpy.float32(1), magnitude / numpy.float32(TYPES[name][1]))
    return scale.swapaxes(-1, -2)


def bits(array):
    return numpy.asarray(array).view(numpy.uint8)


def by_rows(scale):
    return numpy.asarray(scale).swapaxes(-1, -2)[..., None]


def close(got, scale, exact, name):
    """Errors of o itself, and of half a step at a number."""
    least, relative = STEPS[name]
    number = got.astype(numpy.float64) * by_rows(scale)
    row = numpy.abs(exact.o).max(-1, keepdims=True)
    own = 2 * exact.plain_error + exact.rounding
    allowed = own + 0.51 * (least * (row + own) + relative * numpy.abs(exact.o)) + 1e-30
    assert numpy.isfinite(number).all() and (numpy.abs(number - exact.o) <= allowed).all()
    kept = row[..., 0] > 0
    numpy.testing.assert_allclose(by_rows(scale)[..., 0][kept], (row[..., 0] / TYPES[name][1])[kept],
                                  atol=own / TYPES[name][1], rtol=1e-6)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("out_dtype", TYPES)
def test_all_kernels(rng, place, fetch, name, out_dtype):
    seqlen_q, head_dim, config = CONFIGS[name]
    skip_unless_there(config)
    found = head_dim <= 256
    seqlen_kv, ratio = seqlen_q + 70, 4 if seqlen_q == 5 else 2
    q, k, v = random_qkv(rng, batch=2, seqlen_q=seqlen_q, seqlen_kv=seqlen_kv, heads_q=4, heads_kv=4 // ratio,
                         head_dim=head_dim, dtype="bf16")
    mask = ja.mask.text(f"return q != 3 && k <= q + {seqlen_kv - seqlen_q};", name="late")  # a row without keys
    exact = exact_attention(q, k, v, keep=lambda b, h, i, j: (i != 3) & (j <= i + 70))
    spec = ja.AttentionSpec(head_dim=head_dim, gqa_ratio=ratio, mask=mask, out_dtype=out_dtype, o_descale=found)
    prepared = ja.prepare(spec, config=None if config is None else "family=" + config)
    out = numpy.full(q.shape, 0x55, numpy.uint8).view(TYPES[out_dtype][0])
    out = place(out)
    if found:
        scale = place(numpy.full((2, 4, seqlen_q), numpy.nan, numpy.float32))
        held, aux = prepared(place(q), place(k), place(v), out=out, return_aux={"o_descale": scale})
        assert held is out and aux["o_descale"] is scale
    else:
        scale = place((numpy.abs(exact.o).max(-1) / TYPES[out_dtype][1] + 1e-6).astype(numpy.float32).swapaxes(1, 2))
        prepared(place(q), place(k), place(v), out=out, o_descale=scale)
    got, scale = fetch(out), fetch(scale)
    assert not got[:, 3].any() and (not found or (scale[:, :, 3] == 1).all())
    least, relative = STEPS[out_dtype]
    if found:
        close(got, scale, exact, out_dtype)
    else:
        number = got * by_rows(scale)
        row = numpy.abs(exact.o).max(-1, keepdims=True)
        own = 2 * exact.plain_error + exact.rounding
        assert (numpy.abs(number - exact.o) <= 2 * own + 0.51 * (least * row + relative * numpy.abs(exact.o)) + 1e-5).all()


def equal_keys(rng, heads_q, heads_kv, head_dim, seqlen_q, keys):
    """A problem in which o is v, exactly: of a power of two of keys, which are 0, with equal values."""
    q, k, v = random_qkv(rng, batch=2, seqlen_q=seqlen_q, seqlen_kv=keys, heads_q=heads_q, heads_kv=heads_kv,
                         head_dim=head_dim, dtype="bf16")
    v[:] = v[:, :1]
    return q, k * 0, v


#: What configs of spans of keys have beside tile_kv.
SPANS = {"forward_split_kv": " key_warps=1", "forward_mma_sync": " tile_q=64 warps=4"}


@pytest.mark.parametrize("split_keys", [0, 64])
@pytest.mark.parametrize("splits", [1, 3, 40])
def test_bytes_are_equal_in_all_kernels(rng, place, fetch, splits, split_keys):
    """Elements equal the rounding of o in fp32, also where blocks or spans are merged."""
    out_dtype = rng.choice(list(TYPES))
    keys = 64 * splits if splits < 4 else 2048
    if splits == 3:
        keys = 256
    q, k, v = equal_keys(rng, 8, 2, 64, 5, keys)
    v[0, :, 0] = 0
    v[1, :, 0, ::7] = [2.0**-130, numpy.inf, -numpy.inf][rng.integers(3)]
    o = numpy.repeat(numpy.repeat(v[:, :1], 5, 1), 4, 2)
    scale = scales_of(o, out_dtype)
    wanted = rounded(o, by_rows(scale), out_dtype)
    configs = ["forward_split_kv blocks_per_sm=1"] + (["forward_mma_sync"] if split_keys == 0 or splits == 1 else [])
    if ja.devices()[0].arch == "sm_90a":
        configs += ["forward_split_wgmma", "forward_wgmma output=direct", "forward_wgmma output=separate"]
    for config in configs:
        if split_keys:
            config += " tile_kv=64" + SPANS.get(config.split()[0], "")
        spec = ja.AttentionSpec(head_dim=64, gqa_ratio=4, out_dtype=out_dtype, o_descale=True, split_keys=split_keys)
        got, aux = ja.prepare(spec, config=f"family={config}")(
            place(q), place(k), place(v), num_splits=splits, return_aux=("o_descale",))
        numpy.testing.assert_array_equal(numpy.asarray(fetch(aux["o_descale"]), numpy.float32), scale, config)
        numpy.testing.assert_array_equal(fetch(got), wanted.astype(numpy.float64), config)
    given = scale * 2
    got = ja.attention(place(q), place(k), place(v), out_dtype=out_dtype, o_descale=place(given), num_splits=splits,
                       split_keys=split_keys)
    numpy.testing.assert_array_equal(fetch(got), rounded(o, by_rows(given), out_dtype).astype(numpy.float64))


@pytest.mark.parametrize("gqa_ratio", [1, 64])
def test_splits_of_many_rows(rng, place, fetch, gqa_ratio):
    """Blocks that would merge shares of all columns leave whole rows to one."""
    out_dtype = rng.choice(list(TYPES))
    q, k, v = equal_keys(rng, gqa_ratio, 1, 128, 1, 1024)
    o = numpy.repeat(v[:, :1], gqa_ratio, 2)
    scale = scales_of(o, out_dtype)
    got, aux = ja.attention(place(q), place(k), place(v), out_dtype=out_dtype, num_splits=6, return_aux=("o_descale",))
    numpy.testing.assert_array_equal(numpy.asarray(fetch(aux["o_descale"]), numpy.float32), scale)
    numpy.testing.assert_array_equal(fetch(got), rounded(o, by_rows(scale), out_dtype).astype(numpy.float64))
    given = numpy.float32([0.01]) * numpy.arange(1, gqa_ratio + 1, dtype=numpy.float32)  # of heads
    got = ja.attention(place(q), place(k), place(v), out_dtype=out_dtype, num_splits=6, o_descale=place(given))
    numpy.testing.assert_array_equal(fetch(got), rounded(o, given[:, None], out_dtype).astype(numpy.float64))


@pytest.mark.parametrize("split_keys", [0, 128])
@pytest.mark.parametrize("paging", [0, 16])
def test_requests(rng, place, fetch, paging, split_keys):
    """Ragged and paged, behind a functor, and padding rows that are left alone."""
    out_dtype = rng.choice(list(TYPES))
    lengths_q, lengths_k = [1, 40, 0, 3], [700, 40, 5, 130]
    batch = requests(rng, lengths_q, lengths_k)
    arrays = paged(rng, batch, paging) if paging else {
        "k": numpy.concatenate(batch.k), "v": numpy.concatenate(batch.v), "cu_seqlens_k": boundaries(lengths_k)}
    arrays["cu_seqlens_q"] = boundaries(lengths_q)
    q = numpy.concatenate([*batch.q, *batch.q[:1]])  # a row of nobody
    scale = numpy.full((8, len(q)), 7, numpy.float32)
    got, aux = call(place, q, arrays, mask=ja.mask.causal(), split_keys=split_keys, out_dtype=out_dtype,
                    output=ja.output.text("return 2 * value;", name="twice"), return_aux={"o_descale": place(scale)})
    scale = fetch(aux["o_descale"])
    assert (scale[:, -1] == 7).all() and not (scale[:, :-1] == 7).any()
    begin = 0
    for queries, keys, values in zip(batch.q, batch.k, batch.v, strict=True):
        end = begin + len(queries)
        late = len(keys) - len(queries)
        exact = exact_attention(queries[None], keys[None], values[None], keep=lambda b, h, i, j: j <= i + late)
        if len(queries):
            exact.o, exact.plain_error, exact.rounding = 2 * exact.o, 2 * exact.plain_error, 2 * exact.rounding
            close(fetch(got)[None, begin:end], scale[None, :, begin:end], exact, out_dtype)
        begin = end


@pytest.mark.parametrize("out_dtype", TYPES)
@pytest.mark.parametrize("config", ["forward_mma_sync", "forward_wgmma output=direct", "forward_split_kv"])
def test_numbers_that_are_none(rng, place, fetch, config, out_dtype):
    """NaN stays in its element and counts for no scale; infinities become the largest element."""
    skip_unless_there(config)
    q, k, v = random_qkv(rng, batch=1, seqlen_q=20, seqlen_kv=1, heads_q=2, heads_kv=1, head_dim=64, dtype="bf16")
    k[:] = 0  # o is v
    v[..., 3], v[..., 8] = numpy.nan, 100
    spec = ja.AttentionSpec(head_dim=64, gqa_ratio=2, out_dtype=out_dtype, o_descale=True)
    prepared = ja.prepare(spec, config=f"family={config}")
    got, aux = prepared(place(q), place(k), place(v), return_aux=("o_descale",))
    o = numpy.repeat(numpy.repeat(v, 20, 1), 2, 2)
    largest = numpy.nanmax(numpy.abs(o.astype(numpy.float32)))
    assert (fetch(aux["o_descale"]) == numpy.float32(largest) / numpy.float32(TYPES[out_dtype][1])).all()
    nan = numpy.isnan(fetch(got)) if out_dtype == "fp8_e4m3" else fetch(got) == 0
    assert nan[..., 3].all() and (out_dtype == "int8" or nan.sum() == 40)
    v[..., 3], v[..., 8] = numpy.inf, -numpy.inf
    got = fetch(prepared(place(q), place(k), place(v), return_aux=("o_descale",))[0])
    most = TYPES[out_dtype][1]
    assert (got[..., 3] == most).all() and (got[..., 8] == (-128 if out_dtype == "int8" else -most)).all()
    v[..., 3], v[..., 8] = 1, -1
    small = place(numpy.full((1, 2, 1), 1e-4, numpy.float32))
    got = fetch(ja.attention(place(q), place(k), place(v), out_dtype=out_dtype, o_descale=small))
    assert (got[..., 3] == most).all() and (got[..., 8] == (-128 if out_dtype == "int8" else -most)).all()


@pytest.mark.parametrize("seqlen_q, head_dim", [(150, 72), (150, 64), (12, 72), (12, 64)])
def test_padding_rows(rng, place, fetch, seqlen_q, head_dim):
    """With zero_padding they have o = 0 and scale 1; without, nothing is written."""
    q, k, v = random_qkv(rng, batch=2, seqlen_q=seqlen_q, seqlen_kv=40, heads_q=2, heads_kv=1, head_dim=head_dim, dtype="bf16")
    for padding in (False, True):
        out = place(numpy.full(q.shape, 55, numpy.int8))
        scale = place(numpy.full((2, 2, seqlen_q), 7, numpy.float32))
        ja.attention(place(q), place(k), place(v), out=out, out_dtype="int8", return_aux={"o_descale": scale},
                     seqused_q=place(numpy.int32([seqlen_q, 7])), zero_padding=padding)
        assert (fetch(out)[1, 7:] == (0 if padding else 55)).all()
        assert (fetch(scale)[1, :, 7:] == (1 if padding else 7)).all() and not (fetch(scale)[1, :, :7] == 7).any()


def test_a_scale_that_many_rows_share(rng, place, fetch):
    """It is read, so that its rows may be one in memory."""
    q, k, v = (place(one) for one in random_qkv(rng, batch=1, seqlen_q=33, seqlen_kv=50, heads_q=2, heads_kv=1, head_dim=64,
                                                dtype="bf16"))
    each = place(numpy.float32([0.02, 0.03]).reshape(1, 2, 1))
    rows = numpy.broadcast_to(each, (1, 2, 33)) if isinstance(each, numpy.ndarray) else each.expand(1, 2, 33)
    one, all_rows = (ja.attention(q, k, v, out_dtype="int8", o_descale=scale) for scale in (each, rows))
    assert (fetch(one) == fetch(all_rows)).all()


@pytest.mark.parametrize("alignment, head_dim_v", [(8, 64), (4, 72), (2, 8), (16, 24)])
def test_alignment(rng, place, fetch, alignment, head_dim_v):
    """Rows of o lie as far apart as they may, and nothing is written between them."""
    q, k, v = random_qkv(rng, batch=1, seqlen_q=33, seqlen_kv=50, heads_q=3, heads_kv=3, head_dim=64,
                         head_dim_v=head_dim_v, dtype="bf16")
    out = numpy.full((1, 33, 3, head_dim_v + alignment), 55, numpy.int8)
    if alignment == 2:
        q = numpy.ascontiguousarray(numpy.pad(q, ((0, 0),) * 3 + ((0, 1),)))[..., :64]
    held = place(out)
    exact = exact_attention(q, k, v)
    got, aux = ja.attention(place(q), place(k), place(v), out=held[..., :head_dim_v], out_dtype="int8",
                            return_aux=("o_descale",))
    close(fetch(got), fetch(aux["o_descale"]), exact, "int8")
    assert (fetch(held)[..., head_dim_v:] == 55).all()


def refused(error, text, attempt):
    with pytest.raises(error) as caught:
        attempt()
    assert text in str(caught.value)


def test_what_is_refused(rng, place):
    q, k, v = (place(one) for one in random_qkv(rng, batch=1, seqlen_q=16, seqlen_kv=16, heads_q=2, heads_kv=2,
                                                head_dim=64, dtype="bf16"))
    argument, spec = ja.InvalidArgumentError, ja.InvalidSpecError
    ones = lambda *shape, dtype=numpy.float32: place(numpy.ones(shape, dtype))
    attend = lambda **options: ja.attention(q, k, v, **{"out_dtype": "int8", **options})
    refused(argument, "o_descale: is missing", lambda: attend())
    refused(argument, "o_descale: has heads = 3; it must be 2", lambda: attend(o_descale=ones(3)))
    refused(argument, "o_descale: has 4 dimensions", lambda: attend(o_descale=ones(1, 2, 16, 1)))
    refused(argument, "o_descale: is fp16", lambda: attend(o_descale=ones(1, 2, 16, dtype=numpy.float16)))
    refused(argument, "scales are given or found", lambda: attend(o_descale=ones(2), return_aux=("o_descale",)))
    refused(argument, "was given, but the spec has no out_dtype of fp8_e4m3 or int8", lambda: ja.attention(q, k, v, o_descale=ones(2)))
    refused(argument, "out: is bf16; it must be int8", lambda: attend(out=place(numpy.zeros((1, 16, 2, 64), BF16)), o_descale=ones(2)))
    refused(argument, "was given, but the spec has no output, beside 16-bit k, v and o", lambda: attend(
        return_aux=("o_raw", "o_descale"), output=ja.output.text("return value;", name="same")))
    refused(ja.Error, "o_descale = true must be false with o of bf16", lambda: ja.attention(q, k, v, return_aux=("o_descale",)))
    refused(argument, "'uint8'", lambda: attend(out_dtype="uint8"))
    make = lambda **options: ja.AttentionSpec(**{"out_dtype": "fp8_e4m3", **options})
    refused(spec, "must be bf16, fp32, fp8_e4m3 or int8", lambda: make(out_dtype="fp8_e5m2"))
    refused(spec, "must be false with head dims of 264 and 264, one above 256", lambda: make(head_dim=264, o_descale=True))
    refused(spec, "one above 256", lambda: make(head_dim=320, head_dim_v=256, o_descale=True))
    refused(spec, "with k and v of 8 or 4 bits", lambda: make(kv_dtype="int8"))
    refused(spec, "must be bf16 or fp16 or fp32", lambda: make(dtype="fp8_e4m3"))
    refused(spec, "with values_in_keys", lambda: make(values_in_keys=True))
    refused(spec, "with q_positions and k_positions", lambda: make(q_positions=True))
    refused(spec, "with list_block", lambda: make(sequences_q="varlen", sequences_kv="varlen", list_block=16))
    for family in ("forward_wide_wgmma", "forward_split_cluster"):
        refused(ja.Error, f"{family} ", lambda family=family: ja.compile(make(), "sm_90a", f"family={family}"))
    refused(ja.Error, "output must be direct with out_dtype fp8_e4m3", lambda: ja.compile(
        make(head_dim=72), "sm_90a", "family=forward_wgmma output=over_q"))
    refused(ja.Error, "O does not fit over Q", lambda: ja.compile(make(head_dim=64), "sm_90a", "family=forward_wgmma output=over_q"))
