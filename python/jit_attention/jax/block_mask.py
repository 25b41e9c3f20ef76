"""Block masks as arguments of compiled functions: their arrays are leaves, the rest is static."""

from __future__ import annotations

import jax

from ..block_mask import BlockMask

_PLAIN = "block_size", "seqlen_q", "seqlen_k", "batch", "heads", "within", "mask", "scores"


def _flatten(block_mask):
    plain = tuple(getattr(block_mask, name) for name in _PLAIN)
    return (block_mask.tensors, block_mask.read), (plain, tuple(block_mask.lengths))


def _unflatten(known, arrays):
    (plain, lengths), (tensors, read) = known, arrays
    return BlockMask(table=tensors["block_mask"] if tensors else None, tensors=tensors, read=read,
                     lengths=dict.fromkeys(lengths), **dict(zip(_PLAIN, plain)))


jax.tree_util.register_pytree_node(BlockMask, _flatten, _unflatten)
