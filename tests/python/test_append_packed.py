"""Caches of int8, int4, NVFP4 and MXFP4 that `append` writes: bytes, scales and zero points, as NumPy finds them."""

import jit_attention as ja
import numpy
import pytest
from request_batches import BF16
from seeded import paired, some
from stored_caches import BLOCKS, DESCALE, NAMES, stored

FP16 = numpy.dtype(numpy.float16)


def caches(rng, name, heads, widths, page_size=8, pages=3):
    """A cache of random bytes: bytes that are not written keep them."""
    arrays = {}
    for each, width in zip("kv", widths):
        row = width if name == "int8" else width // 2
        arrays[f"{each}_cache"] = rng.integers(0, 256, (pages, page_size, heads, row), numpy.uint8)
        if DESCALE[name] == "token":
            arrays[f"{each}_scale"] = numpy.full((pages, page_size, heads), numpy.nan, numpy.float32)
        else:
            arrays[f"{each}_scale"] = rng.uniform(0.5, 2, heads).astype(numpy.float32)
            blocks = rng.integers(0, 256, (pages, page_size, heads, width // BLOCKS[name]), numpy.uint8)
            arrays[f"{each}_block_scales"] = blocks
    return arrays


def append(place, fetch, name, rows, arrays, slots, **options):
    """The caches and scales as they are afterwards."""
    placed = {key: place(array.copy()) for key, array in arrays.items()}
    caches = placed.pop("k_cache"), placed.pop("v_cache")
    ja.append(*map(place, rows), *caches, slot_mapping=place(slots), cache_dtype=name, **placed, **options)
    written = dict(zip(("k_cache", "v_cache"), caches)) | placed
    return {key: fetch(array).astype(arrays[key].dtype) for key, array in written.items()}


def rows_of(cache, slots, page_size=8):
    return cache[slots // page_size, slots % page_size]


def close_codes(ours, expected):
    """Bytes whose halves differ by at most one step, and few of them: sums of products may be rounded otherwise."""
    steps = [numpy.abs((ours >> s & 15).astype(int) - (expected >> s & 15)) for s in (0, 4)]
    assert max(step.max() for step in steps) <= 1
    assert numpy.mean(steps[0] + steps[1]) < 0.01


@pytest.mark.parametrize("name, dtype", paired(NAMES, [BF16, FP16]))
def test_what_is_written(rng, place, fetch, name, dtype):
    widths = {"int8": (72, 40), "int4": (80, 56), "nvfp4": (80, 128), "mxfp4": (96, 64)}[name]
    k, v = (rng.standard_normal((5, 2, width)).astype(dtype) for width in widths)
    k[1, 0, 3] = 40  # an outlier
    v[2] = 0
    slots = numpy.array([3, 17, -1, 20, 8], numpy.int64)
    before = caches(rng, name, 2, widths)
    after = append(place, fetch, name, (k, v), before, slots)
    kept = slots >= 0
    for each, rows in (("k", k), ("v", v)):
        scale = None if DESCALE[name] == "token" else before[f"{each}_scale"]
        expected = stored(name, rows[kept].astype(numpy.float32), scale)
        ours = rows_of(after[f"{each}_cache"], slots[kept])
        if name == "int8":
            assert numpy.abs(ours.view(numpy.int8).astype(int) - expected.rows).max() <= 1
            assert numpy.mean(ours.view(numpy.int8) != expected.rows) < 0.01
        else:
            close_codes(ours, expected.rows)
        if DESCALE[name] == "token":
            numpy.testing.assert_array_equal(rows_of(after[f"{each}_scale"], slots[kept]), expected.scales)
        else:
            numpy.testing.assert_array_equal(rows_of(after[f"{each}_block_scales"], slots[kept]), expected.blocks)
            numpy.testing.assert_array_equal(after[f"{each}_scale"], before[f"{each}_scale"])
        others = numpy.setdiff1d(numpy.arange(24), slots)
        numpy.testing.assert_array_equal(
            rows_of(after[f"{each}_cache"], others), rows_of(before[f"{each}_cache"], others)
        )


@pytest.mark.parametrize("name", NAMES)
def test_numbers_that_are_none(rng, place, fetch, name):
    """A NaN shows in the scale of its row or block; an infinity counts as the largest number."""
    k = v = rng.standard_normal((3, 1, 64)).astype(BF16)
    k = k.copy()
    k[0, 0, 5], k[1, 0, 5] = numpy.nan, numpy.inf
    slots = numpy.arange(3, dtype=numpy.int64)
    after = append(place, fetch, name, (k, v), caches(rng, name, 1, (64, 64)), slots)
    if DESCALE[name] == "token":
        scales = rows_of(after["k_scale"], slots)[:, 0]
        assert numpy.isnan(scales[0]) and numpy.isfinite(scales[1:]).all() and scales[1] > 1e36
    else:
        blocks = rows_of(after["k_block_scales"], slots)[:, 0]
        no_number, largest = {"nvfp4": (0x7F, 0x7E), "mxfp4": (255, 135)}[name]
        assert blocks[0, 0] == no_number and (blocks[0, 1:] != no_number).all() and blocks[1, 0] == largest


@pytest.mark.parametrize("name", some(NAMES, 2))
def test_attention_reads_what_was_written(rng, place, fetch, name):
    """With rotation and norm on the way, from where attention over 16 bits is near."""
    k, v = (rng.standard_normal((40, 2, 64)).astype(BF16) for _ in "kv")
    q = rng.standard_normal((40, 8, 64)).astype(BF16)
    table = rng.standard_normal((64, 64)).astype(numpy.float32)
    table = numpy.concatenate([numpy.cos(table[:, :32]), numpy.sin(table[:, :32])], 1)
    rotation = {"cos_sin": place(table), "positions": place(numpy.arange(40, dtype=numpy.int64))}
    slots = numpy.arange(40, dtype=numpy.int64)
    wide = {f"{each}_cache": numpy.zeros((6, 8, 2, 64), BF16) for each in "kv"}
    outputs = {}
    for kind in (name, "bf16"):
        arrays = wide if kind == "bf16" else caches(rng, name, 2, (64, 64), pages=6)
        arrays = {key: place(array) for key, array in arrays.items()}
        pools, scales = (arrays.pop("k_cache"), arrays.pop("v_cache")), arrays
        own = place(q.copy())
        options = {} if kind == "bf16" else {"cache_dtype": kind}
        ja.append(place(k), place(v), *pools, slot_mapping=place(slots), q=own, **rotation, **scales, **options)
        read = {
            key.replace("_scale", "_descale") if key.endswith("k_scale") or key.endswith("v_scale") else key: array
            for key, array in scales.items()
        }
        o = ja.attention(
            own,
            *pools,
            cu_seqlens_q=place(numpy.array([0, 40], numpy.int32)),
            page_table=place(numpy.arange(5, dtype=numpy.int32)[None]),
            seqused_k=place(numpy.array([40], numpy.int32)),
            mask=ja.mask.causal(),
            **read,
            **({} if kind == "bf16" else {"kv_dtype": kind}),
        )
        outputs[kind] = fetch(o).astype(float)
    error = numpy.sqrt(numpy.mean((outputs[name] - outputs["bf16"]) ** 2) / numpy.mean(outputs["bf16"] ** 2))
    assert error < {"int8": 0.03, "int4": 0.25, "nvfp4": 0.25, "mxfp4": 0.35}[name], error


def test_refusals(rng, place):
    k = v = rng.standard_normal((1, 1, 48)).astype(BF16)
    slots = place(numpy.zeros(1, numpy.int64))
    rows = place(numpy.zeros((1, 1, 1, 24), numpy.uint8))
    scales = place(numpy.zeros((1, 1, 1), numpy.float32))
    with pytest.raises(ja.errors.InvalidSpecError, match="head_dim.*multiple of 32"):
        ja.append(place(k), place(v), rows, rows, slot_mapping=slots, cache_dtype="mxfp4")
    with pytest.raises(ja.errors.InvalidSpecError, match="must be token with cache_dtype int4"):
        ja.append(place(k), place(v), rows, rows, slot_mapping=slots, cache_dtype="int4")
    with pytest.raises(ja.errors.InvalidArgumentError, match="k_block_scales.*is missing"):
        ja.append(place(k), place(v), rows, rows, slot_mapping=slots, cache_dtype="nvfp4")
    with pytest.raises(ja.errors.InvalidArgumentError, match="k_cache"):
        ja.append(
            place(k), place(v), rows, rows, slot_mapping=slots, cache_dtype="int8", k_scale=scales, v_scale=scales
        )
