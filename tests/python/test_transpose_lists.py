"""transpose_lists: for each entry the lists that have it, in their order, against NumPy's stable sort."""

import jit_attention as ja
import numpy
import pytest
from seeded import some


def transposed(lists, counts, head, limit):
    """Starts and places of a head."""
    rows, _, entries = lists.shape
    own = lists[:, head].astype(numpy.int64).copy()
    if counts is not None:
        own[numpy.arange(entries) >= counts[:, head, None]] = -1
    own[(own < 0) | (own >= limit)] = limit
    order = numpy.argsort(own.ravel(), kind="stable")
    starts = numpy.searchsorted(own.ravel()[order], numpy.arange(limit + 1))
    return starts, order[: starts[-1]]


def check(place, fetch, lists, counts, limit):
    runs = [ja.transpose_lists(place(lists), None if counts is None else place(counts), limit=limit) for _ in range(2)]
    starts, places = (fetch(array).astype(numpy.int64) for array in runs[0])
    again = fetch(runs[1][1]).astype(numpy.int64)
    assert starts.shape == (lists.shape[1], limit + 1) and places.shape == (lists.shape[1], lists.shape[0] * lists.shape[2])
    for head in range(lists.shape[1]):
        right_starts, right_places = transposed(lists, counts, head, limit)
        assert numpy.array_equal(starts[head], right_starts)
        assert numpy.array_equal(places[head, : len(right_places)], right_places)
        assert numpy.array_equal(again[head, : len(right_places)], right_places)


@pytest.mark.parametrize("rows,heads,entries,limit", some([(40, 2, 33, 50), (3, 1, 700, 4500), (600, 1, 2, 1), (70, 3, 5, 0)]))
def test_random_lists(rng, place, fetch, rows, heads, entries, limit):
    """Entries in any order, some twice, some that are none; counts from below none to more than there are."""
    lists = rng.integers(-3, limit + 3, (rows, heads, entries)).astype(numpy.int32)
    wild = rng.random(lists.shape) < 0.05
    lists[wild] = rng.choice(numpy.int32([-(2**31), 2**31 - 1]), wild.sum())
    counts = rng.integers(-1, entries + 3, (rows, heads)).astype(numpy.int32) if rng.random() < 0.7 else None
    check(place, fetch, lists, counts, limit)


def test_an_entry_of_most_lists(rng, place, fetch):
    """Its places are too many for a warp, and lie in several windows."""
    rows, entries = 600, 1000
    lists = numpy.full((rows, 1, entries), -1, numpy.int32)
    lists[rng.random(rows) < 0.9, 0, int(rng.integers(entries))] = 5
    lists[rng.integers(rows, size=90), 0, rng.integers(entries, size=90)] = 2
    check(place, fetch, lists, None, 7)


def test_strides_and_nothing(rng, place, fetch):
    lists = rng.integers(-1, 9, (2, 20, 30)).astype(numpy.int32).transpose(1, 0, 2)
    check(place, fetch, lists, None, 8)
    check(place, fetch, numpy.zeros((0, 2, 4), numpy.int32), None, 3)
    check(place, fetch, numpy.zeros((4, 2, 0), numpy.int32), None, 3)


def test_what_is_refused(place):
    lists = place(numpy.zeros((4, 1, 3), numpy.int32))
    counts = place(numpy.zeros((4, 1), numpy.int32))
    for match, arguments, options in (
        ("limit: is -1; it must be from 0", (lists,), dict(limit=-1)),
        ("indices: has .*dimensions", (counts,), dict(limit=3)),
        ("counts: has rows = 3", (lists, counts[:3]), dict(limit=3)),
        ("indices.*int32", (place(numpy.zeros((4, 1, 3), numpy.int64)),), dict(limit=3)),
    ):
        with pytest.raises(ja.InvalidArgumentError, match=match):
            ja.transpose_lists(*arguments, **options)
