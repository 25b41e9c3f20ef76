"""The functions of FlashAttention-3: ``from jit_attention.flash_attn.v3 import flash_attn_func``.

They differ from those of flash-attention 2 in the order of arguments, and in what they return beside the output.
Arguments say the same where names are the same. `pack_gqa`, `sm_margin`, `scheduler_metadata`, `max_seqlen_q` and
`max_seqlen_k` do not change results, and are ignored.
"""

from __future__ import annotations

from typing import Any, Literal, overload

from ..typing import Array, ArrayT
from .arrays import attend, beside, unpacked
from .combine import flash_attn_combine
from .dense import shaped
from .kvcache import attend_to_cache
from .problem import problem
from .refusals import refuse, refuse_given

__all__ = [
    "flash_attn_combine",
    "flash_attn_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_with_kvcache",
    "get_scheduler_metadata",
]


@overload
def flash_attn_func(
    q: ArrayT, k: Array, v: Array, softmax_scale: float | None = None, causal: bool = False,
    qv: Array | None = None, q_descale: Array | None = None, k_descale: Array | None = None,
    v_descale: Array | None = None, window_size: tuple[int | None, int | None] = (-1, -1), attention_chunk: int = 0,
    softcap: float = 0.0, num_splits: int = 1, pack_gqa: bool | None = None, deterministic: bool = False,
    sm_margin: int = 0, return_attn_probs: Literal[False] = False
) -> ArrayT: ...
@overload
def flash_attn_func(
    q: ArrayT, k: Array, v: Array, softmax_scale: float | None = None, causal: bool = False,
    qv: Array | None = None, q_descale: Array | None = None, k_descale: Array | None = None,
    v_descale: Array | None = None, window_size: tuple[int | None, int | None] = (-1, -1), attention_chunk: int = 0,
    softcap: float = 0.0, num_splits: int = 1, pack_gqa: bool | None = None, deterministic: bool = False,
    sm_margin: int = 0, *, return_attn_probs: Literal[True]
) -> tuple[ArrayT, ArrayT]: ...
@overload
def flash_attn_func(
    q: ArrayT, k: Array, v: Array, softmax_scale: float | None = None, causal: bool = False,
    qv: Array | None = None, q_descale: Array | None = None, k_descale: Array | None = None,
    v_descale: Array | None = None, window_size: tuple[int | None, int | None] = (-1, -1), attention_chunk: int = 0,
    softcap: float = 0.0, num_splits: int = 1, pack_gqa: bool | None = None, deterministic: bool = False,
    sm_margin: int = 0, return_attn_probs: bool = False
) -> ArrayT | tuple[ArrayT, ArrayT]: ...
def flash_attn_func(
    q: ArrayT, k: Array, v: Array, softmax_scale: float | None = None, causal: bool = False,
    qv: Array | None = None, q_descale: Array | None = None, k_descale: Array | None = None,
    v_descale: Array | None = None, window_size: tuple[int | None, int | None] = (-1, -1), attention_chunk: int = 0,
    softcap: float = 0.0, num_splits: int = 1, pack_gqa: bool | None = None, deterministic: bool = False,
    sm_margin: int = 0, return_attn_probs: bool = False
) -> ArrayT | tuple[ArrayT, ArrayT]:
    """`jit_attention.flash_attn.flash_attn_func` in FlashAttention-3's order. Returns o, or (o, lse).

    Args:
        attention_chunk: If it is not 0, a query sees only the keys of its own chunk of this length; with gradients.
        num_splits: The largest number of thread blocks that share the keys of a query. 0: the library chooses.
        q_descale, k_descale, v_descale: fp32 (batch, heads_kv), or another shape that `jit_attention.attention`
            takes: the dequantization scales of FP8 q, k and v, or of FP8 k and v. Without gradients; o is bf16 if q
            is FP8.
        qv: refused.
    """
    refuse_given(qv=qv)
    scales = _given(q_descale=q_descale, k_descale=k_descale, v_descale=v_descale)
    given = problem(softmax_scale=softmax_scale, causal=causal, window_size=window_size, softcap=softcap,
                    attention_chunk=attention_chunk)
    return attend(q, k, v, deterministic=deterministic, num_splits=num_splits, return_lse=return_attn_probs, **given,
                  **scales)


def _given(**arrays):
    return {name: array for name, array in arrays.items() if array is not None}


@overload
def flash_attn_qkvpacked_func(
    qkv: ArrayT, softmax_scale: float | None = None, causal: bool = False, q_descale: Array | None = None,
    k_descale: Array | None = None, v_descale: Array | None = None,
    window_size: tuple[int | None, int | None] = (-1, -1), attention_chunk: int = 0, softcap: float = 0.0,
    deterministic: bool = False, num_heads_q: int | None = None, sm_margin: int = 0,
    return_attn_probs: Literal[False] = False
) -> ArrayT: ...
@overload
def flash_attn_qkvpacked_func(
    qkv: ArrayT, softmax_scale: float | None = None, causal: bool = False, q_descale: Array | None = None,
    k_descale: Array | None = None, v_descale: Array | None = None,
    window_size: tuple[int | None, int | None] = (-1, -1), attention_chunk: int = 0, softcap: float = 0.0,
    deterministic: bool = False, num_heads_q: int | None = None, sm_margin: int = 0, *,
    return_attn_probs: Literal[True]
) -> tuple[ArrayT, ArrayT]: ...
@overload
def flash_attn_qkvpacked_func(
    qkv: ArrayT, softmax_scale: float | None = None, causal: bool = False, q_descale: Array | None = None,
    k_descale: Array | None = None, v_descale: Array | None = None,
    window_size: tuple[int | None, int | None] = (-1, -1), attention_chunk: int = 0, softcap: float = 0.0,
    deterministic: bool = False, num_heads_q: int | None = None, sm_margin: int = 0, return_attn_probs: bool = False
) -> ArrayT | tuple[ArrayT, ArrayT]: ...
def flash_attn_qkvpacked_func(
    qkv: ArrayT, softmax_scale: float | None = None, causal: bool = False, q_descale: Array | None = None,
    k_descale: Array | None = None, v_descale: Array | None = None,
    window_size: tuple[int | None, int | None] = (-1, -1), attention_chunk: int = 0, softcap: float = 0.0,
    deterministic: bool = False, num_heads_q: int | None = None, sm_margin: int = 0, return_attn_probs: bool = False
) -> ArrayT | tuple[ArrayT, ArrayT]:
    """`flash_attn_func` of qkv (batch, seqlen, 3, heads, head_dim).

    Or (batch, seqlen, heads_q + 2 · heads_kv, head_dim), with num_heads_q.
    """
    if len(qkv.shape) == 4:
        q, k, v = _heads(qkv, num_heads_q)
    else:
        if num_heads_q is not None:
            refuse("num_heads_q", "is given beside qkv of (batch, seqlen, 3, heads, head_dim), which says it: leave it out")
        q, k, v = unpacked(shaped(qkv, "qkv", 5, 3), 2)
    return flash_attn_func(q, k, v, softmax_scale, causal, None, q_descale, k_descale, v_descale, window_size,
                           attention_chunk, softcap, deterministic=deterministic, return_attn_probs=return_attn_probs)


def _heads(qkv, num_heads_q):
    heads = qkv.shape[2]
    if num_heads_q is None or not 0 < num_heads_q < heads or (heads - num_heads_q) % 2 != 0:
        refuse("num_heads_q", f"is {num_heads_q}, of {heads} heads in qkv; it must leave as many for k as for v")
    middle = (heads + num_heads_q) // 2
    return qkv[:, :, :num_heads_q], qkv[:, :, num_heads_q:middle], qkv[:, :, middle:]


@overload
def flash_attn_varlen_func(
    q: ArrayT, k: Array, v: Array, cu_seqlens_q: Array, cu_seqlens_k: Array, max_seqlen_q: int | None,
    max_seqlen_k: int | None, seqused_q: Array | None = None, seqused_k: Array | None = None,
    softmax_scale: float | None = None, causal: bool = False, qv: Array | None = None,
    q_descale: Array | None = None, k_descale: Array | None = None, v_descale: Array | None = None,
    window_size: tuple[int | None, int | None] = (-1, -1), attention_chunk: int = 0, softcap: float = 0.0,
    num_splits: int = 1, pack_gqa: bool | None = None, deterministic: bool = False, sm_margin: int = 0,
    return_attn_probs: Literal[False] = False
) -> ArrayT: ...
@overload
def flash_attn_varlen_func(
    q: ArrayT, k: Array, v: Array, cu_seqlens_q: Array, cu_seqlens_k: Array, max_seqlen_q: int | None,
    max_seqlen_k: int | None, seqused_q: Array | None = None, seqused_k: Array | None = None,
    softmax_scale: float | None = None, causal: bool = False, qv: Array | None = None,
    q_descale: Array | None = None, k_descale: Array | None = None, v_descale: Array | None = None,
    window_size: tuple[int | None, int | None] = (-1, -1), attention_chunk: int = 0, softcap: float = 0.0,
    num_splits: int = 1, pack_gqa: bool | None = None, deterministic: bool = False, sm_margin: int = 0, *,
    return_attn_probs: Literal[True]
) -> tuple[ArrayT, ArrayT]: ...
@overload
def flash_attn_varlen_func(
    q: ArrayT, k: Array, v: Array, cu_seqlens_q: Array, cu_seqlens_k: Array, max_seqlen_q: int | None,
    max_seqlen_k: int | None, seqused_q: Array | None = None, seqused_k: Array | None = None,
    softmax_scale: float | None = None, causal: bool = False, qv: Array | None = None,
    q_descale: Array | None = None, k_descale: Array | None = None, v_descale: Array | None = None,
    window_size: tuple[int | None, int | None] = (-1, -1), attention_chunk: int = 0, softcap: float = 0.0,
    num_splits: int = 1, pack_gqa: bool | None = None, deterministic: bool = False, sm_margin: int = 0,
    return_attn_probs: bool = False
) -> ArrayT | tuple[ArrayT, ArrayT]: ...
def flash_attn_varlen_func(
    q: ArrayT, k: Array, v: Array, cu_seqlens_q: Array, cu_seqlens_k: Array, max_seqlen_q: int | None,
    max_seqlen_k: int | None, seqused_q: Array | None = None, seqused_k: Array | None = None,
    softmax_scale: float | None = None, causal: bool = False, qv: Array | None = None,
    q_descale: Array | None = None, k_descale: Array | None = None, v_descale: Array | None = None,
    window_size: tuple[int | None, int | None] = (-1, -1), attention_chunk: int = 0, softcap: float = 0.0,
    num_splits: int = 1, pack_gqa: bool | None = None, deterministic: bool = False, sm_margin: int = 0,
    return_attn_probs: bool = False
) -> ArrayT | tuple[ArrayT, ArrayT]:
    """`jit_attention.flash_attn.flash_attn_varlen_func` in FlashAttention-3's order. Returns o, or (o, lse).

    Args:
        seqused_q, seqused_k: int32 (batch): queries and keys of each sequence, where it has room for more.
        attention_chunk, num_splits, qv, q_descale, k_descale, v_descale: as those of `flash_attn_func`.
    """
    refuse_given(qv=qv)
    scales = _given(q_descale=q_descale, k_descale=k_descale, v_descale=v_descale)
    given = problem(softmax_scale=softmax_scale, causal=causal, window_size=window_size, softcap=softcap,
                    attention_chunk=attention_chunk)
    return attend(q, k, v, deterministic=deterministic, num_splits=num_splits, return_lse=return_attn_probs,
                  cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, seqused_q=seqused_q, seqused_k=seqused_k,
                  **given, **scales)


@overload
def flash_attn_with_kvcache(
    q: ArrayT, k_cache: Array, v_cache: Array, k: Array | None = None, v: Array | None = None,
    qv: Array | None = None, rotary_cos: Array | None = None, rotary_sin: Array | None = None,
    cache_seqlens: Array | int | None = None, cache_batch_idx: Array | None = None,
    cache_leftpad: Array | None = None, page_table: Array | None = None, cu_seqlens_q: Array | None = None,
    cu_seqlens_k_new: Array | None = None, max_seqlen_q: int | None = None, rotary_seqlens: Array | None = None,
    q_descale: Array | None = None, k_descale: Array | None = None, v_descale: Array | None = None,
    softmax_scale: float | None = None, causal: bool = False, window_size: tuple[int | None, int | None] = (-1, -1),
    attention_chunk: int = 0, softcap: float = 0.0, rotary_interleaved: bool = True, scheduler_metadata: Any = None,
    num_splits: int = 0, pack_gqa: bool | None = None, sm_margin: int = 0,
    return_softmax_lse: Literal[False] = False
) -> ArrayT: ...
@overload
def flash_attn_with_kvcache(
    q: ArrayT, k_cache: Array, v_cache: Array, k: Array | None = None, v: Array | None = None,
    qv: Array | None = None, rotary_cos: Array | None = None, rotary_sin: Array | None = None,
    cache_seqlens: Array | int | None = None, cache_batch_idx: Array | None = None,
    cache_leftpad: Array | None = None, page_table: Array | None = None, cu_seqlens_q: Array | None = None,
    cu_seqlens_k_new: Array | None = None, max_seqlen_q: int | None = None, rotary_seqlens: Array | None = None,
    q_descale: Array | None = None, k_descale: Array | None = None, v_descale: Array | None = None,
    softmax_scale: float | None = None, causal: bool = False, window_size: tuple[int | None, int | None] = (-1, -1),
    attention_chunk: int = 0, softcap: float = 0.0, rotary_interleaved: bool = True, scheduler_metadata: Any = None,
    num_splits: int = 0, pack_gqa: bool | None = None, sm_margin: int = 0, *, return_softmax_lse: Literal[True]
) -> tuple[ArrayT, ArrayT, ArrayT, ArrayT]: ...
@overload
def flash_attn_with_kvcache(
    q: ArrayT, k_cache: Array, v_cache: Array, k: Array | None = None, v: Array | None = None,
    qv: Array | None = None, rotary_cos: Array | None = None, rotary_sin: Array | None = None,
    cache_seqlens: Array | int | None = None, cache_batch_idx: Array | None = None,
    cache_leftpad: Array | None = None, page_table: Array | None = None, cu_seqlens_q: Array | None = None,
    cu_seqlens_k_new: Array | None = None, max_seqlen_q: int | None = None, rotary_seqlens: Array | None = None,
    q_descale: Array | None = None, k_descale: Array | None = None, v_descale: Array | None = None,
    softmax_scale: float | None = None, causal: bool = False, window_size: tuple[int | None, int | None] = (-1, -1),
    attention_chunk: int = 0, softcap: float = 0.0, rotary_interleaved: bool = True, scheduler_metadata: Any = None,
    num_splits: int = 0, pack_gqa: bool | None = None, sm_margin: int = 0, return_softmax_lse: bool = False
) -> ArrayT | tuple[ArrayT, ArrayT, ArrayT, ArrayT]: ...
def flash_attn_with_kvcache(
    q: ArrayT, k_cache: Array, v_cache: Array, k: Array | None = None, v: Array | None = None,
    qv: Array | None = None, rotary_cos: Array | None = None, rotary_sin: Array | None = None,
    cache_seqlens: Array | int | None = None, cache_batch_idx: Array | None = None,
    cache_leftpad: Array | None = None, page_table: Array | None = None, cu_seqlens_q: Array | None = None,
    cu_seqlens_k_new: Array | None = None, max_seqlen_q: int | None = None, rotary_seqlens: Array | None = None,
    q_descale: Array | None = None, k_descale: Array | None = None, v_descale: Array | None = None,
    softmax_scale: float | None = None, causal: bool = False, window_size: tuple[int | None, int | None] = (-1, -1),
    attention_chunk: int = 0, softcap: float = 0.0, rotary_interleaved: bool = True, scheduler_metadata: Any = None,
    num_splits: int = 0, pack_gqa: bool | None = None, sm_margin: int = 0, return_softmax_lse: bool = False
) -> ArrayT | tuple[ArrayT, ArrayT, ArrayT, ArrayT]:
    """`jit_attention.flash_attn.flash_attn_with_kvcache` in FlashAttention-3's order.

    Args:
        cu_seqlens_q: int32 (batch + 1): q is varlen, (total_q, heads_q, head_dim), and so are the results.
        cu_seqlens_k_new: int32 (batch + 1): k and v are varlen. If the new keys are those of the queries, pass the
            same array object as cu_seqlens_q: then one kernel stores k and v and rotates q.
        rotary_seqlens: int32 (batch): positions that queries and new keys begin at; None: cache_seqlens.
        attention_chunk, qv, q_descale, k_descale, v_descale: as those of `flash_attn_func`. FP8 caches are read with
            FP8 or 16-bit q; `jit_attention.append` stores new keys there.

    Returns:
        o, or (o, lse, empty, empty): there are no partial results to return.
    """
    refuse_given(qv=qv)
    scales = _given(q_descale=q_descale, k_descale=k_descale, v_descale=v_descale)
    if scales and k is not None:
        refuse("k", f"is given beside {next(iter(scales))}, and new keys of fp8 caches are stored by a call of their own: "
                    "give them to jit_attention.append before")
    if rotary_seqlens is not None and rotary_cos is None:
        refuse("rotary_seqlens", "is given without rotary_cos and rotary_sin, and nothing is rotated: leave it out")
    if cu_seqlens_k_new is not None and k is None:
        refuse("cu_seqlens_k_new", "is given without k and v: leave it out")
    result = attend_to_cache(
        q, k_cache, v_cache, k, v, rotary_cos, rotary_sin, cache_seqlens, cache_batch_idx, cache_leftpad,
        page_table=page_table, num_splits=num_splits, return_lse=return_softmax_lse,
        rotary_interleaved=rotary_interleaved, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k_new=cu_seqlens_k_new,
        rotary_seqlens=rotary_seqlens, softmax_scale=softmax_scale, causal=causal, window_size=window_size,
        softcap=softcap, scales=scales, alibi_slopes=None, attention_chunk=attention_chunk)
    if not return_softmax_lse:
        return result
    module, place = beside(q)
    empty = module.empty((0,), dtype=module.float32, **place)
    return (*result, empty, empty)


def get_scheduler_metadata(*args: Any, **kwargs: Any) -> None:
    """Returns None, for programs that pass it on as scheduler_metadata: kernels schedule their work themselves."""
    return None
