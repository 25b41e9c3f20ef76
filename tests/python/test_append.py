"""append(): where tokens are stored, which are skipped, and what it refuses."""

import jit_attention as ja
import numpy
import pytest
from append_tokens import MAX_POS, Tokens, angles_at, check_cache, exact_rows, near, places_of, poisoned, random_table
from exact_attention import DTYPES


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
    ("cu_seqlens_q", {"slot_mapping": None, "seqused_k": ((2,), "int32")}, "varlen tokens want to know"),
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
    ("k_scale", {"k_scale": ((1,), "fp32")}, "the caches are none of 8 or 4 bits"),
    ("k_scale", {"k_scale": ((5, 4, 2), "fp32")}, "the caches are none of 8 or 4 bits"),
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
    if "norm_eps" in options:
        options = options | {"k_norm_weight": place(numpy.zeros(16, kind))}
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
