"""FlashMLA's attention over a latent cache: all of a request's latents, or those that queries selected."""

from __future__ import annotations

from typing import Any

import torch

from .. import mask
from ..sparse import Scope, scopes
from ..torch import attention
from .results import check_sink, finish, refuse, refuse_gradients, strided

#: Formats of 8-bit rows, by bytes per row.
_FORMATS = {656: "latent_656", 584: "latent_584", 528: "latent_528"}


class FlashMLASchedMeta:
    """FlashMLA's metadata of planned work. Nothing is planned here, so any calls may share it."""


def get_mla_metadata(*args: Any, **kwargs: Any) -> tuple[FlashMLASchedMeta, None]:
    """Returns what `flash_mla_with_kvcache` takes as tile_scheduler_metadata and num_splits.

    Args:
        *args: Anything, as FlashMLA allows.
        **kwargs: Anything.

    Returns:
        A FlashMLASchedMeta, and None.

    Examples:
        >>> from jit_attention.flash_mla import get_mla_metadata
        >>> get_mla_metadata()[1] is None
        True
    """
    return FlashMLASchedMeta(), None


def flash_mla_with_kvcache(
    q: torch.Tensor, k_cache: torch.Tensor, block_table: torch.Tensor | None, cache_seqlens: torch.Tensor | None,
    head_dim_v: int, tile_scheduler_metadata: FlashMLASchedMeta | None = None, num_splits: None = None,
    softmax_scale: float | None = None, causal: bool = False, is_fp8_kvcache: bool = False,
    indices: torch.Tensor | None = None, attn_sink: torch.Tensor | None = None,
    extra_k_cache: torch.Tensor | None = None, extra_indices_in_kvcache: torch.Tensor | None = None,
    topk_length: torch.Tensor | None = None, extra_topk_length: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention over pages of latents, by one softmax.

    Args:
        q: (batch, s_q, h_q, head_dim), bf16 or fp16.
        k_cache: (pages, page_size, h_kv, head_dim) of q's type; with is_fp8_kvcache (pages, page_size, 1, bytes) of 8-bit
            rows of 656 bytes (DeepSeek V3.2), 584 (V4) or 528 (V4.1), which docs/mla.md describes.
        block_table: int32 (batch, max_pages). Not read with indices.
        cache_seqlens: int32 (batch): latents of each request. Not read with indices.
        head_dim_v: Columns of the values, the first ones of the cache.
        tile_scheduler_metadata: Not read.
        num_splits: Must be None.
        softmax_scale: Factor of q · k. None: 1/sqrt(head_dim).
        causal: Whether query i sees the keys up to cache_seqlens − s_q + i. Without indices.
        is_fp8_kvcache: Whether caches have 8-bit rows.
        indices: int32 (batch, s_q, topk): page · page_size + row of the page of each latent that a query sees. −1, and what
            names no row, is skipped. None: queries see all latents of their request.
        attn_sink: fp32 (h_q), with indices: out is multiplied by exp(lse) / (exp(lse) + exp(attn_sink)).
        extra_k_cache: A second cache, whose latents are seen as well; its pages may have another size.
        extra_indices_in_kvcache: int32 (batch, s_q, entries), as indices, for extra_k_cache.
        topk_length: int32 (batch): how many of the indices count. None: all.
        extra_topk_length: The same of extra_indices_in_kvcache.

    Returns:
        (out, lse): (batch, s_q, h_q, head_dim_v) of q's type; fp32 (batch, h_q, s_q), a natural logarithm without the sink,
        +∞ where a query sees no key.

    Raises:
        InvalidArgumentError: An argument is wrong.
        InvalidSpecError: No kernel serves the problem, such as on another architecture than sm_90a.

    Thread safety:
        Threads may call at the same time.

    Examples:
        >>> from jit_attention.flash_mla import flash_mla_with_kvcache, get_mla_metadata
        >>> q, pages = torch.ones(1, 2, 16, 576).bfloat16(), torch.ones(3, 64, 1, 576).bfloat16()
        >>> table, lengths = torch.tensor([[2, 0]]).int(), torch.tensor([70]).int()
        >>> out, lse = flash_mla_with_kvcache(q, pages, table, lengths, 512, *get_mla_metadata(), causal=True)
        >>> out.shape, lse.shape
        (torch.Size([1, 2, 16, 512]), torch.Size([1, 16, 2]))
    """
    refuse_gradients(q, k_cache, extra_k_cache, attn_sink)
    if q.dim() != 4:
        refuse("q", f"has {q.dim()} dimensions; it must have 4, (batch, s_q, h_q, head_dim)")
    if num_splits is not None:
        refuse("num_splits", "must be None, as get_mla_metadata returns it")
    if indices is None:
        for name, given in (("attn_sink", attn_sink), ("extra_k_cache", extra_k_cache), ("topk_length", topk_length),
                            ("extra_indices_in_kvcache", extra_indices_in_kvcache),
                            ("extra_topk_length", extra_topk_length)):
            if given is not None:
                refuse(name, "is given without indices; it is for chosen latents")
        return _all(q, k_cache, block_table, cache_seqlens, head_dim_v, softmax_scale, causal, is_fp8_kvcache)
    if causal:
        refuse("causal", "must be False with indices: lists say what queries see")
    if (extra_k_cache is None) != (extra_indices_in_kvcache is None):
        refuse("extra_k_cache" if extra_k_cache is None else "extra_indices_in_kvcache", "is missing beside the other one")
    check_sink(attn_sink, q.shape[2])
    pools = [_scope(q, k_cache, indices, topk_length, is_fp8_kvcache, "")]
    if extra_k_cache is not None:
        pools.append(_scope(q, extra_k_cache, extra_indices_in_kvcache, extra_topk_length, is_fp8_kvcache, "extra_"))
    batch, seqlen, heads = q.shape[:3]
    lse = q.new_empty(batch * seqlen, heads, dtype=torch.float32)
    # A merged result that is scaled afterwards is rounded last.
    is_wide = attn_sink is not None and len(pools) > 1
    out = q.new_empty(batch * seqlen, heads, head_dim_v, dtype=torch.float32 if is_wide else q.dtype)
    scopes(strided(q).reshape(batch * seqlen, heads, -1), *pools, head_dim_v=head_dim_v, softmax_scale=softmax_scale,
           return_lse=lse.t(), out=out)
    out, lse = finish(out, lse, attn_sink, q.dtype)
    return out.view(batch, seqlen, heads, -1), lse.view(batch, seqlen, heads).transpose(1, 2)


def _all(q, k_cache, block_table, cache_seqlens, head_dim_v, softmax_scale, causal, is_fp8_kvcache):
    """Attention to all latents of each request."""
    for name, given in (("block_table", block_table), ("cache_seqlens", cache_seqlens)):
        if given is None:
            refuse(name, "is missing; only indices say what queries see without it")
    k_cache, kv_dtype = _rows(k_cache, is_fp8_kvcache, "k_cache")
    out, lse = attention(strided(q), k_cache, None, head_dim_v=head_dim_v, kv_dtype=kv_dtype, page_table=block_table,
                         seqused_k=cache_seqlens, softmax_scale=softmax_scale, return_lse=True,
                         mask=mask.causal() if causal else None)
    return out, lse.masked_fill_(lse == -torch.inf, torch.inf)


def _scope(q, k_cache, indices, lengths, is_fp8_kvcache, prefix):
    """A cache, and each query's list of its rows."""
    batch, seqlen = q.shape[:2]
    name = "extra_indices_in_kvcache" if prefix else "indices"
    if indices.dim() != 3 or tuple(indices.shape[:2]) != (batch, seqlen):
        refuse(name, f"has shape {tuple(indices.shape)}; it must be ({batch}, {seqlen}, entries)")
    if lengths is not None and tuple(lengths.shape) != (batch,):
        refuse(f"{prefix}topk_length", f"has shape {tuple(lengths.shape)}; it must be ({batch},)")
    counts = None if lengths is None else lengths[:, None].expand(batch, seqlen).reshape(batch * seqlen, 1)
    k_cache, kv_dtype = _rows(k_cache, is_fp8_kvcache, f"{prefix}k_cache")
    return Scope(k_cache, strided(indices).reshape(batch * seqlen, 1, -1), counts, kv_dtype)


def _rows(k_cache, is_fp8_kvcache, name):
    """A cache in the library's layout, and its row format."""
    if not is_fp8_kvcache:
        return strided(k_cache), None
    kv_dtype = _FORMATS.get(k_cache.shape[-1])
    if kv_dtype is None or k_cache.element_size() != 1:
        refuse(name, f"has rows of {k_cache.shape[-1]} elements of {k_cache.dtype}; with is_fp8_kvcache they must be of 656, "
                     "584 or 528 bytes")
    return k_cache.view(torch.uint8), kv_dtype
