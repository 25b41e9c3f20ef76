"""Separate rotation of queries whose positions differ from the new keys'."""

from .. import append
from .arrays import beside


def token_positions(tokens, begins, cu_seqlens=None, all_at_begin=False):
    """int64 positions of tokens (batch, seqlen, …) or varlen (total, …): each request's start plus the token's index.
    """
    module, place = beside(tokens)
    steps = module.arange(tokens.shape[0 if cu_seqlens is not None else 1], dtype=module.int64, **place)
    if cu_seqlens is None:
        return begins[:, None] + steps * (not all_at_begin)
    ends = cu_seqlens[1:]
    request = module.clip(module.searchsorted(ends, steps, side="right"), 0, ends.shape[0] - 1)
    return begins[request] + (steps - cu_seqlens[request]) * (not all_at_begin)


def rotated(q, positions, **table):
    """A new array of q (…, tokens, heads, head_dim) rotated to its positions: appended as if it were keys."""
    module, place = beside(q)
    shape = (1,) * (4 - len(q.shape)) + tuple(q.shape)
    new = module.empty(shape, dtype=q.dtype, **place)
    values = module.empty((*shape[:3], 8), dtype=q.dtype, **place)  # append also stores values: as few as possible
    slots = module.arange(shape[0] * shape[1], dtype=module.int64, **place).reshape(q.shape[:-2])
    append(q, q[..., :8], new, values, slot_mapping=slots, positions=positions, **table)
    return new.reshape(q.shape)
