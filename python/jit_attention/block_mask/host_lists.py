"""Blocks in lists in memory of the host: what is wrong with them, and how they come to where calls compute."""

from __future__ import annotations

from .._frameworks import adapter_of, is_on_host
from ..errors import InvalidArgumentError


def check_lists(names, counts, indices, columns):
    """Looks at counts (batch or 1, heads or 1, rows) and indices (batch or 1, heads or 1, rows, capacity), which errors
    call by these names, where both are on the host.

    Raises InvalidArgumentError, naming the array and the first element that is wrong.
    """
    if not (is_on_host(counts) and is_on_host(indices)):
        return
    import numpy

    counts, indices = (_whole(name, array) for name, array in zip(names, (counts, indices)))
    *own_sizes, capacity = indices.shape
    out = first_of((counts < 0) | (counts > capacity))
    if out is not None:
        _refuse(names[0], f"has {counts[out]} at {place_of(out)}; it must be from 0 to {capacity}, the room of a list "
                          f"of {names[1]}")
    try:
        sizes = numpy.broadcast_shapes(counts.shape, tuple(own_sizes))
    except ValueError:  # sizes that the call refuses
        return
    is_listed = numpy.arange(capacity) < numpy.broadcast_to(counts, sizes)[..., None]
    indices = numpy.broadcast_to(indices, is_listed.shape)
    is_for_all = [size == 1 for size in (*own_sizes, capacity)]

    def place(at):
        return place_of(0 if one else i for i, one in zip(at, is_for_all))

    _check_columns(names[1], indices, columns, is_listed, is_listed[..., 1:], place)


def checked_rows(indptr, indices, rows, columns, like):
    """Block-sparse rows as calls take them: arrays on the host are looked at, and brought to where `like` is.

    Raises InvalidArgumentError, naming the array and the first element that is wrong.
    """
    on_host = [is_on_host(array) for array in (indptr, indices)]
    if not any(on_host):
        return indptr, indices
    if not all(on_host):
        host, device = ("indptr", "indices") if on_host[0] else ("indices", "indptr")
        _refuse(host, f"is in memory of the host, and {device} is not; give both of one kind")
    whole = _whole("indptr", indptr), _whole("indices", indices)
    _check_rows(*whole, rows, columns)
    import numpy

    arrays = [array.astype(numpy.int32) for array in whole]
    if like is None:  # as they were given
        like = next((array for array in (indptr, indices) if not isinstance(array, (list, tuple))), arrays[0])
    adapter = adapter_of(type(like))
    placed = [adapter.place(like, array) if adapter is not None else None for array in arrays]
    if placed[0] is None:
        _refuse("like", f"is a {type(like).__name__}, to whose device nothing is copied here; give arrays there")
    return placed


def _check_rows(indptr, indices, rows, columns):
    import numpy

    if indptr.ndim not in (1, 3):
        _refuse("indptr", f"has {indptr.ndim} dimensions; it must have 1 or 3")
    if indices.ndim != 1:
        _refuse("indices", f"has {indices.ndim} dimensions; it must have 1")
    if indptr.shape[-1] != rows + 1:
        _refuse("indptr", f"has {indptr.shape[-1]} elements for each list of rows; it must have {rows + 1}, for "
                          f"{rows} rows of blocks")
    out = first_of((indptr < 0) | (indptr > indices.size))
    if out is not None:
        _refuse("indptr", f"has {indptr[out]} at {place_of(out)}; it must be from 0 to {indices.size}, the number of "
                          "indices")
    indptr = indptr.astype(numpy.int64)
    falls = first_of(numpy.diff(indptr) < 0)
    if falls is not None:
        next_one = *falls[:-1], falls[-1] + 1
        _refuse("indptr", f"falls from {indptr[falls]} to {indptr[next_one]} at {place_of(next_one)}; a row must not "
                          "end before it begins")
    for at in numpy.ndindex(indptr.shape[:-1]):
        first, last = int(indptr[at][0]), int(indptr[at][-1])
        is_inside = numpy.ones(last - first + 1, bool)  # a row, behind its first block
        is_inside[indptr[at] - first] = False
        _check_columns("indices", indices[first:last], columns, True, is_inside[1:-1],
                       lambda place, first=first: place_of([first + place[0]]))


def _check_columns(name, indices, columns, is_listed, follows, place):
    """For lists along the last dimension: the elements that some list has, and those behind the first one that follow
    one of the same list. `place` says where in the caller's array an element is."""
    out = first_of(is_listed & ((indices < 0) | (indices >= columns)))
    if out is not None:
        _refuse(name, f"has {indices[out]} at {place(out)}; it must be from 0 to {columns - 1}, as there are {columns} "
                      "blocks of keys")
    out = first_of(follows & (indices[..., 1:] <= indices[..., :-1]))
    if out is not None:
        next_one = *out[:-1], out[-1] + 1
        before, here = indices[out], indices[next_one]
        _refuse(name, f"has {here} at {place(next_one)}, after {before}; blocks of a row must ascend"
                      + (", each named once" if here == before else ""))


def _whole(name, array):
    """numpy's function for integers of any type: uint64 may exceed int64."""
    import numpy

    array = numpy.asarray(array)
    if array.size == 0:  # an empty list is one of floats
        return array.astype(numpy.int64)
    if array.dtype.kind not in "iu":
        _refuse(name, f"is {array.dtype.name}; it must be of whole numbers")
    return array


def first_of(wrong):
    """Where the first of these truths is, or None."""
    import numpy

    return tuple(int(i) for i in numpy.unravel_index(numpy.argmax(wrong), wrong.shape)) if wrong.any() else None


def place_of(index):
    return f"[{', '.join(map(str, index))}]"


def _refuse(name, reason):
    raise InvalidArgumentError(f"{name}: {reason}", "validate", name)
