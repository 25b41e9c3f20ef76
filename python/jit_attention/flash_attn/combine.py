"""Partial results over some of the keys each, made one."""

from .. import merge


def flash_attn_combine(out_partial, lse_partial, out=None, out_dtype=None):
    """What attention over all keys gives, from what it gives over parts of them.

    Args:
        out_partial: fp32, bf16 or fp16 (splits, batch, seqlen, heads, head_dim), or (splits, total, heads, head_dim).
        lse_partial: fp32, of the same shape without the last dimension; any strides. −inf: the part has no keys.
        out: an array to write to, (batch, seqlen, heads, head_dim) or (total, heads, head_dim).
        out_dtype: fp32, bf16 or fp16; None: that of out, or of out_partial.

    Returns:
        (o, lse): lse is fp32 (batch, seqlen, heads) or (total, heads), a view whose tokens lie side by side.

    Raises:
        Error: what `jit_attention.merge` raises, before anything is launched.
    """
    o, lse = merge(out_partial, lse_partial.swapaxes(-1, -2), out=out, out_dtype=out_dtype)
    return o, lse.swapaxes(-1, -2)
