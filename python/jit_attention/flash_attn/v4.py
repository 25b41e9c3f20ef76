"""The functions of FlashAttention-4: ``from jit_attention.flash_attn.v4 import flash_attn_func``.

They differ from those of flash-attention 2 in the order of arguments, and return (o, lse) always, with None for an lse
that was not asked for. `pack_gqa`, `scheduler_metadata`, `disable_scheduler_metadata`, `max_seqlen_q`, `max_seqlen_k` and
`min_seqlen_k` are hints on which results do not depend, and are not looked at.
"""

from .arrays import attend
from .combine import flash_attn_combine as _combine
from .problem import problem
from .refusals import refuse_given

__all__ = ["flash_attn_combine", "flash_attn_func", "flash_attn_varlen_func"]


def flash_attn_func(q, k, v, qv=None, gather_kv_indices=None, softmax_scale=None, causal=False,
                    window_size=(None, None), learnable_sink=None, softcap=0.0, num_splits=1, pack_gqa=None,
                    deterministic=False, score_mod=None, score_mod_bwd=None, mask_mod=None, aux_tensors=None,
                    aux_scalars=None, block_sparse_tensors=None, block_sparse_tensors_bwd=None, return_lse=False):
    """`jit_attention.flash_attn.flash_attn_func` in FlashAttention-4's order. Returns (o, lse or None).

    Args:
        window_size: keys that a query sees before its own position and after it; None: all. A side below 0 ends on the
            other side of that position; a window of which nothing is left, as (−1, −1), is none.
        learnable_sink: (heads_q), of 16 bits or fp32: a score of each head without a value; with a gradient.
        num_splits: blocks that may share the keys of some queries, at most; 0: as many as pay.
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


def flash_attn_varlen_func(q, k, v, qv=None, cu_seqlens_q=None, cu_seqlens_k=None, max_seqlen_q=None,
                           max_seqlen_k=None, min_seqlen_k=None, seqused_q=None, seqused_k=None,
                           gather_kv_indices=None, page_table=None, softmax_scale=None, causal=False,
                           window_size=(None, None), learnable_sink=None, softcap=0.0, num_splits=1, pack_gqa=None,
                           deterministic=False, score_mod=None, score_mod_bwd=None, mask_mod=None,
                           block_sparse_tensors=None, aux_tensors=None, aux_scalars=None, return_lse=False,
                           scheduler_metadata=None, seqlen_k_per_split=None, disable_scheduler_metadata=False):
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


def flash_attn_combine(out_partial, lse_partial, out=None, out_dtype=None, cu_seqlens=None, seqused=None,
                       virtual_batch_idx=None, return_lse=True):
    """`jit_attention.flash_attn.flash_attn_combine`, with rows of nobody merged like others.

    cu_seqlens and seqused tell only which rows are somebody's, and are not looked at; virtual_batch_idx is refused.
    """
    refuse_given(virtual_batch_idx=virtual_batch_idx)
    o, lse = _combine(out_partial, lse_partial, out, out_dtype)
    return o, lse if return_lse else None
