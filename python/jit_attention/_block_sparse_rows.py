"""Block-sparse rows in memory of the host: what is wrong with them, and how they come to where calls compute."""

from __future__ import annotations

from ._frameworks import adapter_of, is_on_host
from .errors import InvalidArgumentError


def checked(indptr, indices, rows, columns, like):
    """Both arrays as calls take them: those on the host are looked at, and brought to where `like` is.

    Raises InvalidArgumentError, naming the array and the first element that is wrong.
    """
    on_host = [is_on_host(array) for array in (indptr, indices)]
    if not any(on_host):
        return indptr, indices
    if not all(on_host):
        host, device = ("indptr", "indices") if on_host[0] else ("indices", "indptr")
        _refuse(host, f"is in memory of the host, and {device} is not; give both of one kind")
    whole = _whole("indptr", indptr), _whole("indices", indices)
    _check(*whole, rows, columns)
    import numpy

    arrays = [array.astype(numpy.int32) for array in whole]
    if like is None:  # as they were given
        like = next((array for array in (indptr, indices) if not isinstance(array, (list, tuple))), arrays[0])
    adapter = adapter_of(type(like))
    placed = [adapter.place(like, array) if adapter is not None else None for array in arrays]
    if placed[0] is None:
        _refuse("like", f"is a {type(like).__name__}, to whose device nothing is copied here; give arrays there")
    return placed


def _check(indptr, indices, rows, columns):
    import numpy

    if indptr.ndim not in (1, 3):
        _refuse("indptr", f"has {indptr.ndim} dimensions; it must have 1 or 3")
    if indices.ndim != 1:
        _refuse("indices", f"has {indices.ndim} dimensions; it must have 1")
    if indptr.shape[-1] != rows + 1:
        _refuse("indptr", f"has {indptr.shape[-1]} elements for each list of rows; it must have {rows + 1}, for "
                          f"{rows} rows of blocks")
    out = _first((indptr < 0) | (indptr > indices.size))
    if out is not None:
        _refuse("indptr", f"has {indptr[out]} at {_place(out)}; it must be from 0 to {indices.size}, the number of "
                          "indices")
    falls = _first(numpy.diff(indptr) < 0)
    if falls is not None:
        next_one = *falls[:-1], falls[-1] + 1
        _refuse("indptr", f"falls from {indptr[falls]} to {indptr[next_one]} at {_place(next_one)}; a row must not "
                          "end before it begins")
    for at in numpy.ndindex(indptr.shape[:-1]):
        _check_columns(indptr[at], indices, columns)


def _check_columns(indptr, indices, columns):
    """Of one list of rows, whose ends are right."""
    import numpy

    first = int(indptr[0])
    own = indices[first : int(indptr[-1])]
    out = _first((own < 0) | (own >= columns))
    if out is not None:
        _refuse("indices", f"has {own[out]} at [{first + out[0]}]; it must be from 0 to {columns - 1}, as there are "
                           f"{columns} blocks of keys")
    is_inside = numpy.ones(own.size + 1, bool)  # a row, behind its first block
    is_inside[indptr - first] = False
    out = _first(is_inside[1:-1] & (own[1:] <= own[:-1]))
    if out is not None:
        before, here = own[out], own[out[0] + 1]
        _refuse("indices", f"has {here} at [{first + out[0] + 1}], after {before}; blocks of a row must ascend"
                           + (", each named once" if here == before else ""))


def _whole(name, array):
    """As int64."""
    import numpy

    array = numpy.asarray(array)
    if array.dtype.kind not in "iu" and array.size != 0:  # an empty list is one of floats
        _refuse(name, f"is {array.dtype.name}; it must be of whole numbers")
    return array.astype(numpy.int64)


def _first(wrong):
    """Where the first of these truths is, or None."""
    import numpy

    return tuple(int(i) for i in numpy.unravel_index(numpy.argmax(wrong), wrong.shape)) if wrong.any() else None


def _place(index):
    return f"[{', '.join(map(str, index))}]"


def _refuse(name, reason):
    raise InvalidArgumentError(f"{name}: {reason}", "validate", name)
