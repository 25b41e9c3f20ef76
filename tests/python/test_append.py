"""append() against double precision: every element of the caches and of q, and what it refuses."""

import pathlib

import jit_attention as ja
import ml_dtypes
import numpy
import pytest
from exact_attention import DTYPES

MAX_POS = 50


def exact_rows(x, *, angles=None, interleaved=False, weight=None, eps=1e-6, adds_one=False):
    """Rows (tokens, heads, head_dim) normalised, and rotated by (cos, sin), (tokens, rotary_dim / 2) each."""
    x = x.astype(numpy.float64)
    if weight is not None:
        scale = weight.astype(numpy.float64) + (1 if adds_one else 0)
        x = x / numpy.sqrt((x**2).mean(-1, keepdims=True) + eps) * scale
    if angles is None:
        return x
    cos, sin = (part[:, None, :] for part in angles)
    pairs = cos.shape[-1]
    a, b = slice(0, pairs), slice(pairs, 2 * pairs)
    if interleaved:
        a, b = slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)
    result = x.copy()
    result[..., a] = x[..., a] * cos - x[..., b] * sin
    result[..., b] = x[..., b] * cos + x[..., a] * sin
    return result


def random_table(rng, rotary_dim, dtype=numpy.float32):
    angles = rng.uniform(-3, 3, (MAX_POS, rotary_dim // 2))
    return numpy.concatenate([numpy.cos(angles), numpy.sin(angles)], -1).astype(dtype)


def angles_at(table, positions, axes=None):
    """cos and sin of tokens; `axes` is the axis of each pair, of positions (3, tokens)."""
    half = table.shape[1] // 2
    wide = table.astype(numpy.float64)
    if axes is None:
        rows = wide[positions]
        return rows[:, :half], rows[:, half:]
    at = positions[axes]  # (pairs, tokens)
    pairs = numpy.arange(half)[:, None]
    return wide[at, pairs].T, wide[at, half + pairs].T


def poisoned(shape, dtype):
    array = numpy.empty(shape, dtype)
    array.view(numpy.uint8)[...] = 0xFF
    return array


def near(actual, expected, dtype):
    tolerance = {"bfloat16": 2**-8, "float16": 2**-11}[numpy.dtype(dtype).name]
    numpy.testing.assert_allclose(actual, expected, rtol=tolerance, atol=1e-4)


class Tokens:
    """New tokens of some requests, and places for them in a paged cache."""

    def __init__(self, rng, lengths=(3, 1, 0, 5), past=(6, 0, 2, 11), page_size=4):
        self.lengths, self.past = lengths, past
        self.count = sum(lengths)
        self.page_size = page_size
        self.pages = 24 // page_size + 8
        self.cu_seqlens = numpy.concatenate([[0], numpy.cumsum(lengths)]).astype(numpy.int32)
        self.seqused = (numpy.array(past) + numpy.array(lengths)).astype(numpy.int32)
        columns = max(-(-int(used) // page_size) for used in self.seqused)
        self.table = numpy.full((len(lengths), columns), -3, numpy.int32)
        free = iter(rng.permutation(self.pages))
        for request, used in enumerate(self.seqused):
            for i in range(-(-int(used) // page_size)):
                self.table[request, i] = next(free)
        self.positions = numpy.concatenate([p + numpy.arange(n) for p, n in zip(past, lengths)]).astype(numpy.int64)
        request = numpy.repeat(numpy.arange(len(lengths)), lengths)
        self.page = self.table[request, self.positions // page_size]
        self.offset = self.positions % page_size
        self.slots = (self.page * page_size + self.offset).astype(numpy.int64)


def check_cache(fetch, cache, tokens, expected, dtype, stored=slice(None)):
    """The tokens' rows hold `expected`; all else is NaN as before."""
    actual = fetch(cache)
    page, offset = tokens.page[stored], tokens.offset[stored]
    near(actual[page, offset], expected[stored], dtype)
    rest = actual.copy()
    rest[page, offset] = numpy.nan
    assert numpy.isnan(rest).all()


def places_of(place, tokens, way):
    if way == "slots":
        return {"slot_mapping": place(tokens.slots)}
    return {
        "seqused_k": place(tokens.seqused),
        "cu_seqlens_q": place(tokens.cu_seqlens),
        "page_table": place(tokens.table),
    }


@pytest.mark.parametrize("way", ["slots", "pages"])
@pytest.mark.parametrize("page_size", [1, 3, 16])
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_stores(rng, place, fetch, way, page_size, dtype):
    tokens = Tokens(rng, page_size=page_size)
    kind = DTYPES[dtype]
    k = rng.standard_normal((tokens.count, 2, 64)).astype(kind)
    v = rng.standard_normal((tokens.count, 2, 40)).astype(kind)
    k_cache = place(poisoned((tokens.pages, page_size, 2, 64), kind))
    v_cache = place(poisoned((tokens.pages, page_size, 2, 40), kind))
    assert ja.append(place(k), place(v), k_cache, v_cache, **places_of(place, tokens, way)) is None
    check_cache(fetch, k_cache, tokens, k, kind)
    check_cache(fetch, v_cache, tokens, v, kind)


LAYOUTS = {
    "NHD": lambda pages, size, heads, d, kind: [poisoned((pages, size, heads, d), kind) for _ in "kv"],
    "HND": lambda pages, size, heads, d, kind: [
        poisoned((pages, heads, size, d), kind).transpose(0, 2, 1, 3) for _ in "kv"
    ],
    "K beside V": lambda pages, size, heads, d, kind: numpy.split(poisoned((pages, size, heads, 2 * d), kind), 2, -1),
    "K beside V, HND": lambda pages, size, heads, d, kind: numpy.split(
        poisoned((pages, heads, size, 2 * d), kind).transpose(0, 2, 1, 3), 2, -1
    ),
    "pages of two": lambda pages, size, heads, d, kind: list(
        poisoned((pages, 2, size, heads, d), kind).transpose(1, 0, 2, 3, 4)
    ),
}


@pytest.mark.parametrize("way", ["slots", "pages"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_cache_layouts(rng, place, fetch, layout, way):
    tokens, kind = Tokens(rng), DTYPES["bf16"]
    k, v = (rng.standard_normal((tokens.count, 2, 64)).astype(kind) for _ in "kv")
    caches = [place(cache) for cache in LAYOUTS[layout](tokens.pages, tokens.page_size, 2, 64, kind)]
    ja.append(place(k), place(v), *caches, **places_of(place, tokens, way))
    for cache, new in zip(caches, (k, v)):
        check_cache(fetch, cache, tokens, new, kind)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("in_two", [False, True])
@pytest.mark.parametrize("head_dim, rotary_dim", [(64, 64), (128, 32), (80, 24), (40, 20), (8, 2)])
def test_rotates(rng, place, fetch, interleaved, head_dim, rotary_dim, in_two):
    tokens, kind = Tokens(rng), DTYPES["bf16"]
    q, k, v = (rng.standard_normal((tokens.count, heads, head_dim)).astype(kind) for heads in (5, 2, 2))
    table = random_table(rng, rotary_dim)
    positions = rng.integers(0, MAX_POS, tokens.count)
    k_cache, v_cache = (place(poisoned((tokens.pages, tokens.page_size, 2, head_dim), kind)) for _ in "kv")
    q_here = place(q.copy())
    options = {"positions": place(positions), "rotary_interleaved": interleaved}
    if in_two:  # arrays that do not lie beside one another
        cos, sin = (place(part.copy()) for part in numpy.split(table, 2, -1))
        options |= {"cos": cos, "sin": sin}
    else:
        options |= {"cos_sin": place(table)}
    result = ja.append(
        place(k), place(v), k_cache, v_cache, slot_mapping=place(tokens.slots), q=q_here, **options
    )
    assert result is q_here
    expected = {"angles": angles_at(table, positions), "interleaved": interleaved}
    near(fetch(q_here), exact_rows(q, **expected), kind)
    check_cache(fetch, k_cache, tokens, exact_rows(k, **expected), kind)
    check_cache(fetch, v_cache, tokens, v, kind)


def axes_of_pairs(sections, interleaved):
    """As vLLM's MRotaryEmbedding chooses them, plain and interleaved."""
    if not interleaved:
        return numpy.repeat(numpy.arange(3), sections)
    axes = numpy.zeros(sum(sections), int)
    for axis in (1, 2):
        axes[axis : 3 * sections[axis] : 3] = axis
    return axes


@pytest.mark.parametrize("sections_interleaved", [False, True])
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("sections", [(24, 20, 20), (7, 1, 16), (0, 4, 4)])
def test_rotates_by_sections(rng, place, fetch, sections, interleaved, sections_interleaved):
    tokens, kind = Tokens(rng), DTYPES["fp16"]
    q, k, v = (rng.standard_normal((tokens.count, heads, 128)).astype(kind) for heads in (3, 1, 1))
    table = random_table(rng, 2 * sum(sections))
    positions = rng.integers(0, MAX_POS, (3, tokens.count))
    k_cache, v_cache = (place(poisoned((tokens.pages, tokens.page_size, 1, 128), kind)) for _ in "kv")
    q_out = place(poisoned(q.shape, kind))
    result = ja.append(
        place(k),
        place(v),
        k_cache,
        v_cache,
        **places_of(place, tokens, "pages"),
        q=place(q),
        q_out=q_out,
        cos_sin=place(table),
        positions=place(positions),
        rotary_interleaved=interleaved,
        mrope_sections=sections,
        mrope_interleaved=sections_interleaved,
    )
    assert result is q_out
    angles = angles_at(table, positions, axes_of_pairs(sections, sections_interleaved))
    near(fetch(q_out), exact_rows(q, angles=angles, interleaved=interleaved), kind)
    check_cache(fetch, k_cache, tokens, exact_rows(k, angles=angles, interleaved=interleaved), kind)


@pytest.mark.parametrize("adds_one", [False, True])
@pytest.mark.parametrize("weight_type", ["bf16", "fp32"])
@pytest.mark.parametrize("rotary_dim", [0, 64])
def test_normalises(rng, place, fetch, adds_one, weight_type, rotary_dim):
    tokens, kind = Tokens(rng), DTYPES["bf16"]
    weight_kind = (DTYPES | {"fp32": numpy.float32})[weight_type]
    q, k, v = (3 * rng.standard_normal((tokens.count, heads, 72)).astype(kind) for heads in (3, 2, 2))
    q_weight, k_weight = (rng.standard_normal(72).astype(weight_kind) for _ in "qk")
    options, angles = {}, None
    if rotary_dim:
        table = random_table(rng, rotary_dim, DTYPES["bf16"])
        options, angles = {"cos_sin": place(table)}, angles_at(table, tokens.positions)
    k_cache, v_cache = (place(poisoned((tokens.pages, tokens.page_size, 2, 72), kind)) for _ in "kv")
    q_here = place(q.copy())
    ja.append(
        place(k),
        place(v),
        k_cache,
        v_cache,
        **places_of(place, tokens, "pages"),
        q=q_here,
        q_norm_weight=place(q_weight),
        k_norm_weight=place(k_weight),
        norm_eps=0.01,
        norm_adds_one=adds_one,
        **options,
    )
    near(fetch(q_here), exact_rows(q, angles=angles, weight=q_weight, eps=0.01, adds_one=adds_one), kind)
    expected = exact_rows(k, angles=angles, weight=k_weight, eps=0.01, adds_one=adds_one)
    check_cache(fetch, k_cache, tokens, expected, kind)
    check_cache(fetch, v_cache, tokens, v, kind)


def test_slices_of_one_projection(rng, place, fetch):
    tokens, kind = Tokens(rng), DTYPES["bf16"]
    packed = rng.standard_normal((tokens.count, 8 + 2 + 2, 64)).astype(kind)
    here = place(packed.copy())
    table = random_table(rng, 64)
    k_cache, v_cache = (place(poisoned((tokens.pages, tokens.page_size, 2, 64), kind)) for _ in "kv")
    ja.append(
        here[:, 8:10],
        here[:, 10:],
        k_cache,
        v_cache,
        **places_of(place, tokens, "pages"),
        q=here[:, :8],
        cos_sin=place(table),
    )
    angles = angles_at(table, tokens.positions)
    near(fetch(here)[:, :8], exact_rows(packed[:, :8], angles=angles), kind)
    assert numpy.array_equal(fetch(here)[:, 8:], packed[:, 8:].astype(numpy.float64))
    check_cache(fetch, k_cache, tokens, exact_rows(packed[:, 8:10], angles=angles), kind)


@pytest.mark.parametrize("way", ["slots", "pages", "contiguous"])
def test_dense_tokens(rng, place, fetch, way):
    tokens, kind = Tokens(rng, lengths=(3, 3), past=(6, 1)), DTYPES["fp16"]
    k, v = (rng.standard_normal((2, 3, 2, 64)).astype(kind) for _ in "kv")
    table = random_table(rng, 64)
    if way == "contiguous":
        tokens.page, tokens.offset = numpy.repeat([0, 1], 3), tokens.positions
        tokens.pages, tokens.page_size = 2, 12
        places = {"seqused_k": place(tokens.seqused)}
    elif way == "pages":
        places = {"seqused_k": place(tokens.seqused), "page_table": place(tokens.table)}
    else:
        slots, positions = (numbers.reshape(2, 3) for numbers in (tokens.slots, tokens.positions))
        places = {"slot_mapping": place(slots), "positions": place(positions)}
    k_cache, v_cache = (place(poisoned((tokens.pages, tokens.page_size, 2, 64), kind)) for _ in "kv")
    ja.append(place(k), place(v), k_cache, v_cache, cos_sin=place(table), **places)
    rotated = exact_rows(k.reshape(6, 2, 64), angles=angles_at(table, tokens.positions))
    check_cache(fetch, k_cache, tokens, rotated, kind)
    check_cache(fetch, v_cache, tokens, v.reshape(6, 2, 64), kind)


FP8 = {"fp8_e4m3": numpy.dtype(ml_dtypes.float8_e4m3fn), "fp8_e5m2": numpy.dtype(ml_dtypes.float8_e5m2)}


def exact_fp8(x, scale, kind):
    """x / scale in fp32, then the nearest element, or the largest."""
    largest = float(ml_dtypes.finfo(kind).max)
    return numpy.clip(x.astype(numpy.float32) / scale, -largest, largest).astype(kind)


def wide_range(rng, shape, kind):
    """Of all magnitudes: what is too large for fp8, what is subnormal there, what is 0."""
    x = rng.standard_normal(shape) * 2.0 ** rng.integers(-24, 16, shape)
    x.flat[:4] = [0, numpy.inf, -numpy.inf, numpy.nan]
    return x.astype(kind)


def check_stores_fp8(rng, place, bits_of, name, per_head, cache_dtype=None):
    tokens, kind, fp8 = Tokens(rng), DTYPES["bf16"], FP8[name]
    k, v = (wide_range(rng, (tokens.count, 2, 64), kind) for _ in "kv")
    scales = [rng.uniform(0.25, 4, 2 if per_head else 1).astype(numpy.float32) for _ in "kv"]
    scales[0][0] = 0.5  # quotients have as few digits as k: many lie in the middle between two elements
    held = fp8 if cache_dtype is None else numpy.uint8
    caches = [place(poisoned((tokens.pages, tokens.page_size, 2, 64), held)) for _ in "kv"]
    options = {"k_scale": place(scales[0]), "v_scale": place(scales[1]), "cache_dtype": cache_dtype}
    ja.append(place(k), place(v), *caches, slot_mapping=place(tokens.slots), **options)
    for cache, new, scale in zip(caches, (k, v), scales):
        expected = poisoned((tokens.pages, tokens.page_size, 2, 64), fp8)
        expected[tokens.page, tokens.offset] = exact_fp8(new, scale[:, None], fp8)
        actual, expected = bits_of(cache), expected.view(numpy.uint8)
        expected = numpy.where(numpy.isnan(expected.view(fp8)) & (expected != 0xFF), 0x7F, expected)
        assert numpy.array_equal(actual, expected)


@pytest.mark.parametrize("per_head", [False, True])
@pytest.mark.parametrize("name", FP8)
def test_stores_fp8(rng, place, emulated, name, per_head):
    if not emulated:  # NumPy's fp8 cannot be carried there; its bits can
        check_stores_fp8(rng, place, lambda cache: cache.cpu().numpy(), name, per_head, cache_dtype=name)
        return
    check_stores_fp8(rng, place, lambda cache: cache.view(numpy.uint8), name, per_head)
    check_stores_fp8(rng, place, lambda cache: cache, name, per_head, cache_dtype=name)


def test_stores_fp8_where_there_is_no_instruction(run_python):
    """sm_80 has none: the kernel rounds by integer arithmetic."""
    tests = pathlib.Path(__file__)
    script = f"""
import sys
sys.path.insert(0, {str(tests.parent)!r})
import numpy, test_append
for name in test_append.FP8:
    test_append.check_stores_fp8(
        numpy.random.default_rng(7), lambda x: x, lambda x: x.view(numpy.uint8), name, per_head=True
    )
"""
    run_python(script, JIT_ATTENTION_DEVICE="emulated:sm_80")


def exact_row_scales(x, kind):
    """Of each row, the largest magnitude over the largest element."""
    largest = numpy.nan_to_num(numpy.abs(x.astype(numpy.float32)), nan=0).max(-1)
    return numpy.where(largest < 2**-100, numpy.float32(1), largest / numpy.float32(ml_dtypes.finfo(kind).max))


def check_finds_scales(rng, place, fetch, bits_of, name, head_dim_v):
    tokens, fp8 = Tokens(rng), FP8[name]
    k, v = (wide_range(rng, (tokens.count, 2, columns), DTYPES["bf16"]) for columns in (64, head_dim_v))
    k[1] = 0
    v[2] *= 2.0**-60
    rows = (tokens.pages, tokens.page_size, 2)
    caches = [place(poisoned((*rows, new.shape[-1]), numpy.uint8)) for new in (k, v)]
    scales = [place(poisoned(rows, numpy.float32)) for _ in "kv"]
    ja.append(place(k), place(v), *caches, slot_mapping=place(tokens.slots), k_scale=scales[0], v_scale=scales[1],
              cache_dtype=name)
    for cache, scale, new in zip(caches, scales, (k, v)):
        expected = poisoned(rows, numpy.float32)
        expected[tokens.page, tokens.offset] = exact_row_scales(new, fp8)
        numpy.testing.assert_array_equal(fetch(scale), expected)
        stored = poisoned((*rows, new.shape[-1]), fp8)
        with numpy.errstate(invalid="ignore"):
            stored[tokens.page, tokens.offset] = exact_fp8(new, exact_row_scales(new, fp8)[..., None], fp8)
        stored = numpy.where(numpy.isnan(stored) & (stored.view(numpy.uint8) != 0xFF), 0x7F, stored.view(numpy.uint8))
        assert numpy.array_equal(bits_of(cache), stored)


@pytest.mark.parametrize("head_dim_v", [64, 40])
@pytest.mark.parametrize("name", FP8)
def test_finds_the_scales_of_rows(rng, place, fetch, emulated, name, head_dim_v):
    check_finds_scales(rng, place, fetch, lambda cache: cache if emulated else cache.cpu().numpy(), name, head_dim_v)


def test_scales_of_rows_behind_their_elements(rng, place, fetch, emulated):
    """What attention reads of such a cache are the keys, normalised and rotated, and the values."""
    if not emulated:
        pytest.skip("views of NumPy's memory are computed with on an emulated device")
    tokens, kind = Tokens(rng), DTYPES["bf16"]
    k, v = (rng.standard_normal((tokens.count, 2, 64)).astype(kind) for _ in "kv")
    table, weight = random_table(rng, 64), rng.standard_normal(64).astype(kind)
    memory = [numpy.full((tokens.pages, tokens.page_size, 2, 68), 0xFF, numpy.uint8) for _ in "kv"]
    caches = [rows[..., :64] for rows in memory]
    scales = [rows[..., 64:].view(numpy.float32)[..., 0] for rows in memory]
    places = places_of(place, tokens, "pages")
    ja.append(k, v, *caches, **places, cos_sin=table, k_norm_weight=weight, k_scale=scales[0], v_scale=scales[1],
              cache_dtype="fp8_e4m3")
    rotated = exact_rows(k, weight=weight, angles=angles_at(table, tokens.positions))
    for cache, scale, exact in zip(caches, scales, (rotated, v.astype(numpy.float64))):
        held = cache.view(FP8["fp8_e4m3"]).astype(numpy.float64)[tokens.page, tokens.offset]
        factors = scale[tokens.page, tokens.offset][..., None].astype(numpy.float64)
        numpy.testing.assert_allclose(factors[..., 0], numpy.abs(exact).max(-1) / 448, rtol=1e-5)
        assert (numpy.abs(held * factors - exact) <= numpy.abs(exact) * 2**-4 + factors * 2**-10 + 1e-6).all()
    others = numpy.ones(memory[0].shape[:2], bool)
    others[tokens.page, tokens.offset] = False
    assert all((rows[others] == 0xFF).all() for rows in memory)


def test_fp8_of_rotated_keys_without_a_scale(rng, place, emulated):
    tokens, kind = Tokens(rng), DTYPES["bf16"]
    k, v = (rng.standard_normal((tokens.count, 1, 64)).astype(kind) for _ in "kv")
    table = random_table(rng, 64)
    caches = [place(poisoned((tokens.pages, tokens.page_size, 1, 64), numpy.uint8)) for _ in "kv"]
    places = places_of(place, tokens, "pages")
    ja.append(place(k), place(v), *caches, **places, cos_sin=place(table), cache_dtype="fp8_e4m3")
    cache = caches[0] if emulated else caches[0].cpu().numpy()
    actual = cache.view(FP8["fp8_e4m3"]).astype(numpy.float64)[tokens.page, tokens.offset]
    expected = exact_rows(k, angles=angles_at(table, tokens.positions))
    numpy.testing.assert_allclose(actual, expected, rtol=2**-4, atol=2**-10)


def test_tokens_without_a_place_are_skipped(rng, place, fetch):
    tokens, kind = Tokens(rng), DTYPES["bf16"]
    q, k, v = (rng.standard_normal((tokens.count, heads, 64)).astype(kind) for heads in (2, 1, 1))
    slots, positions = tokens.slots.copy(), rng.integers(0, MAX_POS, tokens.count)
    slots[[1, 4]] = [-1, tokens.pages * tokens.page_size]
    positions[[0, 7]] = [-1, MAX_POS]
    table = random_table(rng, 64)
    k_cache, v_cache = (place(poisoned((tokens.pages, tokens.page_size, 1, 64), kind)) for _ in "kv")
    q_here = place(q.copy())
    ja.append(
        place(k),
        place(v),
        k_cache,
        v_cache,
        slot_mapping=place(slots),
        q=q_here,
        cos_sin=place(table),
        positions=place(positions),
    )
    known = numpy.isin(numpy.arange(tokens.count), [0, 7], invert=True)
    stored = known & numpy.isin(numpy.arange(tokens.count), [1, 4], invert=True)
    angles = angles_at(table, positions % MAX_POS)
    expected = numpy.where(known[:, None, None], exact_rows(q, angles=angles), q.astype(numpy.float64))
    near(fetch(q_here), expected, kind)
    check_cache(fetch, k_cache, tokens, exact_rows(k, angles=angles), kind, stored)
    check_cache(fetch, v_cache, tokens, v, kind, stored)


def test_pages_that_do_not_exist_are_skipped(rng, place, fetch):
    tokens, kind = Tokens(rng), DTYPES["bf16"]
    k, v = (rng.standard_normal((tokens.count, 2, 16)).astype(kind) for _ in "kv")
    tokens.table[0, 2], tokens.table[3, 2] = -1, tokens.pages  # of the last token of request 0, of one of request 3
    page = tokens.table[numpy.repeat(range(4), tokens.lengths), tokens.positions // tokens.page_size]
    stored = (page >= 0) & (page < tokens.pages)
    assert 0 < stored.sum() < tokens.count
    caches = [place(poisoned((tokens.pages, tokens.page_size, 2, 16), kind)) for _ in "kv"]
    ja.append(place(k), place(v), *caches, **places_of(place, tokens, "pages"))
    check_cache(fetch, caches[0], tokens, k, kind, stored)
    check_cache(fetch, caches[1], tokens, v, kind, stored)


def test_padding_behind_the_last_request_is_skipped(rng, place, fetch):
    tokens, kind = Tokens(rng, lengths=(3, 5), past=(6, 9)), DTYPES["bf16"]  # there is room behind the last token
    k, v = (rng.standard_normal((tokens.count + 4, 2, 16)).astype(kind) for _ in "kv")
    caches = [place(poisoned((tokens.pages, tokens.page_size, 2, 16), kind)) for _ in "kv"]
    ja.append(place(k), place(v), *caches, **places_of(place, tokens, "pages"))
    check_cache(fetch, caches[0], tokens, k[: tokens.count], kind)
    check_cache(fetch, caches[1], tokens, v[: tokens.count], kind)


def test_tokens_beyond_the_page_table_are_skipped(rng, place, fetch):
    tokens, kind = Tokens(rng, lengths=(3, 9), past=(0, 2)), DTYPES["bf16"]
    k, v = (rng.standard_normal((tokens.count, 2, 16)).astype(kind) for _ in "kv")
    caches = [place(poisoned((tokens.pages, tokens.page_size, 2, 16), kind)) for _ in "kv"]
    places = places_of(place, tokens, "pages")
    places["page_table"] = places["page_table"][:, :2]  # some columns of a wider one, which has more pages
    ja.append(place(k), place(v), *caches, **places)
    stored = tokens.positions < 2 * tokens.page_size
    assert 0 < stored.sum() < tokens.count
    check_cache(fetch, caches[0], tokens, k, kind, stored)
    check_cache(fetch, caches[1], tokens, v, kind, stored)


def test_nothing_to_do(place):
    kind = DTYPES["bf16"]
    new = place(numpy.zeros((0, 2, 16), kind))
    caches = [place(numpy.zeros((3, 4, 2, 16), kind)) for _ in "kv"]
    assert ja.append(new, new, *caches, slot_mapping=place(numpy.zeros(0, numpy.int64))) is None


def test_repeated_runs_give_equal_bits(rng, place, fetch):
    tokens, kind = Tokens(rng, lengths=(40, 7), past=(0, 3), page_size=16), DTYPES["bf16"]
    k, v = (rng.standard_normal((tokens.count, 4, 128)).astype(kind) for _ in "kv")
    weight, table = place(rng.standard_normal(128).astype(kind)), place(random_table(rng, 128))
    results = []
    for _ in range(3):
        caches = [place(poisoned((tokens.pages, 16, 4, 128), kind)) for _ in "kv"]
        ja.append(
            place(k), place(v), *caches, **places_of(place, tokens, "pages"), cos_sin=table, k_norm_weight=weight
        )
        results.append([fetch(cache) for cache in caches])
    assert all(numpy.array_equal(a, b, equal_nan=True) for other in results for a, b in zip(results[0], other))


FP8_CACHES = {name: ((5, 4, 2, 16), "uint8") for name in ("k_cache", "v_cache")}
REFUSALS = [
    ("v", {"v": ((4, 3, 16), "bf16")}, "has heads_kv = 3; it must be 2"),
    ("k_cache", {"k_cache": ((5, 4, 2, 24), "bf16")}, "has head_dim = 24; it must be 16"),
    ("v_cache", {"v_cache": ((5, 3, 2, 16), "bf16")}, "has page_size = 3; it must be 4"),
    ("k_cache", {"k_cache": ((5, 0, 2, 16), "bf16"), "v_cache": ((5, 0, 2, 16), "bf16")}, "has pages of no token"),
    ("slot_mapping", {"slot_mapping": ((4,), "int32")}, "is int32; it must be int64"),
    ("slot_mapping", {"slot_mapping": ((5,), "int64")}, "has tokens = 5; it must be 4"),
    ("seqused_k", {"slot_mapping": None}, "is missing; give where tokens go"),
    ("seqused_k", {"seqused_k": ((2,), "int32")}, "slot_mapping says where tokens go"),
    ("cu_seqlens_q", {"slot_mapping": None, "seqused_k": ((2,), "int32")}, "ragged tokens want to know"),
    (
        "cu_seqlens_q",
        {"slot_mapping": None, "seqused_k": ((2,), "int32"), "cu_seqlens_q": ((2,), "int32")},
        "has batch \\+ 1 = 2; it must be 3",
    ),
    (
        "k_cache",
        {"slot_mapping": None, "seqused_k": ((2,), "int32"), "cu_seqlens_q": ((3,), "int32")},
        "has 5 batch entries and seqused_k 2",
    ),
    ("cos_sin", {"positions": ((4,), "int64"), "cos_sin": ((9, 16, 1), "fp32")}, "has 3 dimensions"),
    ("positions", {"cos_sin": ((9, 16), "fp32")}, "is missing; slots do not tell"),
    ("sin", {"positions": ((4,), "int64"), "cos": ((9, 8), "fp32")}, "is missing; cos was given"),
    ("cos", {"positions": ((4,), "int64"), "sin": ((9, 8), "fp32")}, "is missing; sin was given"),
    (
        "sin",
        {"positions": ((4,), "int64"), "cos": ((9, 8), "fp32"), "sin": ((8, 8), "fp32")},
        "has max_pos = 8; it must be 9",
    ),
    (
        "sin",
        {"positions": ((4,), "int64"), "cos": ((9, 8), "fp32"), "sin": ((9, 4), "fp32")},
        "has rotary_dim / 2 = 4; it must be 8",
    ),
    (
        "cos_sin",
        {"positions": ((4,), "int64"), "cos_sin": ((9, 16), "fp32"), "cos": ((9, 8), "fp32"), "sin": ((9, 8), "fp32")},
        "so were cos and sin",
    ),
    ("positions", {"positions": ((4,), "int64")}, "there is no cos_sin, nor cos and sin"),
    ("q_norm_weight", {"q": ((4, 2, 16), "bf16"), "q_norm_weight": ((16,), "bf16")}, "there is no k_norm_weight"),
    ("q", {"q": ((4, 2, 24), "bf16")}, "has head_dim = 24"),
    ("q", {"q": ((4, 2, 16), "fp16")}, "is fp16; it must be bf16"),
    ("q_out", {"q_out": ((4, 2, 16), "bf16")}, "there is no q"),
    ("q_norm_weight", {"q": ((4, 2, 16), "bf16"), "k_norm_weight": ((16,), "bf16")}, "is missing"),
    ("k_norm_weight", {"k_norm_weight": ((15,), "bf16")}, "has head_dim = 15"),
    ("k_scale", {"k_scale": ((1,), "fp32")}, "the caches are none of fp8"),
    ("k_scale", {"k_scale": ((5, 4, 2), "fp32")}, "the caches are none of fp8"),
    ("v_scale", FP8_CACHES | {"k_scale": ((5, 4, 2), "fp32")}, "is missing; the scale of each token"),
    ("v_scale", FP8_CACHES | {"k_scale": ((5, 4, 2), "fp32"), "v_scale": ((2,), "fp32")}, "has 1 dimensions"),
    ("k_scale", FP8_CACHES | {"k_scale": ((5, 4), "fp32")}, r"has 2 dimensions; it must be .* or \(pages, page_size"),
    ("k_scale", FP8_CACHES | {"k_scale": ((5, 3, 2), "fp32"), "v_scale": ((5, 4, 2), "fp32")}, "has page_size = 3"),
    ("k_scale", FP8_CACHES | {"k_scale": ((5, 4, 2), "bf16"), "v_scale": ((5, 4, 2), "fp32")}, "is bf16"),
]


@pytest.mark.parametrize("field, changes, message", REFUSALS, ids=[f"{r[0]}: {r[2]}" for r in REFUSALS])
def test_refusals_name_the_argument(place, field, changes, message):
    kinds = DTYPES | {"fp32": numpy.float32, "int32": numpy.int32, "int64": numpy.int64, "uint8": numpy.uint8}
    arrays = {
        "k": ((4, 2, 16), "bf16"),
        "v": ((4, 2, 16), "bf16"),
        "k_cache": ((5, 4, 2, 16), "bf16"),
        "v_cache": ((5, 4, 2, 16), "bf16"),
        "slot_mapping": ((4,), "int64"),
    } | changes
    given = {
        name: place(numpy.zeros(what[0], kinds[what[1]])) for name, what in arrays.items() if what is not None
    }
    with pytest.raises(ja.InvalidArgumentError, match=message) as refusal:
        ja.append(**given, cache_dtype="fp8_e4m3" if FP8_CACHES.items() <= changes.items() else None)
    assert refusal.value.field == field


@pytest.mark.parametrize(
    "options, message",
    [
        ({"cos_sin": 18}, "rotary_dim = 18 must be from 0 to 16"),
        ({"cos_sin": 7}, "rotary_dim = 7 must be even"),
        ({"cos_sin": 8, "mrope_sections": (1, 2, 3)}, "mrope_sections = \\(1, 2, 3\\) must be numbers"),
        ({"norm_eps": 0.0}, "norm_eps = 0 must be positive"),
    ],
)
def test_specs_that_cannot_be_served(place, options, message):
    kind = DTYPES["bf16"]
    new, cache = place(numpy.zeros((4, 2, 16), kind)), place(numpy.zeros((5, 4, 2, 16), kind))
    if "cos_sin" in options:
        options = options | {"cos_sin": place(numpy.zeros((9, options["cos_sin"]), numpy.float32))}
    with pytest.raises(ja.InvalidSpecError, match=message):
        ja.append(new, new, cache, cache, slot_mapping=place(numpy.zeros(4, numpy.int64)), **options)


def test_memory_that_is_shared_is_refused(place):
    kind = DTYPES["bf16"]
    new, cache = place(numpy.zeros((4, 2, 16), kind)), place(numpy.zeros((5, 4, 2, 16), kind))
    slots = place(numpy.zeros(4, numpy.int64))
    with pytest.raises(ja.InvalidArgumentError, match="shares memory with v_cache") as refusal:
        ja.append(new, new, cache, cache, slot_mapping=slots)
    assert refusal.value.field == "k_cache"
    other = place(numpy.zeros((5, 4, 2, 16), kind))
    with pytest.raises(ja.InvalidArgumentError, match="shares memory with k,") as refusal:
        ja.append(new, new, cache, other, slot_mapping=slots, q=new)
    assert refusal.value.field == "q"


def test_scales_that_lie_in_elements_are_refused(place, emulated):
    if not emulated:
        pytest.skip("views of NumPy's memory are computed with on an emulated device")
    new, slots = numpy.zeros((4, 2, 16), DTYPES["bf16"]), numpy.arange(4)
    rows = numpy.zeros((5, 4, 2, 24), numpy.uint8)
    scales, own = rows[..., 16:20].view(numpy.float32)[..., 0], numpy.zeros((5, 4, 2), numpy.float32)
    others = numpy.zeros((5, 4, 2, 16), numpy.uint8)
    ja.append(new, new, rows[..., :16], others, slot_mapping=slots, k_scale=scales, v_scale=own, cache_dtype="fp8_e4m3")
    with pytest.raises(ja.InvalidArgumentError, match="shares memory with k_scale"):
        ja.append(new, new, rows[..., 4:20], others, slot_mapping=slots, k_scale=scales, v_scale=own,
                  cache_dtype="fp8_e4m3")
