"""Rotation and normalization by append(), against double precision: every element of the caches and of q."""

import jit_attention as ja
import numpy
import pytest
from append_tokens import MAX_POS, Tokens, angles_at, check_cache, exact_rows, near, places_of, poisoned, random_table
from exact_attention import DTYPES


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
def test_normalizes(rng, place, fetch, adds_one, weight_type, rotary_dim):
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
