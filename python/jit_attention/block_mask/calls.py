"""Calls that are given a block mask: their mask and arrays, and sizes that the block mask was not made for.

The library calls these functions as methods of `BlockMask`.
"""

from __future__ import annotations

import dataclasses

from .. import _core
from .._frameworks import are_numpys
from .._mask_words import goes_by_lengths
from ..errors import InvalidArgumentError
from .arguments import LENGTHS, wanted_mask
from .host_lists import first_of, place_of
from .making import mask_over


def for_call(block_mask, mask, score, tensors):
    """Mask and tensors of a call that was given this mask, score and tensors beside the block mask."""
    check_beside(block_mask, mask, tensors)
    return block_mask.mask, _together(block_mask, block_mask.tensors, score, tensors)


def for_gradients(block_mask, mask, score, tensors):
    """Mask and tensors of a call for gradients. Its kernels look each bit up in memory, which takes longer than
    evaluating `within`, so they evaluate it wherever they can."""
    over, together = for_call(block_mask, mask, score, tensors)
    if block_mask.scores is not False and block_mask.within.tensors.keys() <= block_mask.read.keys():
        evaluated = _together(block_mask, {"block_mask": block_mask.table, **block_mask.read}, score, tensors)
        if len(evaluated) <= _core.most_tensors:
            return mask_over(*block_mask.block_size, block_mask.within, False), evaluated
    return over, together


def for_prepared(block_mask, spec, tensors):
    """Mask and tensors of a call of a kernel that was prepared for `spec`."""
    if spec.mask != block_mask.mask:
        raise InvalidArgumentError(
            f"block_mask: is of mask {block_mask.mask}, and the kernel was prepared for {wanted_mask(spec.mask)}; "
            "prepare it with block_mask",
            "validate",
            "block_mask",
        )
    return for_call(block_mask, spec.mask, spec.score, tensors)


def check_beside(block_mask, mask, tensors):
    """Refuses a call's mask and tensors if the block mask was made with others."""
    if mask is not None and mask not in (block_mask.mask, block_mask.within):
        raise InvalidArgumentError(
            f"block_mask: was made of mask {block_mask.within}, and the call's mask is {mask}; make it of that one, or "
            "leave mask out",
            "validate",
            "block_mask",
        )
    for name, array in (tensors or {}).items():
        if block_mask.read.get(name, block_mask.tensors.get(name, array)) is not array:
            raise InvalidArgumentError(
                f"{name}: is not the array that the block mask was made with; leave it out", "validate", name
            )


def spec_over(block_mask, spec):
    """`spec` with the mask over the table."""
    check_beside(block_mask, spec.mask, None)
    return dataclasses.replace(spec, mask=block_mask.mask)


def check_sizes(block_mask, seqlen_q, seqlen_k, batch, heads, lengths):
    """Refuses calls of other sizes. A length below 0: sequences are varlen. `lengths`: names and arrays of the call,
    those of LENGTHS among them."""
    for name in LENGTHS:
        if name in block_mask.lengths and name not in lengths:
            _refuse(f"was made with {name}, and the call is without", f"give it, or make one without {name}")
        if name in lengths and name not in block_mask.lengths:
            if name.startswith("cu_seqlens") or goes_by_lengths(block_mask.within):
                _refuse(f"was made without {name}, and the call is with", f"make one with the same {name}")
    for name, length, own in (("seqlen_q", seqlen_q, block_mask.seqlen_q), ("seqlen_k", seqlen_k, block_mask.seqlen_k)):
        if 0 <= length != own:
            _refuse(f"was made for {name} {own}, and the call has {length}")
    for name, own, called in (("batch", block_mask.batch, batch), ("heads_q", block_mask.heads, heads)):
        if own is not None and own != called:
            _refuse(f"was made for {name} {own}, and the call has {called}")
    for name, made in block_mask.lengths.items():
        _check_same(name, made, lengths[name])


def _together(block_mask, own, score, tensors):
    """The tensors `own` of a mask, and those of the call's tensors that no mask reads or that the score reads."""
    known, of_score = block_mask.tensors.keys() | block_mask.read.keys(), getattr(score, "tensors", ())
    given = (tensors or {}).items()
    return own | {name: array for name, array in given if name not in known or name in of_score}


def _check_same(name, made, called):
    """Refuses lengths that hold something else than when the table was made, where both are NumPy's."""
    if made is None or not are_numpys(called) or made.shape != called.shape:  # another shape is refused by its name
        return
    other = first_of(made != called)
    if other is not None:
        place = place_of(other)
        _refuse(f"was made with {made[other]} at {place} of {name}, and the call has {called[other]} there")


def _refuse(reason, remedy="make one of that call's arrays"):
    raise InvalidArgumentError(f"block_mask: {reason}; {remedy}", "validate", "block_mask")
