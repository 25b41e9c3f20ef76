"""Queries, keys and values of fp8: against double precision over the numbers that codes and scales stand for."""

import itertools

import jit_attention as ja
import ml_dtypes
import numpy
import pytest
from exact_attention import exact_attention
from fp8_caches import FP8
from request_batches import BF16, boundaries, causal, int32
from seeded import paired, some

SHARE = 9  # kernels take long to compile

OUTPUTS = {"bf16": BF16, "fp16": numpy.dtype(numpy.float16), "fp32": numpy.dtype(numpy.float32)}


def codes(rng, shape, scale, name="fp8_e4m3"):
    """Elements with a standard deviation of 1 once they are multiplied by `scale`, one for each head, or request too."""
    return (rng.standard_normal(shape) / numpy.asarray(scale)[..., None]).astype(FP8[name])


def wide(array, scale):
    return array.astype(numpy.float64) * numpy.asarray(scale, numpy.float64)[..., None]


def check(o, lse, q, k, v, **options):
    """Twice the error of the same with P of e4m3, which is 2^8 times as large as it, and the rounding of an output."""
    exact = exact_attention(q, k, v, p_dtype=FP8["fp8_e4m3"], **options)
    error = numpy.abs(o - exact.o).max(initial=0)
    assert error <= 2 * exact.plain_error + 2.0**-8 * numpy.abs(exact.o).max(initial=0), error
    empty = numpy.isneginf(exact.lse)
    assert numpy.array_equal(numpy.isneginf(lse), empty)
    finite = numpy.where(empty, 0, exact.lse)
    assert numpy.abs(numpy.where(empty, 0, lse) - finite).max(initial=0) <= 2e-3 * max(
        1, numpy.abs(finite).max(initial=0)
    )


def test_types_scales_and_results(rng, emulated):
    if not emulated:
        pytest.skip("NumPy's fp8 cannot be carried to a GPU")
    for i, (out_dtype, kind) in enumerate(OUTPUTS.items()):
        name = list(FP8)[i % 2]
        shapes = [(1,), (2,), (3, 2)]
        scales = {
            one: rng.uniform(0.02, 0.1, shapes[(i + n) % 3]).astype(numpy.float32) for n, one in enumerate("qkv")
        }
        whole = {one: numpy.broadcast_to(scale, (3, 2)) for one, scale in scales.items()}
        of_queries = numpy.repeat(whole["q"], 3, 1)[:, None]
        q = codes(rng, (3, 20, 6, 32), of_queries, name)
        k, v = (codes(rng, (3, 70, 2, 32), whole[one][:, None], name) for one in "kv")
        given = {f"{one}_descale": scale for one, scale in scales.items()}
        options = {} if out_dtype == "bf16" else {"out_dtype": out_dtype}
        o, lse = ja.attention(q, k, v, mask=ja.mask.causal(), return_lse=True, **given, **options)
        assert o.dtype == kind
        numbers = wide(q, of_queries), wide(k, whole["k"][:, None]), wide(v, whole["v"][:, None])
        check(o.astype(numpy.float64), lse, *numbers, keep=lambda b, h, i, j: j <= i + 50)
        out = numpy.empty_like(o)
        assert ja.attention(q, k, v, mask=ja.mask.causal(), out=out, **given) is out
        assert numpy.array_equal(out.view("u1"), o.view("u1"))


def sequences(rng, lengths_q, lengths_k, scales):
    """Requests one by one: codes of q, k and v, and their scales."""
    q = [codes(rng, (n, 4, 64), numpy.repeat(scales["q"], 2, 1)[b]) for b, n in enumerate(lengths_q)]
    k, v = ([codes(rng, (n, 2, 64), scales[one][b]) for b, n in enumerate(lengths_k)] for one in "kv")
    return q, k, v


def check_requests(o, lse, q, k, v, scales, **options):
    begin = 0
    for b, own in enumerate(q):
        end = begin + len(own)
        numbers = (
            wide(own, numpy.repeat(scales["q"], 2, 1)[b]),
            wide(k[b], scales["k"][b]),
            wide(v[b], scales["v"][b]),
        )
        if "keep" in options:
            keep = lambda _, h, i, j, b=b, own=own: causal(b, h, i, j, len(own), len(k[b]))  # noqa: E731
        check(o[None, begin:end], lse[None, :, begin:end], *(x[None] for x in numbers), keep=keep)
        begin = end


CONFIGS = {
    "forward_wgmma": "family=forward_wgmma tile_q=64 tile_kv=64 stages_q=2 stages_v=2 output=separate converter_warps=2",
    "forward_split_kv": "family=forward_split_kv row_warps=1 key_warps=2 tile_kv=64 stages=2",
}


def prepared(family, **fields):
    if family == "forward_wgmma" and ja.devices()[0].arch != "sm_90a":
        pytest.skip("forward_wgmma needs sm_90a")
    spec = ja.AttentionSpec(dtype="fp8_e4m3", head_dim=64, gqa_ratio=2, sequences_q="varlen", **fields)
    return ja.prepare(spec, config=CONFIGS.get(family))


@pytest.mark.parametrize("page_size, family", some(itertools.product([None, 16, 64], CONFIGS), 3))
def test_varlen_and_paged(rng, place, fetch, page_size, family):
    """Whole tiles of pages, pieces of tiles, and none."""
    kind = {"sequences_kv": "varlen"} if page_size is None else {"sequences_kv": "paged", "page_size": page_size}
    attention = prepared(family, mask=ja.mask.causal(), **kind)
    lengths_q, lengths_k = [5, 0, 70, 1], [40, 7, 130, 0]
    scales = {one: rng.uniform(0.02, 0.1, (4, 2)).astype(numpy.float32) for one in "qkv"}
    q, k, v = sequences(rng, lengths_q, lengths_k, scales)
    given = {f"{one}_descale": place(scale) for one, scale in scales.items()}
    if page_size is None:
        keys = [numpy.concatenate(x) for x in (k, v)]
        given["cu_seqlens_k"] = place(boundaries(lengths_k))
    else:
        most = -(-max(lengths_k) // page_size)
        table = int32(rng.permutation(4 * most + 2)[: 4 * most].reshape(4, most))
        keys = [numpy.full((4 * most + 2, page_size, 2, 64), 0x7F, numpy.uint8).view(FP8["fp8_e4m3"]) for _ in "kv"]
        for pool, rows in zip(keys, (k, v)):
            for b, own in enumerate(rows):
                for i, row in enumerate(own):
                    pool[table[b, i // page_size], i % page_size] = row
        given |= {"page_table": place(table), "seqused_k": place(int32(lengths_k))}
    arrays = [place(x.view(numpy.uint8)) for x in (numpy.concatenate(q), *keys)]
    o, lse = attention(*arrays, cu_seqlens_q=place(boundaries(lengths_q)), return_lse=True, **given)
    check_requests(fetch(o), fetch(lse), q, k, v, scales, keep=True)


def test_lengths_in_use_and_sinks(rng, place, fetch):
    """Rows of a cache that has room for more, of which some requests see none, by whichever GPU; results in fp32."""
    scale = drawn(rng, 3, 2)
    q, k, v = (codes(rng, (3, n, 2, 40), scale[:, None]) for n in (2, 50, 50))
    used, sinks = [50, 0, 17], rng.standard_normal(2).astype(numpy.float32)
    o, lse = ja.attention(
        *(place(x.view(numpy.uint8)) for x in (q, k, v)),
        dtype="fp8_e4m3",
        out_dtype="fp32",
        seqused_k=place(int32(used)),
        sinks=place(sinks),
        return_lse=True,
        **{f"{one}_descale": place(scale) for one in "qkv"},
    )
    o, lse = fetch(o), fetch(lse)
    for b, count in enumerate(used):
        numbers = (wide(x[b : b + 1, : (2 if x is q else count)], scale[b : b + 1, None]) for x in (q, k, v))
        exact = exact_attention(*numbers)
        # One more key without a value.
        whole = numpy.logaddexp(exact.lse, sinks[:, None])
        share = numpy.where(numpy.isneginf(exact.lse), 0, numpy.exp(exact.lse - whole))[0].T[..., None]
        assert numpy.abs(o[b] - exact.o[0] * share).max() <= 2e-2 and numpy.abs(lse[b] - whole[0]).max() <= 2e-3


def drawn(rng, *shape):
    return rng.uniform(0.02, 0.1, shape).astype(numpy.float32)


@pytest.mark.parametrize("layout", ["BSHD", "BHSD"])
def test_scales_of_tokens(rng, place, fetch, layout):
    """One for each row of q and k; values keep one for each head."""
    a, b, c = drawn(rng, 2, 20, 4), drawn(rng, 2, 70, 2), drawn(rng, 2, 2)
    q, k, v = codes(rng, (2, 20, 4, 64), a), codes(rng, (2, 70, 2, 64), b), codes(rng, (2, 70, 2, 64), c[:, None])
    turned = (lambda x: numpy.ascontiguousarray(x.swapaxes(1, 2))) if layout == "BHSD" else lambda x: x
    o, lse = ja.attention(
        *(place(turned(x).view(numpy.uint8)) for x in (q, k, v)),
        dtype="fp8_e4m3",
        layout=layout,
        q_descale=place(turned(a)),
        k_descale=place(turned(b)),
        v_descale=place(c),
        return_lse=True,
    )
    check(turned(fetch(o)), fetch(lse), wide(q, a), wide(k, b), wide(v, c[:, None]))


def test_scales_of_blocks(rng, place, fetch):
    """One for each 64 rows of a head."""
    a, b, c = drawn(rng, 2, 2, 4), drawn(rng, 2, 3, 2), drawn(rng, 2, 2)
    rows = [x.repeat(64, 1)[:, :n] for x, n in ((a, 70), (b, 150))]
    q, k, v = codes(rng, (2, 70, 4, 64), rows[0]), codes(rng, (2, 150, 2, 64), rows[1]), codes(rng, (2, 150, 2, 64), c[:, None])
    o, lse = ja.attention(
        *(place(x.view(numpy.uint8)) for x in (q, k, v)),
        dtype="fp8_e4m3",
        q_descale=place(a),
        k_descale=place(b),
        v_descale=place(c),
        return_lse=True,
    )
    check(fetch(o), fetch(lse), wide(q, rows[0]), wide(k, rows[1]), wide(v, c[:, None]))


def rows_of(scales, kind, count):
    """The scale of each of `count` rows, of scales of rows or of blocks of them."""
    return scales.repeat(64, -2)[..., :count, :] if kind == "block" else scales


def scale_count(rows, kind):
    return -(-rows // 64) if kind == "block" else rows


@pytest.mark.parametrize("family, kind", paired(CONFIGS, ["token", "block"]))
def test_scales_of_varlen_rows(rng, place, fetch, family, kind):
    """Blocks are counted from the first row of all: sequences share them."""
    lengths_q, lengths_k = [5, 0, 70, 1], [40, 7, 130, 0]
    total_q, total_k = sum(lengths_q), sum(lengths_k)
    given = drawn(rng, scale_count(total_q, kind), 4), drawn(rng, scale_count(total_k, kind), 2)
    a, b, c = rows_of(given[0], kind, total_q), rows_of(given[1], kind, total_k), drawn(rng, 1)
    q, k, v = (codes(rng, (*x.shape, 64), x) for x in (a, b, numpy.broadcast_to(c, b.shape)))
    bounds = boundaries(lengths_q), boundaries(lengths_k)
    attention = prepared(family, sequences_kv="varlen", descale_per=kind)
    o, lse = attention(
        *(place(x.view(numpy.uint8)) for x in (q, k, v)),
        cu_seqlens_q=place(bounds[0]),
        cu_seqlens_k=place(bounds[1]),
        q_descale=place(given[0]),
        k_descale=place(given[1]),
        v_descale=place(c),
        return_lse=True,
    )
    o, lse = fetch(o), fetch(lse)
    for i in range(4):
        rows, keys = (slice(x[i], x[i + 1]) for x in bounds)
        numbers = wide(q[rows], a[rows]), wide(k[keys], b[keys]), wide(v[keys], numpy.broadcast_to(c, b[keys].shape))
        check(o[None, rows], lse[None, :, rows], *(x[None] for x in numbers))


@pytest.mark.parametrize("family, kind", paired([*CONFIGS, None], ["token", "block"]))
def test_scales_of_paged_rows(rng, place, fetch, family, kind):
    """Pages of two blocks, the second of which is partial, and padding before keys; no other page is read."""
    page_size, lengths_q, lengths_k = 96, [5, 70, 1], [40, 200, 3]
    pads = [7, 70, 0] if family == "forward_split_kv" else [0, 0, 0]  # pages by TMA begin with a key
    a, c = drawn(rng, scale_count(sum(lengths_q), kind), 4), drawn(rng, 1)
    table = int32(rng.permutation(11)[:9].reshape(3, 3))
    of_pages = numpy.full((11, scale_count(page_size, kind), 2), numpy.nan, numpy.float32)
    pools = [numpy.full((11, page_size, 2, 64), 0x7F, numpy.uint8).view(FP8["fp8_e4m3"]) for _ in "kv"]
    k, v = [], []
    for i in range(3):
        end = pads[i] + lengths_k[i]
        used = table[i, : -(-end // page_size)]
        of_pages[used] = drawn(rng, *of_pages[used].shape)
        scales = numpy.concatenate([rows_of(of_pages[page], kind, page_size) for page in used])[pads[i] : end]
        k.append(codes(rng, (lengths_k[i], 2, 64), scales))
        v.append(codes(rng, (lengths_k[i], 2, 64), numpy.broadcast_to(c, scales.shape)))
        for pool, rows in zip(pools, (k[i], v[i])):
            for j, row in enumerate(rows, pads[i]):
                pool[used[j // page_size], j % page_size] = row
        k[i] = wide(k[i], scales)
        v[i] = wide(v[i], numpy.broadcast_to(c, scales.shape))
    of_queries = rows_of(a, kind, sum(lengths_q))
    q = codes(rng, (sum(lengths_q), 4, 64), of_queries)
    bounds = boundaries(lengths_q)
    attention = prepared(family, sequences_kv="paged", page_size=page_size, descale_per=kind, mask=ja.mask.causal())
    o, lse = attention(
        *(place(x.view(numpy.uint8)) for x in (q, *pools)),
        cu_seqlens_q=place(bounds),
        page_table=place(table),
        seqused_k=place(int32([x + y for x, y in zip(lengths_k, pads)])),
        cache_leftpad=place(int32(pads)) if any(pads) else None,
        q_descale=place(a),
        k_descale=place(of_pages),
        v_descale=place(c),
        return_lse=True,
    )
    o, lse = fetch(o), fetch(lse)
    for i in range(3):
        own = slice(bounds[i], bounds[i + 1])
        keep = lambda _, h, x, j, i=i: causal(0, h, x, j, lengths_q[i], lengths_k[i])  # noqa: E731
        check(o[None, own], lse[None, :, own], wide(q[own], of_queries[own])[None], k[i][None], v[i][None], keep=keep)


@pytest.mark.parametrize("family", some(CONFIGS))
def test_scales_of_blocks_behind_padding(rng, place, fetch, family):
    """With dense keys blocks are counted from the first row, also where keys begin behind it."""
    a, b, c = drawn(rng, 2, 2, 4), drawn(rng, 2, 3, 2), drawn(rng, 1)
    rows = [x.repeat(64, 1)[:, :n] for x, n in ((a, 70), (b, 190))]
    q, k = codes(rng, (2, 70, 4, 64), rows[0]), codes(rng, (2, 190, 2, 64), rows[1])
    v = codes(rng, (2, 190, 2, 64), numpy.broadcast_to(c, rows[1].shape))
    if family == "forward_wgmma" and ja.devices()[0].arch != "sm_90a":
        pytest.skip("forward_wgmma needs sm_90a")
    spec = ja.AttentionSpec(dtype="fp8_e4m3", head_dim=64, gqa_ratio=2, sinks=True, descale_per="block")
    pads, sinks = [37, 0], numpy.full(4, -numpy.inf, numpy.float32)
    o, lse = ja.prepare(spec, config=CONFIGS[family])(
        *(place(x.view(numpy.uint8)) for x in (q, k, v)),
        sinks=place(sinks),
        cache_leftpad=place(int32(pads)),
        q_descale=place(a),
        k_descale=place(b),
        v_descale=place(c),
        return_lse=True,
    )
    o, lse = fetch(o), fetch(lse)
    for i, pad in enumerate(pads):
        numbers = wide(q, rows[0]), wide(k, rows[1])[:, pad:], wide(v, numpy.broadcast_to(c, rows[1].shape))[:, pad:]
        check(o[i : i + 1], lse[i : i + 1], *(x[i : i + 1] for x in numbers))


def test_kinds_of_scales_by_their_shapes(rng, place, fetch):
    """For varlen rows and pages the shape tells the granularity of scales, unless there are as many requests; then the
    argument does."""
    lengths = [30, 50, 60]  # as many as blocks
    drawn = [place(rng.standard_normal((140, 2, 64)).astype(numpy.float32)) for _ in "qkv"]
    assert "descale_per" not in ja.quantize_qkv(*drawn).scales
    z = ja.quantize_qkv(*drawn, scales="block")
    assert z.descale_per == z.scales["descale_per"] == "block" and fetch(z.k_descale).shape == (3, 2)
    bounds = place(boundaries(lengths))
    by_name = ja.attention(z.q, z.k, z.v, cu_seqlens_q=bounds, cu_seqlens_k=bounds, out_dtype="fp32", **z.scales)
    scales = {name: value for name, value in z.scales.items() if name != "descale_per"}
    bounds = place(boundaries([30, 50, 50, 10]))
    by_shape, named = (
        fetch(ja.attention(z.q, z.k, z.v, cu_seqlens_q=bounds, cu_seqlens_k=bounds, out_dtype="fp32", **given))
        for given in (scales, z.scales)
    )
    assert numpy.array_equal(by_shape, named) and not numpy.array_equal(fetch(by_name), named)


@pytest.mark.parametrize("family", [*CONFIGS, None])
def test_what_a_quantizer_takes_away_of_varlen_sequences(rng, place, fetch, family):
    """Scales of columns, a mean of values and what LSE has lost, beside sinks, which have lost nothing."""
    if family == "forward_wgmma" and ja.devices()[0].arch != "sm_90a":
        pytest.skip("forward_wgmma needs sm_90a")
    tuning = {} if family is None else {"config": CONFIGS[family]}
    lengths_q, lengths_k = [5, 0, 70, 1], [40, 7, 130, 0]
    q, k, v = (rng.standard_normal((sum(n), heads, 64)) for n, heads in ((lengths_q, 4), (lengths_k, 2), (lengths_k, 2)))
    k, v = (x + 4 * rng.standard_normal((1, 2, 64)) for x in (k, v))
    bounds = boundaries(lengths_q), boundaries(lengths_k)
    sinks = rng.uniform(-2, 4, 4).astype(numpy.float32)
    rows = [place(x.astype(numpy.float32)) for x in (q, k, v)]
    for options in (dict(scales="head", value_scales="channel"), dict(scales="token", rotation_seed=1)):
        z = ja.quantize_qkv(*rows, center_keys=True, center_values=True, return_lse_shift=True, **options)
        spec = ja.AttentionSpec(
            dtype="fp8_e4m3",
            head_dim=64,
            gqa_ratio=2,
            sequences_q="varlen",
            sequences_kv="varlen",
            sinks=True,
            mask=ja.mask.causal(),
            descale_per=z.descale_per,
            v_descale_per=options.get("value_scales", "head"),
            v_mean=True,
            lse_shift=True,
        )
        o, lse = ja.prepare(spec, **tuning)(
            z.q,
            z.k,
            z.v,
            cu_seqlens_q=place(bounds[0]),
            cu_seqlens_k=place(bounds[1]),
            sinks=place(sinks),
            return_lse=True,
            **{name: value for name, value in z.scales.items() if name != "descale_per"},
        )
        o, lse = fetch(o), fetch(lse)
        for i in range(4):
            own, keys = (slice(x[i], x[i + 1]) for x in bounds)
            keep = lambda b, h, a, j, i=i: causal(b, h, a, j, lengths_q[i], lengths_k[i])  # noqa: E731
            exact = exact_attention(q[None, own], k[None, keys], v[None, keys], keep=keep)
            with_sink = numpy.logaddexp(exact.lse, sinks[:, None])
            share = numpy.exp(exact.lse - with_sink)[0].T[..., None]
            assert numpy.abs(o[own] - exact.o[0] * share).max(initial=0) < 0.6
            assert numpy.sqrt(((o[own] - exact.o[0] * share) ** 2).mean()) < 0.06 if lengths_q[i] > 1 else True
            assert numpy.abs(lse[:, own] - with_sink[0]).max(initial=0) < 0.25
            assert (o[own][numpy.isneginf(exact.lse[0]).T] == 0).all()


def test_heads_before_rows_and_a_prepared_kernel(rng, place, fetch):
    scale = numpy.full((2, 2), 0.05, numpy.float32)
    q, k, v = (codes(rng, (2, n, 2, 64), scale[:, None]) for n in (9, 33, 33))
    spec = ja.AttentionSpec(dtype="float8_e4m3fn", out_dtype="fp16", head_dim=64)
    attention = ja.prepare(spec)
    arrays = [place(numpy.ascontiguousarray(x.transpose(0, 2, 1, 3)).view(numpy.uint8)) for x in (q, k, v)]
    given = {f"{one}_descale": place(scale) for one in "qkv"}
    o, lse = attention(*arrays, layout="BHSD", return_lse=True, **given)
    numbers = [wide(x, scale[:, None]) for x in (q, k, v)]
    check(fetch(o).transpose(0, 2, 1, 3), fetch(lse), *numbers)
    family = "forward_wgmma" if ja.devices()[0].arch == "sm_90a" else "forward_mma_sync"
    assert family in str(attention.kernel().config)


@pytest.mark.parametrize("head_dim, backwards", [(40, False), (64, True)])
def test_rows_that_tma_cannot_read(rng, place, fetch, head_dim, backwards):
    """Rows of 40 bytes, or keys that run backwards through memory."""
    scale = drawn(rng, 2, 2)
    q, k, v = (codes(rng, (2, n, 2, head_dim), scale[:, None]) for n in (9, 33, 33))
    given = {f"{one}_descale": place(scale) for one in "qkv"}
    arrays = [x.view(numpy.uint8) for x in (q, k, v)]
    if backwards:
        arrays[1:] = [x[:, ::-1].copy()[:, ::-1] for x in arrays[1:]]
    if backwards and not isinstance(place(scale), numpy.ndarray):
        pytest.skip("PyTorch has no negative strides")
    o, lse = ja.attention(*(place(x) for x in arrays), dtype="fp8_e4m3", return_lse=True, **given)
    check(fetch(o), fetch(lse), *(wide(x, scale[:, None]) for x in (q, k, v)))


@pytest.mark.parametrize("interpolated_exponentials", [False, True])
def test_interpolated_exponentials(rng, place, fetch, interpolated_exponentials):
    """With and without LSE, which interpolated probabilities are not for."""
    scale = drawn(rng, 2, 2)
    arrays = [codes(rng, (2, n, 2, 64), scale[:, None]) for n in (70, 133, 133)]
    scales = {f"{one}_descale": place(scale) for one in "qkv"}
    options = dict(dtype="fp8_e4m3", out_dtype="fp32", interpolated_exponentials=interpolated_exponentials)
    places = [place(x.view(numpy.uint8)) for x in arrays]
    alone = ja.attention(*places, **scales, **options)
    o, lse = ja.attention(*places, return_lse=True, **scales, **options)
    for each in (alone, o):
        check(fetch(each), fetch(lse), *(wide(x, scale[:, None]) for x in arrays))
    prepared = ja.prepare(ja.AttentionSpec(head_dim=64, **options))
    assert ("interpolated_exponentials=true" in repr(prepared)) == interpolated_exponentials
    assert ("_interpolated_true" in prepared.kernel().name) == interpolated_exponentials
    assert numpy.array_equal(fetch(prepared(*places, **scales)), fetch(alone))


def follows_maxima(q, k, v, tile=160):
    """o with P of e4m3 relative to the running maximum, from the last tile of keys to the first, as FlashAttention-3."""
    scores = q @ k.T / numpy.sqrt(q.shape[1])
    largest, total, o = numpy.full(len(q), -numpy.inf), numpy.zeros(len(q)), numpy.zeros((len(q), v.shape[1]))
    for begin in range(0, len(k), tile)[::-1]:
        part = scores[:, begin : begin + tile]
        moved = numpy.maximum(largest, part.max(1))
        p, correction = numpy.exp(part - moved[:, None]), numpy.exp(largest - moved)
        rounded = (256 * p).astype(FP8["fp8_e4m3"]).astype(numpy.float64) / 256
        o = o * correction[:, None] + rounded @ v[begin : begin + tile]
        total, largest = total * correction + p.sum(1), moved
    return o / total[:, None]


def test_weights_beside_a_key_that_comes_to_dominate(rng, emulated):
    """They are as exact as with maxima that always move, which have no headroom."""
    if not emulated or ja.devices()[0].arch != "sm_90a":
        pytest.skip("maxima of forward_wgmma have headroom")
    q, k, v = (rng.standard_normal((1, n, 1, 64)) for n in (128, 1536, 1536))
    q[..., 0], k[..., 0], k[0, 700, 0, 0] = 4, 0, 20  # keys are visited from the last to the first
    v[0, 700] = 0  # beside a large one, tensor cores truncate what the other keys add
    q, k, v = (x.astype(FP8["fp8_e4m3"]) for x in (q, k, v))
    config = "family=forward_wgmma tile_q=64 tile_kv=128 output=separate converter_warps=2 rescale=lazy"
    attention = ja.prepare(ja.AttentionSpec(dtype="fp8_e4m3", head_dim=64), config=config)
    o = attention(q, k, v).astype(numpy.float64)[0, :, 0]
    numbers = [x[0, :, 0].astype(numpy.float64) for x in (q, k, v)]
    exact = exact_attention(*(x[None, :, None] for x in numbers)).o[0, :, 0]
    error, least = (numpy.square(x - exact).mean() ** 0.5 for x in (o, follows_maxima(*numbers)))
    assert error <= 1.1 * least, error / least


@pytest.mark.parametrize(
    "options, argument, words",
    [
        ({"dtype": None}, "q", "holds bytes; say with dtype"),
        ({"q_descale": (3,)}, "q_descale", "has heads = 3; it must be 2"),
        ({"kv_dtype": "fp8_e5m2"}, "kv_dtype", "must be that of q, fp8_e4m3"),
        ({"out_dtype": "fp8_e4m3"}, "out_dtype", "must be bf16 or fp16 or fp32"),
        ({"k_descale": (2, 33, 2)}, "q_descale", "is missing; give a tensor (batch, seqlen_q, heads_q)"),
        ({"k": BF16, "v": BF16}, "k", "is bf16; it must be fp8_e4m3"),
        ({"k": FP8["fp8_e5m2"]}, "k", "is fp8_e5m2; it must be fp8_e4m3, as q is"),
        ({"v": FP8["fp8_e5m2"]}, "v", "is fp8_e5m2; it must be fp8_e4m3"),
        ({"q": BF16}, "dtype", "is fp8_e4m3, but q holds bf16"),
        ({"q": BF16, "dtype": None, "kv_dtype": "fp8_e4m3", "q_descale": (1,)}, "q_descale", "dtype of fp8"),
        ({"split_keys": 64}, "split_keys", "must be 0 where q is of fp8"),
        ({"dropout_p": 0.5}, "dropout", "must be false where k and v are of fp8"),
        ({"q_descale": (2, 1, 2), "k_descale": (2, 2, 2)}, "k_descale", "has blocks = 2; it must be 1"),
        ({"v_descale": (3, 2, 64)}, "v_descale", "has batch = 3; it must be 2"),
        ({"v_descale": (2, 2, 32)}, "v_descale", "has head_dim = 32; it must be 64"),
        ({"v_mean": (2, 64, 2)}, "v_mean", "has heads = 64; it must be 2"),
        ({"lse_shift": (2, 9, 2)}, "lse_shift", "has heads = 9; it must be 2"),
        ({"lse_shift": (2, 2, 9), "score": ja.score.softcap(3)}, "lse_shift", "with score softcap(3)"),
        ({"q": BF16, "k": BF16, "v": BF16, "dtype": None, "v_mean": (2, 2, 64)}, "v_mean", "q is not of fp8"),
        ({"q": BF16, "k": BF16, "v": BF16, "dtype": None, "interpolated_exponentials": True}, "interpolated_exponentials", "is for q, k"),
        ({"q": BF16, "dtype": None, "kv_dtype": "fp8_e4m3", "interpolated_exponentials": True}, "interpolated_exponentials", "16 bits"),
    ],
)
def test_refusals(place, options, argument, words):
    options = {"dtype": "fp8_e4m3"} | options
    q, k, v = (
        place(numpy.zeros((2, rows, 2, 64), options.pop(one, numpy.uint8)))
        for one, rows in zip("qkv", (9, 33, 33))
    )
    kinds = {"seqused_k": numpy.int32}
    given = {
        name: place(numpy.ones(value, kinds.get(name, numpy.float32))) if isinstance(value, tuple) else value
        for name, value in options.items()
    }
    if "dropout_p" in given:
        given["rng_state"] = place(numpy.array([1, 2], numpy.int64))
    with pytest.raises(ja.Error) as refused:
        ja.attention(q, k, v, **given)
    assert argument in refused.value.field and words in str(refused.value)


def test_specs():
    assert not ja.refusals("sm_90a", dtype="fp8_e5m2", out_dtype="fp32")
    assert not ja.refusals("sm_80", dtype="fp8_e4m3", alignment=2) and not ja.refusals("sm_120", dtype="fp8_e5m2")
    assert not ja.refusals("sm_89", dtype="fp8_e4m3", sequences_q="varlen", sinks=True, alignment=8)
    (refusal,) = ja.refusals("sm_89", dtype="fp8_e4m3", split_keys=64)
    assert (refusal.field, refusal.nearest) == ("split_keys", "0")
    (refusal,) = ja.refusals("sm_80", dtype="bf16", out_dtype="fp32")
    assert (refusal.field, refusal.nearest) == ("out_dtype", "bf16")
    assert not ja.refusals("sm_80", dtype="fp8_e5m2", interpolated_exponentials=True)
    (refusal,) = ja.refusals("sm_90a", dtype="bf16", interpolated_exponentials=True)
    assert (refusal.field, refusal.nearest) == ("interpolated_exponentials", "false")
    assert ml_dtypes.finfo(FP8["fp8_e5m2"]).max == 57344
