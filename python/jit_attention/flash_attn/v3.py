"""The functions of FlashAttention-3: ``from jit_attention.flash_attn.v3 import flash_attn_func``.

They differ from those of flash-attention 2 in the order of arguments, and in what they return beside the output.
Arguments say the same where names are the same. `pack_gqa`, `sm_margin`, `scheduler_metadata`, `max_seqlen_q` and
`max_seqlen_k` are hints on which results do not depend, and are not looked at.
"""

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


def flash_attn_func(q, k, v, softmax_scale=None, causal=False, qv=None, q_descale=None, k_descale=None, v_descale=None,
                    window_size=(-1, -1), attention_chunk=0, softcap=0.0, num_splits=1, pack_gqa=None,
                    deterministic=False, sm_margin=0, return_attn_probs=False):
    """`jit_attention.flash_attn.flash_attn_func` in FlashAttention-3's order. Returns o, or (o, lse).

    Args:
        attention_chunk: not 0: a query sees keys of its own chunk alone, of so many; with gradients, too.
        num_splits: blocks that may share the keys of some queries, at most; 0: as many as pay.
        q_descale, k_descale, v_descale: fp32 (batch, heads_kv), or of other shapes that `jit_attention.attention` takes: what
            q, k and v of fp8 are multiplied by. Without gradients; o is bf16. k and v alone may be of fp8, too.
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


def flash_attn_qkvpacked_func(qkv, softmax_scale=None, causal=False, q_descale=None, k_descale=None, v_descale=None,
                              window_size=(-1, -1), attention_chunk=0, softcap=0.0, deterministic=False,
                              num_heads_q=None, sm_margin=0, return_attn_probs=False):
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


def flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, seqused_q=None,
                           seqused_k=None, softmax_scale=None, causal=False, qv=None, q_descale=None, k_descale=None,
                           v_descale=None, window_size=(-1, -1), attention_chunk=0, softcap=0.0, num_splits=1,
                           pack_gqa=None, deterministic=False, sm_margin=0, return_attn_probs=False):
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


def flash_attn_with_kvcache(q, k_cache, v_cache, k=None, v=None, qv=None, rotary_cos=None, rotary_sin=None,
                            cache_seqlens=None, cache_batch_idx=None, cache_leftpad=None, page_table=None,
                            cu_seqlens_q=None, cu_seqlens_k_new=None, max_seqlen_q=None, rotary_seqlens=None,
                            q_descale=None, k_descale=None, v_descale=None, softmax_scale=None, causal=False,
                            window_size=(-1, -1), attention_chunk=0, softcap=0.0, rotary_interleaved=True,
                            scheduler_metadata=None, num_splits=0, pack_gqa=None, sm_margin=0,
                            return_softmax_lse=False):
    """`jit_attention.flash_attn.flash_attn_with_kvcache` in FlashAttention-3's order.

    Args:
        cu_seqlens_q: int32 (batch + 1): q is varlen, (total_q, heads_q, head_dim), and so are the results.
        cu_seqlens_k_new: int32 (batch + 1): k and v are varlen. Give the array of cu_seqlens_q itself where new keys
            are those of the queries: then q is rotated in the kernel that stores k and v.
        rotary_seqlens: int32 (batch): positions that queries and new keys begin at; None: cache_seqlens.
        attention_chunk, qv, q_descale, k_descale, v_descale: as those of `flash_attn_func`. Caches of fp8 are read with q of
            fp8, or of 16 bits; new keys are stored there by `jit_attention.append`.

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


def get_scheduler_metadata(*args, **kwargs):
    """None: blocks find their work by themselves. For programs that hand it on as scheduler_metadata."""
    return None
