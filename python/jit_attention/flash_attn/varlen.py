"""Varlen sequences, one behind another: (total, heads, head_dim)."""

from __future__ import annotations

from typing import Literal, overload

from ..typing import Array, ArrayT
from .arrays import attend, unpacked
from .dense import check_probabilities, shaped
from .problem import problem
from .refusals import known_as


@overload
def flash_attn_varlen_func(
    q: ArrayT, k: Array, v: Array, cu_seqlens_q: Array, cu_seqlens_k: Array, max_seqlen_q: int | None,
    max_seqlen_k: int | None, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int | None, int | None] = (-1, -1), softcap: float = 0.0, alibi_slopes: Array | None = None,
    deterministic: bool = False, return_attn_probs: Literal[False] = False, block_table: Array | None = None
) -> ArrayT: ...
@overload
def flash_attn_varlen_func(
    q: ArrayT, k: Array, v: Array, cu_seqlens_q: Array, cu_seqlens_k: Array, max_seqlen_q: int | None,
    max_seqlen_k: int | None, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int | None, int | None] = (-1, -1), softcap: float = 0.0, alibi_slopes: Array | None = None,
    deterministic: bool = False, *, return_attn_probs: Literal[True], block_table: Array | None = None
) -> tuple[ArrayT, ArrayT, None]: ...
@overload
def flash_attn_varlen_func(
    q: ArrayT, k: Array, v: Array, cu_seqlens_q: Array, cu_seqlens_k: Array, max_seqlen_q: int | None,
    max_seqlen_k: int | None, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int | None, int | None] = (-1, -1), softcap: float = 0.0, alibi_slopes: Array | None = None,
    deterministic: bool = False, return_attn_probs: bool = False, block_table: Array | None = None
) -> ArrayT | tuple[ArrayT, ArrayT, None]: ...
def flash_attn_varlen_func(
    q: ArrayT, k: Array, v: Array, cu_seqlens_q: Array, cu_seqlens_k: Array, max_seqlen_q: int | None,
    max_seqlen_k: int | None, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int | None, int | None] = (-1, -1), softcap: float = 0.0, alibi_slopes: Array | None = None,
    deterministic: bool = False, return_attn_probs: bool = False, block_table: Array | None = None
) -> ArrayT | tuple[ArrayT, ArrayT, None]:
    """Computes attention of varlen sequences, with gradients for q, k, v and alibi_slopes.

    Args:
        q: (total_q, heads_q, head_dim), bf16 or fp16.
        k: (total_k, heads_kv, head_dim), or with block_table pages, (pages, page_size, heads_kv, head_dim).
        v: the same with head_dim_v.
        cu_seqlens_q, cu_seqlens_k: int32 (batch + 1): sequence b has rows cu_seqlens[b] to cu_seqlens[b + 1].
        max_seqlen_q, max_seqlen_k: Ignored: kernels read the lengths on the device.
        dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs: as
            those of `flash_attn_func`; positions count within the sequence.
        block_table: int32 (batch, max_pages): the pages of each sequence; cu_seqlens_k then counts their keys.
            Without gradients and dropout.

    Returns:
        o (total_q, heads_q, head_dim_v), or (o, lse, None) with lse fp32 (heads_q, total_q). Padding rows are
        uninitialized.

    Raises:
        Error: As `jit_attention.torch.attention` raises it, before anything is launched.
    """
    check_probabilities(return_attn_probs, dropout_p)
    given = problem(softmax_scale=softmax_scale, causal=causal, window_size=window_size, softcap=softcap,
                    alibi_slopes=alibi_slopes)
    if block_table is None:
        keys = dict(cu_seqlens_k=cu_seqlens_k)
    else:
        keys = dict(page_table=block_table, seqused_k=cu_seqlens_k[1:] - cu_seqlens_k[:-1])
    with known_as(page_table="block_table", seqused_k="cu_seqlens_k"):
        result = attend(q, k, v, dropout_p=dropout_p, deterministic=deterministic, return_lse=return_attn_probs,
                        cu_seqlens_q=cu_seqlens_q, **keys, **given)
    return (*result, None) if return_attn_probs else result


@overload
def flash_attn_varlen_kvpacked_func(
    q: ArrayT, kv: Array, cu_seqlens_q: Array, cu_seqlens_k: Array, max_seqlen_q: int | None,
    max_seqlen_k: int | None, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int | None, int | None] = (-1, -1), softcap: float = 0.0, alibi_slopes: Array | None = None,
    deterministic: bool = False, return_attn_probs: Literal[False] = False
) -> ArrayT: ...
@overload
def flash_attn_varlen_kvpacked_func(
    q: ArrayT, kv: Array, cu_seqlens_q: Array, cu_seqlens_k: Array, max_seqlen_q: int | None,
    max_seqlen_k: int | None, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int | None, int | None] = (-1, -1), softcap: float = 0.0, alibi_slopes: Array | None = None,
    deterministic: bool = False, *, return_attn_probs: Literal[True]
) -> tuple[ArrayT, ArrayT, None]: ...
@overload
def flash_attn_varlen_kvpacked_func(
    q: ArrayT, kv: Array, cu_seqlens_q: Array, cu_seqlens_k: Array, max_seqlen_q: int | None,
    max_seqlen_k: int | None, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int | None, int | None] = (-1, -1), softcap: float = 0.0, alibi_slopes: Array | None = None,
    deterministic: bool = False, return_attn_probs: bool = False
) -> ArrayT | tuple[ArrayT, ArrayT, None]: ...
def flash_attn_varlen_kvpacked_func(
    q: ArrayT, kv: Array, cu_seqlens_q: Array, cu_seqlens_k: Array, max_seqlen_q: int | None,
    max_seqlen_k: int | None, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int | None, int | None] = (-1, -1), softcap: float = 0.0, alibi_slopes: Array | None = None,
    deterministic: bool = False, return_attn_probs: bool = False
) -> ArrayT | tuple[ArrayT, ArrayT, None]:
    """`flash_attn_varlen_func` of k and v in one tensor, kv (total_k, 2, heads_kv, head_dim)."""
    k, v = unpacked(shaped(kv, "kv", 4, 2), 1)
    return flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p,
                                  softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic,
                                  return_attn_probs)


@overload
def flash_attn_varlen_qkvpacked_func(
    qkv: ArrayT, cu_seqlens: Array, max_seqlen: int | None, dropout_p: float = 0.0,
    softmax_scale: float | None = None, causal: bool = False, window_size: tuple[int | None, int | None] = (-1, -1),
    softcap: float = 0.0, alibi_slopes: Array | None = None, deterministic: bool = False,
    return_attn_probs: Literal[False] = False
) -> ArrayT: ...
@overload
def flash_attn_varlen_qkvpacked_func(
    qkv: ArrayT, cu_seqlens: Array, max_seqlen: int | None, dropout_p: float = 0.0,
    softmax_scale: float | None = None, causal: bool = False, window_size: tuple[int | None, int | None] = (-1, -1),
    softcap: float = 0.0, alibi_slopes: Array | None = None, deterministic: bool = False, *,
    return_attn_probs: Literal[True]
) -> tuple[ArrayT, ArrayT, None]: ...
@overload
def flash_attn_varlen_qkvpacked_func(
    qkv: ArrayT, cu_seqlens: Array, max_seqlen: int | None, dropout_p: float = 0.0,
    softmax_scale: float | None = None, causal: bool = False, window_size: tuple[int | None, int | None] = (-1, -1),
    softcap: float = 0.0, alibi_slopes: Array | None = None, deterministic: bool = False,
    return_attn_probs: bool = False
) -> ArrayT | tuple[ArrayT, ArrayT, None]: ...
def flash_attn_varlen_qkvpacked_func(
    qkv: ArrayT, cu_seqlens: Array, max_seqlen: int | None, dropout_p: float = 0.0,
    softmax_scale: float | None = None, causal: bool = False, window_size: tuple[int | None, int | None] = (-1, -1),
    softcap: float = 0.0, alibi_slopes: Array | None = None, deterministic: bool = False,
    return_attn_probs: bool = False
) -> ArrayT | tuple[ArrayT, ArrayT, None]:
    """`flash_attn_varlen_func` of q, k and v in one tensor, qkv (total, 3, heads, head_dim)."""
    q, k, v = unpacked(shaped(qkv, "qkv", 4, 3), 1)
    return flash_attn_varlen_func(q, k, v, cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, dropout_p, softmax_scale,
                                  causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs)
