"""Arguments by which block masks are made: what is refused ahead of the library's own checks, and names in its errors."""

from __future__ import annotations

import operator

from .. import mask as _masks
from .._frameworks import are_numpys
from .._mask_words import differs_by_entry, differs_by_head
from ..errors import InvalidArgumentError
from ..functor import wanted_whole
from ..mask import Mask
from . import host_lists

#: Arrays that say how long sequences are.
LENGTHS = ("cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k", "cache_leftpad")

#: What the library calls arguments that have other names here.
NAMES_OF_THE_LIBRARY = {
    "map": "blocks",
    "partial.counts": "counts",
    "partial.indptr": "indptr",
    "partial.indices": "indices",
    "full.counts": "full_counts",
    "full.indices": "full_indices",
    "seqlen_kv": "seqlen_k",
}

#: The most batch entries, and query heads, that a picture is of one of.
_MOST_SHOWN = 1 << 24


def wanted_block_size(block_size):
    try:
        block_q, block_kv = block_size
    except (TypeError, ValueError):
        raise TypeError(
            f"block_size must be two numbers, of queries and of keys, such as (128, 128), not {block_size!r}"
        ) from None
    block_size = wanted_whole("block_size", block_q), wanted_whole("block_size", block_kv)
    _masks.block_mask(*block_size)  # refuses sides that are none
    return block_size


def wanted_mask(mask):
    if mask is None:
        return _masks.none()
    if not isinstance(mask, Mask):
        raise TypeError(f"mask must be a jit_attention.Mask or None, not a {type(mask).__name__}")
    return mask


def wanted_place(name, place, size):
    """Refuses a batch entry or head that is not there; `size` is None where there may be any number of them."""
    try:
        place = operator.index(place)
    except TypeError:
        raise TypeError(f"{name} must be an int, not {place!r}") from None
    most = (_MOST_SHOWN if size is None else size) - 1
    if not 0 <= place <= most:
        raise InvalidArgumentError(f"{name}: is {place}; it must be from 0 to {most}", "validate", name)


def wanted_rank(name, array, rank):
    if array is None:
        return
    if not hasattr(array, "shape"):
        raise TypeError(
            f"{name} is a {type(array).__name__}, which is no array: give one that has __dlpack__ or "
            "__cuda_array_interface__, such as those of PyTorch, CuPy, JAX and NumPy"
        )
    if len(array.shape) != rank:
        raise InvalidArgumentError(
            f"{name}: has {len(array.shape)} dimensions; it must have {rank}", "validate", name
        )


def check_halves(names, counts, indices, columns):
    """Refuses lists of which one half is missing, or wrong as far as can be told on the host."""
    for name, array, rank in zip(names, (counts, indices), (3, 4)):
        wanted_rank(name, array, rank)
    if counts is None and indices is None:
        return
    if counts is None or indices is None:
        missing, given = names if counts is None else names[::-1]
        raise InvalidArgumentError(f"{missing}: is missing, and {given} is given", "validate", missing)
    host_lists.check_lists(names, counts, indices, columns)


def check_not_varlen(name, most, length):
    if most is not None and most != length:
        raise InvalidArgumentError(
            f"{name}: is {most}, but sequences that are not varlen have room for {length}", "validate", name
        )


def most_rows(name, most, total, boundaries, used, leftpad=None):
    """Rows of a varlen sequence that a table has blocks for: `most`, or as many as there are of all."""
    if most is None:
        return total
    most, longest = wanted_whole(name, most, 0), _longest(total, boundaries, used, leftpad)
    if longest > most:
        raise InvalidArgumentError(
            f"{name}: is {most}, but the longest sequence has {longest} rows; give {longest} or more, or None",
            "validate",
            name,
        )
    return most


def _longest(total, boundaries, used, leftpad):
    """Rows of the longest sequence where these are NumPy's, cut to what there is room for, as kernels do it; else 0, as
    nothing on a device is read, nor what has sizes that the call refuses."""
    given = [array for array in (used, leftpad) if array is not None]
    if not are_numpys(boundaries, *given) or any(array.shape != (len(boundaries) - 1,) for array in given):
        return 0
    lengths = boundaries.clip(0, total)
    lengths = lengths[1:] - lengths[:-1]
    if used is not None:
        lengths = used.clip(0, lengths)
    if leftpad is not None:
        lengths = lengths - leftpad.clip(0, lengths)
    return int(lengths.max(initial=0))


def own_tables(mask, listed, batch, heads_q):
    """Batch entries and heads that have tables of their own, where lists are for `listed` of them; None: one for all."""
    return (
        wanted_whole(name, wanted, 0) if wanted is not None else size if size != 1 or differs else None
        for name, wanted, size, differs in zip(
            ("batch", "heads_q"), (batch, heads_q), listed, (differs_by_entry(mask), differs_by_head(mask))
        )
    )


def own_tables_wanted(name, wanted, reasons):
    """Whether there are such tables: `wanted`, or whether any of these reasons is one."""
    reason = next((reason for reason, is_one in reasons.items() if is_one), None)
    if wanted is None:
        return reason is not None
    if not wanted and reason is not None:
        raise InvalidArgumentError(f"{name}: is False, but {reason}; give True or None", "validate", name)
    return wanted


def renamed(error):
    """`error` as the caller knows the arguments."""
    name = NAMES_OF_THE_LIBRARY[error.field]
    reason = error.message.removeprefix(error.field)
    if name == "blocks":  # which may also be what the library takes for bytes
        reason = reason.replace("must be uint8", "must be bool or uint8")
    return InvalidArgumentError(name + reason, error.stage, name)
