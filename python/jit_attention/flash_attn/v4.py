"""The functions of FlashAttention-4: ``from jit_attention.flash_attn.v4 import flash_attn_func``.

They differ from those of flash-attention 2 in the order of arguments, and always return (o, lse), where lse is None
if it was not asked for. `pack_gqa`, `scheduler_metadata`, `disable_scheduler_metadata`, `max_seqlen_q`,
`max_seqlen_k` and `min_seqlen_k` do not change results, and are ignored.
"""

from __future__ import annotations

from typing import Any, Literal, overload

from ..typing import Array, ArrayT, DTypeObject, OutputDType
from .arrays import attend
from .combine import flash_attn_combine as _combine
from .problem import problem
from .refusals import refuse_given

__all__ = ["flash_attn_combine", "flash_attn_func", "flash_attn_varlen_func"]


@overload
def flash_attn_func(
    q: ArrayT, k: Array, v: Array, qv: Array | None = None, gather_kv_indices: Any = None,
    softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int | None, int | None] = (None, None), learnable_sink: Array | None = None,
    softcap: float = 0.0, num_splits: int = 1, pack_gqa: bool | None = None, deterministic: bool = False,
    score_mod: Any = None, score_mod_bwd: Any = None, mask_mod: Any = None, aux_tensors: Any = None,
    aux_scalars: Any = None, block_sparse_tensors: Any = None, block_sparse_tensors_bwd: Any = None,
    return_lse: Literal[False] = False
) -> tuple[ArrayT, None]: ...
@overload
def flash_attn_func(
    q: ArrayT, k: Array, v: Array, qv: Array | None = None, gather_kv_indices: Any = None,
    softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int | None, int | None] = (None, None), learnable_sink: Array | None = None,
    softcap: float = 0.0, num_splits: int = 1, pack_gqa: bool | None = None, deterministic: bool = False,
    score_mod: Any = None, score_mod_bwd: Any = None, mask_mod: Any = None, aux_tensors: Any = None,
    aux_scalars: Any = None, block_sparse_tensors: Any = None, block_sparse_tensors_bwd: Any = None, *,
    return_lse: Literal[True]
) -> tuple[ArrayT, ArrayT]: ...
@overload
def flash_attn_func(
    q: ArrayT, k: Array, v: Array, qv: Array | None = None, gather_kv_indices: Any = None,
    softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int | None, int | None] = (None, None), learnable_sink: Array | None = None,
    softcap: float = 0.0, num_splits: int = 1, pack_gqa: bool | None = None, deterministic: bool = False,
    score_mod: Any = None, score_mod_bwd: Any = None, mask_mod: Any = None, aux_tensors: Any = None,
    aux_scalars: Any = None, block_sparse_tensors: Any = None, block_sparse_tensors_bwd: Any = None,
    return_lse: bool = False
) -> tuple[ArrayT, ArrayT | None]: ...
def flash_attn_func(
    q: ArrayT, k: Array, v: Array, qv: Array | None = None, gather_kv_indices: Any = None,
    softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int | None, int | None] = (None, None), learnable_sink: Array | None = None,
    softcap: float = 0.0, num_splits: int = 1, pack_gqa: bool | None = None, deterministic: bool = False,
    score_mod: Any = None, score_mod_bwd: Any = None, mask_mod: Any = None, aux_tensors: Any = None,
    aux_scalars: Any = None, block_sparse_tensors: Any = None, block_sparse_tensors_bwd: Any = None,
    return_lse: bool = False
) -> tuple[ArrayT, ArrayT | None]:
    """`jit_attention.flash_attn.flash_attn_func` in FlashAttention-4's order. Returns (o, lse or None).

    Args:
        window_size: keys that a query sees before its own position and after it; None: all. A side below 0 ends on
            the other side of that position; a window of which nothing is left, as (−1, −1), is none.
        learnable_sink: (heads_q), of 16 bits or fp32: a score of each head without a value; with a gradient.
        num_splits: The largest number of thread blocks that share the keys of a query. 0: the library chooses.
        qv, gather_kv_indices, score_mod, score_mod_bwd, mask_mod, aux_tensors, aux_scalars, block_sparse_tensors,
            block_sparse_tensors_bwd: refused.
    """
    refuse_given(qv=qv, gather_kv_indices=gather_kv_indices, score_mod=score_mod, score_mod_bwd=score_mod_bwd,
                 mask_mod=mask_mod, aux_tensors=aux_tensors, aux_scalars=aux_scalars,
                 block_sparse_tensors=block_sparse_tensors, block_sparse_tensors_bwd=block_sparse_tensors_bwd)
    given = problem(softmax_scale=softmax_scale, causal=causal, window_size=window_size, softcap=softcap,
                    learnable_sink=learnable_sink, window_may_shift=True)
    result = attend(q, k, v, deterministic=deterministic, num_splits=num_splits, return_lse=return_lse, **given)
    return result if return_lse else (result, None)


@overload
def flash_attn_varlen_func(
    q: ArrayT, k: Array, v: Array, qv: Array | None = None, cu_seqlens_q: Array | None = None,
    cu_seqlens_k: Array | None = None, max_seqlen_q: int | None = None, max_seqlen_k: int | None = None,
    min_seqlen_k: Any = None, seqused_q: Array | None = None, seqused_k: Array | None = None,
    gather_kv_indices: Any = None, page_table: Array | None = None, softmax_scale: float | None = None,
    causal: bool = False, window_size: tuple[int | None, int | None] = (None, None),
    learnable_sink: Array | None = None, softcap: float = 0.0, num_splits: int = 1, pack_gqa: bool | None = None,
    deterministic: bool = False, score_mod: Any = None, score_mod_bwd: Any = None, mask_mod: Any = None,
    block_sparse_tensors: Any = None, aux_tensors: Any = None, aux_scalars: Any = None,
    return_lse: Literal[False] = False, scheduler_metadata: Any = None, seqlen_k_per_split: Any = None,
    disable_scheduler_metadata: Any = False
) -> tuple[ArrayT, None]: ...
@overload
def flash_attn_varlen_func(
    q: ArrayT, k: Array, v: Array, qv: Array | None = None, cu_seqlens_q: Array | None = None,
    cu_seqlens_k: Array | None = None, max_seqlen_q: int | None = None, max_seqlen_k: int | None = None,
    min_seqlen_k: Any = None, seqused_q: Array | None = None, seqused_k: Array | None = None,
    gather_kv_indices: Any = None, page_table: Array | None = None, softmax_scale: float | None = None,
    causal: bool = False, window_size: tuple[int | None, int | None] = (None, None),
    learnable_sink: Array | None = None, softcap: float = 0.0, num_splits: int = 1, pack_gqa: bool | None = None,
    deterministic: bool = False, score_mod: Any = None, score_mod_bwd: Any = None, mask_mod: Any = None,
    block_sparse_tensors: Any = None, aux_tensors: Any = None, aux_scalars: Any = None, *,
    return_lse: Literal[True], scheduler_metadata: Any = None, seqlen_k_per_split: Any = None,
    disable_scheduler_metadata: Any = False
) -> tuple[ArrayT, ArrayT]: ...
@overload
def flash_attn_varlen_func(
    q: ArrayT, k: Array, v: Array, qv: Array | None = None, cu_seqlens_q: Array | None = None,
    cu_seqlens_k: Array | None = None, max_seqlen_q: int | None = None, max_seqlen_k: int | None = None,
    min_seqlen_k: Any = None, seqused_q: Array | None = None, seqused_k: Array | None = None,
    gather_kv_indices: Any = None, page_table: Array | None = None, softmax_scale: float | None = None,
    causal: bool = False, window_size: tuple[int | None, int | None] = (None, None),
    learnable_sink: Array | None = None, softcap: float = 0.0, num_splits: int = 1, pack_gqa: bool | None = None,
    deterministic: bool = False, score_mod: Any = None, score_mod_bwd: Any = None, mask_mod: Any = None,
    block_sparse_tensors: Any = None, aux_tensors: Any = None, aux_scalars: Any = None, return_lse: bool = False,
    scheduler_metadata: Any = None, seqlen_k_per_split: Any = None, disable_scheduler_metadata: Any = False
) -> tuple[ArrayT, ArrayT | None]: ...
def flash_attn_varlen_func(
    q: ArrayT, k: Array, v: Array, qv: Array | None = None, cu_seqlens_q: Array | None = None,
    cu_seqlens_k: Array | None = None, max_seqlen_q: int | None = None, max_seqlen_k: int | None = None,
    min_seqlen_k: Any = None, seqused_q: Array | None = None, seqused_k: Array | None = None,
    gather_kv_indices: Any = None, page_table: Array | None = None, softmax_scale: float | None = None,
    causal: bool = False, window_size: tuple[int | None, int | None] = (None, None),
    learnable_sink: Array | None = None, softcap: float = 0.0, num_splits: int = 1, pack_gqa: bool | None = None,
    deterministic: bool = False, score_mod: Any = None, score_mod_bwd: Any = None, mask_mod: Any = None,
    block_sparse_tensors: Any = None, aux_tensors: Any = None, aux_scalars: Any = None, return_lse: bool = False,
    scheduler_metadata: Any = None, seqlen_k_per_split: Any = None, disable_scheduler_metadata: Any = False
) -> tuple[ArrayT, ArrayT | None]:
    """`jit_attention.flash_attn.flash_attn_varlen_func` in FlashAttention-4's order. Returns (o, lse or None).

    Args:
        q, k, v: varlen with cu_seqlens_q and cu_seqlens_k, else (batch, seqlen, heads, head_dim); k and v are pages
            with page_table.
        seqused_q, seqused_k: int32 (batch): queries and keys of each sequence, where it has room for more.
        page_table: int32 (batch, max_pages): the pages of each sequence.
        qv, gather_kv_indices, score_mod, score_mod_bwd, mask_mod, block_sparse_tensors, aux_tensors, aux_scalars,
            seqlen_k_per_split: refused.
    """
    refuse_given(qv=qv, gather_kv_indices=gather_kv_indices, score_mod=score_mod, score_mod_bwd=score_mod_bwd,
                 mask_mod=mask_mod, block_sparse_tensors=block_sparse_tensors, aux_tensors=aux_tensors,
                 aux_scalars=aux_scalars, seqlen_k_per_split=seqlen_k_per_split)
    given = problem(softmax_scale=softmax_scale, causal=causal, window_size=window_size, softcap=softcap,
                    learnable_sink=learnable_sink, window_may_shift=True)
    result = attend(q, k, v, deterministic=deterministic, num_splits=num_splits, return_lse=return_lse,
                    cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, seqused_q=seqused_q, seqused_k=seqused_k,
                    page_table=page_table, **given)
    return result if return_lse else (result, None)


@overload
def flash_attn_combine(
    out_partial: ArrayT, lse_partial: Array, out: Array | None = None, out_dtype: OutputDType | DTypeObject | None = None,
    cu_seqlens: Array | None = None, seqused: Any = None, virtual_batch_idx: Any = None,
    return_lse: Literal[True] = True
) -> tuple[ArrayT, ArrayT]: ...
@overload
def flash_attn_combine(
    out_partial: ArrayT, lse_partial: Array, out: Array | None = None, out_dtype: OutputDType | DTypeObject | None = None,
    cu_seqlens: Array | None = None, seqused: Any = None, virtual_batch_idx: Any = None, *,
    return_lse: Literal[False]
) -> tuple[ArrayT, None]: ...
@overload
def flash_attn_combine(
    out_partial: ArrayT, lse_partial: Array, out: Array | None = None, out_dtype: OutputDType | DTypeObject | None = None,
    cu_seqlens: Array | None = None, seqused: Any = None, virtual_batch_idx: Any = None, return_lse: bool = True
) -> tuple[ArrayT, ArrayT | None]: ...
def flash_attn_combine(
    out_partial: ArrayT, lse_partial: Array, out: Array | None = None, out_dtype: OutputDType | DTypeObject | None = None,
    cu_seqlens: Array | None = None, seqused: Any = None, virtual_batch_idx: Any = None, return_lse: bool = True
) -> tuple[ArrayT, ArrayT | None]:
    """`jit_attention.flash_attn.flash_attn_combine`, which also merges padding rows.

    cu_seqlens and seqused are ignored; virtual_batch_idx is refused.
    """
    refuse_given(virtual_batch_idx=virtual_batch_idx)
    o, lse = _combine(out_partial, lse_partial, out, out_dtype)
    return o, lse if return_lse else None
