"""flash_attn_with_kvcache: what it leaves in the cache and what it computes, against double precision."""

import jit_attention as ja
import jit_attention.flash_attn as fa
import numpy
import pytest
from exact_attention import DTYPES
from flash_reference import flash_exact, rotate
from jit_attention.flash_attn import v3
from seeded import paired, some

KIND = DTYPES["bf16"]
BATCH, CAPACITY, HEADS, HEADS_KV, HEAD_DIM = 3, 48, 4, 2, 32
PAST = numpy.array([0, 21, 40], numpy.int32)


def normal(rng, *shape):
    return rng.standard_normal(shape).astype(KIND)


def table(rng, rotary_dim):
    angles = rng.uniform(-3, 3, (CAPACITY + 4, rotary_dim // 2))
    return numpy.cos(angles).astype(KIND), numpy.sin(angles).astype(KIND)


class Cache:
    """A cache as (batch, capacity, …), and the same as arrays of other forms; rows behind the keys are 0."""

    def __init__(self, rng, form):
        self.dense = [normal(rng, BATCH, CAPACITY, HEADS_KV, HEAD_DIM) for _ in "kv"]
        for cache in self.dense:
            for b, past in enumerate(PAST):
                cache[b, past:] = 0
        self.form, self.keywords = form, {}
        if form == "entries":
            self.at = rng.permutation(5)[:BATCH].astype(numpy.int32)
            self.arrays = [numpy.zeros((5, *cache.shape[1:]), KIND) for cache in self.dense]
            for array, cache in zip(self.arrays, self.dense):
                array[self.at] = cache
            self.keywords["cache_batch_idx"] = self.at
        elif form == "pages":
            columns = CAPACITY // 16
            self.at = rng.permutation(11)[: BATCH * columns].reshape(BATCH, columns).astype(numpy.int32)
            self.arrays = [numpy.zeros((11, 16, *cache.shape[2:]), KIND) for cache in self.dense]
            for array, cache in zip(self.arrays, self.dense):
                array[self.at] = cache.reshape(BATCH, columns, 16, HEADS_KV, HEAD_DIM)
            self.keywords["block_table"] = self.at
        else:
            more = numpy.zeros((1, *self.dense[0].shape[1:]), KIND)  # entries that no request has
            self.arrays = [numpy.concatenate([cache, more]) for cache in self.dense]
            self.at = numpy.arange(BATCH)

    def gathered(self, array):
        """(batch, capacity, …) again."""
        return array[self.at].reshape(BATCH, CAPACITY, HEADS_KV, HEAD_DIM)

    def others(self, array):
        """Rows of entries or pages that no request has."""
        return numpy.delete(array, self.at.ravel(), 0)


def put(place, keywords):
    return {name: place(x) if isinstance(x, numpy.ndarray) else x for name, x in keywords.items()}


def exact_rows(fetch, o, lse, q, caches, used, begin=None, **arguments):
    """Each request against its own keys, rows `begin` to `used` of its entry."""
    for b in range(BATCH):
        first = 0 if begin is None else begin[b]
        keys, values = (cache[b : b + 1, first : used[b]] for cache in caches)
        flash_exact(q[b : b + 1], keys, values, **arguments).check(fetch(o)[b : b + 1], fetch(lse)[b : b + 1])


@pytest.mark.parametrize("form, window_size", paired(["dense", "entries", "pages"], [(-1, -1), (9, 3)]))
def test_reads(rng, place, fetch, form, window_size):
    cache, q = Cache(rng, form), normal(rng, BATCH, 2, HEADS, HEAD_DIM)
    slopes = rng.uniform(0.01, 0.5, HEADS).astype(numpy.float32)
    o, lse = fa.flash_attn_with_kvcache(
        place(q), *map(place, cache.arrays), cache_seqlens=place(PAST), window_size=window_size,
        alibi_slopes=place(slopes), softcap=3.0, return_softmax_lse=True, **put(place, cache.keywords),
    )
    exact_rows(fetch, o, lse, q, cache.dense, PAST, window_size=window_size, alibi_slopes=slopes, softcap=3.0)


@pytest.mark.parametrize("form, cache_seqlens", paired(["dense", "entries", "pages"], [None, 17]))
def test_lengths_that_are_no_array(rng, place, fetch, form, cache_seqlens):
    cache, q = Cache(rng, form), normal(rng, BATCH, 1, HEADS, HEAD_DIM)
    o, lse = fa.flash_attn_with_kvcache(
        place(q), *map(place, cache.arrays), cache_seqlens=cache_seqlens, return_softmax_lse=True,
        **put(place, cache.keywords),
    )
    exact_rows(fetch, o, lse, q, cache.dense, [cache_seqlens or CAPACITY] * BATCH)


@pytest.mark.parametrize("form", some(["dense", "entries"]))
def test_left_padding(rng, place, fetch, form):
    """Rotations count the rows of the padding, too."""
    cache, new = Cache(rng, form), 2
    q, k, v = (normal(rng, BATCH, new, heads, HEAD_DIM) for heads in (HEADS, HEADS_KV, HEADS_KV))
    leftpad = numpy.array([0, 5, 33], numpy.int32)
    cos, sin = table(rng, 16)
    arrays = list(map(place, cache.arrays))
    o, lse = fa.flash_attn_with_kvcache(
        place(q), *arrays, place(k), place(v), place(cos), place(sin), place(PAST), cache_leftpad=place(leftpad),
        causal=True, return_softmax_lse=True, **put(place, cache.keywords),
    )
    positions = PAST[:, None] + numpy.arange(new)
    caches = [cache.gathered(fetch(array).astype(KIND)) for array in arrays]
    for b in range(BATCH):
        cache.dense[0][b, positions[b]] = rotate(k, cos, sin, positions, True)[b]
        cache.dense[1][b, positions[b]] = v[b]
    assert numpy.array_equal(caches[1], cache.dense[1])
    turned = rotate(q, cos, sin, positions, True)
    exact_rows(fetch, o, lse, turned, cache.dense, PAST + new, leftpad, causal=True)


@pytest.mark.parametrize("form", ["dense", "entries", "pages"])
@pytest.mark.parametrize("seqlen_q, new", [(1, 1), (3, 3), (5, 2), (2, 5)])
@pytest.mark.parametrize("causal", [False, True])
def test_appends_and_rotates(rng, place, fetch, form, seqlen_q, new, causal):
    interleaved = bool(rng.integers(2)) if causal else form == "dense"
    cache, q = Cache(rng, form), normal(rng, BATCH, seqlen_q, HEADS, HEAD_DIM)
    k, v = (normal(rng, BATCH, new, HEADS_KV, HEAD_DIM) for _ in "kv")
    cos, sin = table(rng, 32 if form == "dense" else 16)
    here, arrays = place(q.copy()), list(map(place, cache.arrays))
    o, lse = fa.flash_attn_with_kvcache(
        here, *arrays, k=place(k), v=place(v), rotary_cos=place(cos), rotary_sin=place(sin), cache_seqlens=place(PAST),
        causal=causal, rotary_interleaved=interleaved, return_softmax_lse=True, **put(place, cache.keywords),
    )
    assert numpy.array_equal(fetch(here), q)  # q is read alone
    positions = PAST[:, None] + numpy.arange(new)
    turned = rotate(k, cos, sin, positions, interleaved)
    expected = [x.astype(float) for x in cache.dense]
    for b in range(BATCH):
        expected[0][b, positions[b]], expected[1][b, positions[b]] = turned[b], v[b]
    for array, rows, before in zip(arrays, expected, cache.arrays):
        after = fetch(array)
        numpy.testing.assert_allclose(cache.gathered(after), rows, rtol=2**-7, atol=1e-4)
        assert numpy.array_equal(cache.others(after), cache.others(before).astype(float))
    stand = PAST[:, None] + numpy.arange(seqlen_q) * causal
    caches = [cache.gathered(fetch(array)).astype(KIND) for array in arrays]
    exact_rows(fetch, o, lse, rotate(q, cos, sin, stand, interleaved), caches, PAST + new, causal=causal)


def test_appends_without_a_rotation(rng, place, fetch):
    cache = Cache(rng, "dense")
    q, k, v = (normal(rng, BATCH, 2, heads, HEAD_DIM) for heads in (HEADS, HEADS_KV, HEADS_KV))
    arrays = list(map(place, cache.arrays))
    o, lse = fa.flash_attn_with_kvcache(
        place(q), *arrays, place(k), place(v), cache_seqlens=place(PAST), causal=True, return_softmax_lse=True
    )
    for b, past in enumerate(PAST):
        cache.dense[0][b, past : past + 2], cache.dense[1][b, past : past + 2] = k[b], v[b]
    for array, rows in zip(arrays, cache.dense):
        assert numpy.array_equal(cache.gathered(fetch(array)), rows.astype(float))
    exact_rows(fetch, o, lse, q, cache.dense, PAST + 2, causal=True)


LENGTHS = (1, 4, 0)
BEGINS = numpy.concatenate([[0], numpy.cumsum(LENGTHS)]).astype(numpy.int32)


@pytest.mark.parametrize("same, causal", [(True, True), (False, True), (True, False)])
@pytest.mark.parametrize("own_positions", [False, True])
def test_varlen_tokens_of_version_3(rng, place, fetch, same, causal, own_positions):
    """Queries and new keys of each request, in any numbers, over pages."""
    cache = Cache(rng, "pages")
    q, k, v = (normal(rng, BEGINS[-1], heads, HEAD_DIM) for heads in (HEADS, HEADS_KV, HEADS_KV))
    cos, sin = table(rng, 16)
    begins = place(BEGINS)
    starts = numpy.array([3, 0, 30], numpy.int32) if own_positions else PAST
    arrays = list(map(place, cache.arrays))
    o, lse, *nothing = v3.flash_attn_with_kvcache(
        place(q), *arrays, place(k), place(v), rotary_cos=place(cos), rotary_sin=place(sin), cache_seqlens=place(PAST),
        page_table=place(cache.at), cu_seqlens_q=begins, cu_seqlens_k_new=begins if same else place(BEGINS.copy()),
        rotary_seqlens=place(starts) if own_positions else None, causal=causal, return_softmax_lse=True,
    )
    assert [x.shape for x in nothing] == [(0,), (0,)]
    caches = [cache.gathered(fetch(array)) for array in arrays]
    for b, n in enumerate(LENGTHS):
        rows, places = slice(BEGINS[b], BEGINS[b + 1]), slice(PAST[b], PAST[b] + n)
        positions = starts[b] + numpy.arange(n)[None]
        cache.dense[0][b, places] = rotate(k[None, rows], cos, sin, positions, True)[0]
        cache.dense[1][b, places] = v[rows]
        numpy.testing.assert_allclose(caches[0][b], cache.dense[0][b].astype(float), rtol=2**-7, atol=1e-4)
        stand = starts[b] + numpy.arange(n)[None] * causal
        own = [x[b : b + 1, : PAST[b] + n].astype(KIND) for x in caches]
        exact = flash_exact(rotate(q[None, rows], cos, sin, stand, True), *own, causal=causal)
        exact.check(fetch(o)[None, rows], fetch(lse)[None, :, rows])
    assert numpy.array_equal(caches[1], cache.dense[1].astype(float))


def zeros(*shape, dtype=KIND):
    return numpy.zeros(shape, dtype)


LENGTHS_0 = zeros(2, dtype=numpy.int32)
REFUSALS = [
    ("v", {"k": zeros(2, 1, 1, 16), "cache_seqlens": LENGTHS_0}, "is missing; new keys and values"),
    ("cache_seqlens", {"k": zeros(2, 1, 1, 16), "v": zeros(2, 1, 1, 16)}, "is missing; it says behind which rows"),
    ("cache_seqlens", {"cache_seqlens": -4}, "is -4; it must be from 0"),
    ("cache_seqlens", {"cache_seqlens": 1.5}, "is 1.5; it must be an int32 array"),
    ("cache_seqlens", {"cache_seqlens": zeros(3, dtype=numpy.int32)}, "has batch = 3; it must be 2"),
    ("rotary_cos", {"rotary_cos": zeros(8, 8), "rotary_sin": zeros(8, 8)}, "without k and v"),
    ("rotary_sin", {"rotary_cos": zeros(8, 8)}, "is missing; a rotation needs both"),
    (
        "rotary_sin",
        {
            "k": zeros(2, 1, 1, 16), "v": zeros(2, 1, 1, 16), "cache_seqlens": LENGTHS_0, "rotary_cos": zeros(8, 8),
            "rotary_sin": zeros(8, 4),
        },
        "has rotary_dim / 2 = 4; it must be 8",
    ),
    ("cache_batch_idx", {"cache_batch_idx": LENGTHS_0, "block_table": zeros(2, 1, dtype=numpy.int32)}, "leave it out"),
    ("cache_batch_idx", {"cache_batch_idx": zeros(3, dtype=numpy.int32)}, r"has shape \(3,\); it must be \(2,\)"),
    ("cache_batch_idx", {"cache_batch_idx": zeros(2, dtype=numpy.int64)}, "int32"),
    (
        "cache_batch_idx",
        {
            "cache_batch_idx": zeros(2, dtype=numpy.int64), "cache_seqlens": LENGTHS_0, "k": zeros(2, 1, 1, 16),
            "v": zeros(2, 1, 1, 16),
        },
        "int32",
    ),
    ("k_cache", {"k_cache": zeros(1, 8, 1, 16)}, "has 1 entries, and q 2"),
    ("k_cache", {"k_cache": zeros(2, 8, 1, 24)}, "24"),
    ("block_table", {"block_table": zeros(2, 1, dtype=numpy.int64)}, "int32"),
]


@pytest.mark.parametrize("field, changes, message", REFUSALS, ids=[f"{r[0]}: {r[2]}" for r in REFUSALS])
def test_refusals_name_the_argument(place, field, changes, message):
    given = {"q": zeros(2, 1, 1, 16), "k_cache": zeros(2, 8, 1, 16), "v_cache": zeros(2, 8, 1, 16)} | changes
    with pytest.raises(ja.InvalidArgumentError, match=message) as refusal:
        fa.flash_attn_with_kvcache(**put(place, given))
    assert refusal.value.field == field and str(refusal.value).startswith(field + ":")


def test_large_entries_are_refused(place):
    q, cache = place(zeros(1, 1, 1, 8)), place(zeros(1, 65537, 1, 8))
    with pytest.raises(ja.InvalidArgumentError, match="cache_batch_idx: is given for entries of 65537 rows"):
        fa.flash_attn_with_kvcache(q, cache, cache, cache_batch_idx=place(zeros(1, dtype=numpy.int32)))


def test_version_3_refuses_what_has_no_use(place):
    q, cache = place(zeros(1, 1, 1, 16)), place(zeros(1, 8, 1, 16))
    for name in ("rotary_seqlens", "cu_seqlens_k_new"):
        with pytest.raises(ja.InvalidArgumentError, match=f"^{name}: is given without .* leave it out"):
            v3.flash_attn_with_kvcache(q, cache, cache, **{name: place(zeros(1, dtype=numpy.int32))})
    assert v3.get_scheduler_metadata(1, 1, 8, 1, 1, 16, None) is None
