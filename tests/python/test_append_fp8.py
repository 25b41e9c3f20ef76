"""append() into caches of fp8: every bit, with scales that are given and with those that it finds."""

import pathlib

import jit_attention as ja
import ml_dtypes
import numpy
import pytest
from append_tokens import Tokens, angles_at, exact_rows, places_of, poisoned, random_table
from exact_attention import DTYPES

FP8 = {"fp8_e4m3": numpy.dtype(ml_dtypes.float8_e4m3fn), "fp8_e5m2": numpy.dtype(ml_dtypes.float8_e5m2)}


def exact_fp8(x, scale, kind):
    """x / scale in fp32, then the nearest element, or the largest."""
    largest = float(ml_dtypes.finfo(kind).max)
    return numpy.clip(x.astype(numpy.float32) / scale, -largest, largest).astype(kind)


def wide_range(rng, shape, kind):
    """Numbers of all magnitudes: too large for FP8, subnormal there, and 0."""
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


@pytest.mark.parametrize("value", [0, numpy.inf, -numpy.inf, numpy.nan])
@pytest.mark.parametrize("name", FP8)
def test_scales_that_are_no_numbers(rng, place, emulated, name, value):
    """They spoil what their head stores of the tokens, and nothing else."""
    tokens, fp8 = Tokens(rng), FP8[name]
    k, v = (rng.standard_normal((tokens.count, 2, 64)).astype(DTYPES["bf16"]) for _ in "kv")
    scale = numpy.array([value, 0.5], numpy.float32)
    shape = (tokens.pages, tokens.page_size, 2, 64)
    caches = [place(poisoned(shape, numpy.uint8)) for _ in "kv"]
    ja.append(place(k), place(v), *caches, slot_mapping=place(tokens.slots), cache_dtype=name, k_scale=place(scale),
              v_scale=place(scale))
    for cache, new in zip(caches, (k, v)):
        actual = (cache if emulated else cache.cpu().numpy()).view(fp8)
        expected = poisoned(shape, fp8)
        with numpy.errstate(divide="ignore", invalid="ignore"):
            expected[tokens.page, tokens.offset] = exact_fp8(new, scale[:, None], fp8)
        is_nan = numpy.isnan(expected)
        assert numpy.array_equal(numpy.isnan(actual), is_nan) and is_nan[tokens.page, tokens.offset, 0].all() == (
            value != value)
        assert (actual[~is_nan] == expected[~is_nan]).all()


def test_stores_fp8_where_there_is_no_instruction(run_python):
    """sm_80 has none: the kernel rounds by integer arithmetic."""
    tests = pathlib.Path(__file__)
    script = f"""
import sys
sys.path.insert(0, {str(tests.parent)!r})
import numpy, test_append_fp8
for name in test_append_fp8.FP8:
    test_append_fp8.check_stores_fp8(
        numpy.random.default_rng(7), lambda x: x, lambda x: x.view(numpy.uint8), name, per_head=True
    )
"""
    run_python(script, JIT_ATTENTION_DEVICE="emulated:sm_80")


def exact_row_scales(x, kind):
    """The scale of each row: its largest magnitude over the largest element."""
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
    """Attention reads normalized, rotated keys and the values from such a cache."""
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
