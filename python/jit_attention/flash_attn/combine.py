"""Merging of partial results over different keys."""

from __future__ import annotations

from .. import merge
from ..typing import Array, ArrayT, DTypeObject, OutputDType
from .refusals import refuse


def flash_attn_combine(
    out_partial: ArrayT, lse_partial: Array, out: Array | None = None, out_dtype: OutputDType | DTypeObject | None = None
) -> tuple[ArrayT, ArrayT]:
    """Merges results of attention over parts of the keys into the result over all keys.

    Args:
        out_partial: fp32, bf16 or fp16 (splits, batch, seqlen, heads, head_dim), or (splits, total, heads, head_dim).
        lse_partial: fp32, of the same shape without the last dimension; any strides. −inf: the part has no keys.
        out: an array to write to, (batch, seqlen, heads, head_dim) or (total, heads, head_dim).
        out_dtype: fp32, bf16 or fp16; None: that of out, or of out_partial.

    Returns:
        (o, lse): lse is fp32 (batch, seqlen, heads) or (total, heads), a view whose tokens lie side by side.

    Raises:
        Error: As `jit_attention.merge` raises it, before anything is launched.
    """
    shape = tuple(out_partial.shape)
    if len(shape) not in (4, 5):
        refuse("out_partial", f"has shape {shape}; it must be (splits, batch, seqlen, heads, head_dim) or (splits, "
                              "total, heads, head_dim)")
    if tuple(lse_partial.shape) != shape[:-1]:
        refuse("lse_partial", f"has shape {tuple(lse_partial.shape)}; it must be {shape[:-1]}, as out_partial has it")
    o, lse = merge(out_partial, lse_partial.swapaxes(-1, -2), out=out, out_dtype=out_dtype)
    return o, lse.swapaxes(-1, -2)
