"""Sequences of equal length: (batch, seqlen, heads, head_dim)."""

from __future__ import annotations

from typing import Literal, overload

from ..typing import Array, ArrayT
from .arrays import attend, unpacked
from .problem import problem
from .refusals import refuse


@overload
def flash_attn_func(
    q: ArrayT, k: Array, v: Array, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int | None, int | None] = (-1, -1), softcap: float = 0.0, alibi_slopes: Array | None = None,
    deterministic: bool = False, return_attn_probs: Literal[False] = False
) -> ArrayT: ...
@overload
def flash_attn_func(
    q: ArrayT, k: Array, v: Array, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int | None, int | None] = (-1, -1), softcap: float = 0.0, alibi_slopes: Array | None = None,
    deterministic: bool = False, *, return_attn_probs: Literal[True]
) -> tuple[ArrayT, ArrayT, None]: ...
@overload
def flash_attn_func(
    q: ArrayT, k: Array, v: Array, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int | None, int | None] = (-1, -1), softcap: float = 0.0, alibi_slopes: Array | None = None,
    deterministic: bool = False, return_attn_probs: bool = False
) -> ArrayT | tuple[ArrayT, ArrayT, None]: ...
def flash_attn_func(
    q: ArrayT, k: Array, v: Array, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int | None, int | None] = (-1, -1), softcap: float = 0.0, alibi_slopes: Array | None = None,
    deterministic: bool = False, return_attn_probs: bool = False
) -> ArrayT | tuple[ArrayT, ArrayT, None]:
    """Computes attention, with gradients for q, k, v and alibi_slopes.

    Args:
        q: (batch, seqlen_q, heads_q, head_dim), bf16 or fp16.
        k: (batch, seqlen_k, heads_kv, head_dim); heads_q is a multiple of heads_kv.
        v: (batch, seqlen_k, heads_kv, head_dim_v).
        dropout_p: The rate of dropout, with random numbers from torch's default generator.
        softmax_scale: of q · k; None: 1/sqrt(head_dim).
        causal: query i sees the keys up to i + seqlen_k − seqlen_q.
        window_size: keys that a query sees before its own position and after it; −1: all.
        softcap: Scores become softcap · tanh(score / softcap). 0 or less: they stay as they are.
        alibi_slopes: fp32 (heads_q) or (batch, heads_q): scores less slope · |i + seqlen_k − seqlen_q − j|.
        deterministic: Whether equal inputs must give bitwise identical gradients. The result always is deterministic.
        return_attn_probs: also return lse and, in place of probabilities, None. Not with dropout.

    Returns:
        o (batch, seqlen_q, heads_q, head_dim_v), or (o, lse, None); lse is fp32 (batch, heads_q, seqlen_q), natural
        logarithm. A query that sees no key has o = 0 and lse = −inf.

    Raises:
        Error: As `jit_attention.torch.attention` raises it, before anything is launched.
    """
    check_probabilities(return_attn_probs, dropout_p)
    given = problem(softmax_scale=softmax_scale, causal=causal, window_size=window_size, softcap=softcap,
                    alibi_slopes=alibi_slopes)
    result = attend(q, k, v, dropout_p=dropout_p, deterministic=deterministic, return_lse=return_attn_probs, **given)
    return (*result, None) if return_attn_probs else result


@overload
def flash_attn_kvpacked_func(
    q: ArrayT, kv: Array, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int | None, int | None] = (-1, -1), softcap: float = 0.0, alibi_slopes: Array | None = None,
    deterministic: bool = False, return_attn_probs: Literal[False] = False
) -> ArrayT: ...
@overload
def flash_attn_kvpacked_func(
    q: ArrayT, kv: Array, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int | None, int | None] = (-1, -1), softcap: float = 0.0, alibi_slopes: Array | None = None,
    deterministic: bool = False, *, return_attn_probs: Literal[True]
) -> tuple[ArrayT, ArrayT, None]: ...
@overload
def flash_attn_kvpacked_func(
    q: ArrayT, kv: Array, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int | None, int | None] = (-1, -1), softcap: float = 0.0, alibi_slopes: Array | None = None,
    deterministic: bool = False, return_attn_probs: bool = False
) -> ArrayT | tuple[ArrayT, ArrayT, None]: ...
def flash_attn_kvpacked_func(
    q: ArrayT, kv: Array, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int | None, int | None] = (-1, -1), softcap: float = 0.0, alibi_slopes: Array | None = None,
    deterministic: bool = False, return_attn_probs: bool = False
) -> ArrayT | tuple[ArrayT, ArrayT, None]:
    """`flash_attn_func` of k and v in one tensor, kv (batch, seqlen_k, 2, heads_kv, head_dim)."""
    k, v = unpacked(shaped(kv, "kv", 5, 2), 2)
    return flash_attn_func(q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes,
                           deterministic, return_attn_probs)


@overload
def flash_attn_qkvpacked_func(
    qkv: ArrayT, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int | None, int | None] = (-1, -1), softcap: float = 0.0, alibi_slopes: Array | None = None,
    deterministic: bool = False, return_attn_probs: Literal[False] = False
) -> ArrayT: ...
@overload
def flash_attn_qkvpacked_func(
    qkv: ArrayT, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int | None, int | None] = (-1, -1), softcap: float = 0.0, alibi_slopes: Array | None = None,
    deterministic: bool = False, *, return_attn_probs: Literal[True]
) -> tuple[ArrayT, ArrayT, None]: ...
@overload
def flash_attn_qkvpacked_func(
    qkv: ArrayT, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int | None, int | None] = (-1, -1), softcap: float = 0.0, alibi_slopes: Array | None = None,
    deterministic: bool = False, return_attn_probs: bool = False
) -> ArrayT | tuple[ArrayT, ArrayT, None]: ...
def flash_attn_qkvpacked_func(
    qkv: ArrayT, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int | None, int | None] = (-1, -1), softcap: float = 0.0, alibi_slopes: Array | None = None,
    deterministic: bool = False, return_attn_probs: bool = False
) -> ArrayT | tuple[ArrayT, ArrayT, None]:
    """`flash_attn_func` of q, k and v in one tensor, qkv (batch, seqlen, 3, heads, head_dim)."""
    q, k, v = unpacked(shaped(qkv, "qkv", 5, 3), 2)
    return flash_attn_func(q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes,
                           deterministic, return_attn_probs)


def check_probabilities(return_attn_probs, dropout_p):
    if return_attn_probs and dropout_p != 0:
        refuse("return_attn_probs", f"is True with dropout_p = {dropout_p}, and which probabilities were dropped is "
                                    "not kept: set one of them to 0, or call jit_attention.torch.attention for lse")


def shaped(array, name, dimensions, parts):
    """The array, checked to have this many dimensions, and `parts` along the third last."""
    if len(array.shape) != dimensions or array.shape[-3] != parts:
        lead = "batch, seqlen" if dimensions == 5 else "total"
        refuse(name, f"has shape {tuple(array.shape)}; it must be ({lead}, {parts}, heads, head_dim)")
    return array
