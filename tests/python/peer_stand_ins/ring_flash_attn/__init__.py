"""Stands for the package of this name: its functions as bench/comparison/group_packages.py calls them, over all keys gathered."""

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as collectives
from flash_attn.flash_attn_interface import _flash_attn_backward, _flash_attn_forward  # noqa: F401

from .adapters import substitute_hf_flash_attn, update_ring_flash_attn_params  # noqa: F401


def attend(q, k, v, positions, documents, causal, group):
    """Of rows at `positions` of all ranks, one behind the other; `documents` are ids of all positions."""
    rank = dist.get_rank(group)
    k, v = (torch.cat(collectives.all_gather(x.contiguous(), group), 1) for x in (k, v))
    own = positions.view(dist.get_world_size(group), -1)[rank]
    keep = documents[own][:, None] == documents[positions][None]
    if causal:
        keep &= own[:, None] >= positions[None]
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    o = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=keep, enable_gqa=True)
    return o.transpose(1, 2)


def zigzag(seqlen, ranks):
    parts = torch.arange(seqlen).chunk(2 * ranks)
    return torch.cat([torch.cat([parts[rank], parts[-1 - rank]]) for rank in range(ranks)])


def zigzag_ring_flash_attn_func(q, k, v, causal, group):
    seqlen, ranks = q.shape[1] * dist.get_world_size(group), dist.get_world_size(group)
    return attend(q, k, v, zigzag(seqlen, ranks), torch.zeros(seqlen), causal, group)


def llama3_flash_attn_prepare_cu_seqlens(cu_seqlens, causal, rank, world_size):
    assert cu_seqlens.dtype == torch.int32 and cu_seqlens[0] == 0
    return cu_seqlens, cu_seqlens, world_size, rank, slice(0, 0)


def llama3_flash_attn_varlen_func(q, k, v, cu_q, cu_k, max_q, max_k, heads_k_stride, local_k_slice, causal, group):
    documents = torch.repeat_interleave(torch.arange(len(cu_q) - 1), cu_q.diff())
    return attend(q[None], k[None], v[None], torch.arange(len(documents)), documents, causal, group)[0]
