"""Shared by tests of append(): new tokens, their places in caches, and the expected rows in double precision."""

import numpy

MAX_POS = 50


def exact_rows(x, *, angles=None, interleaved=False, weight=None, eps=1e-6, adds_one=False):
    """Rows (tokens, heads, head_dim) normalized, and rotated by (cos, sin), (tokens, rotary_dim / 2) each."""
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
