"""The choice of method "auto", which every rank derives alike from its own arguments."""

from __future__ import annotations

import torch

from ..mask import Mask
from ..score import Score
from . import heads
from .placement import Placement

#: Calls that get "arrive". It was ahead of all other methods for causal attention with 32/8 heads of 128, forward and with
#: gradients. Packed documents, for which "gather" was ahead, and more ranks, which were not measured, do not get it.
_ARRIVE_RANKS, _ARRIVE_TOKENS, _ARRIVE_GRANULE, _ARRIVE_CAPABILITY = 2, 8192, 128, (9, 0)


def choose(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, size: int, placement: Placement, mask: Mask | None,
           score: Score | None, dropout_p: float) -> str:
    """The method of a call over `size` ranks of a host."""
    if placement.ranks != size:
        return "gather"  # which refuses it
    if arrives(placement, mask, max(q.shape[3], v.shape[3])) and _is_hopper(q.device):
        return "arrive"
    return cheapest(q.shape[2:], k.shape[2:], v.shape[3], placement, mask, score, dropout_p)


def arrives(placement: Placement, mask: Mask | None, columns: int) -> bool:
    """Whether "auto" chooses "arrive" on GPUs that have its kernels."""
    return (placement.ranks == _ARRIVE_RANKS and placement.seqlen >= _ARRIVE_TOKENS and columns <= 256
            and placement.granule % _ARRIVE_GRANULE == 0 and min(map(placement.rows, range(placement.ranks))) > 0
            and not placement.documents and (mask is None or not mask.tensors))


def cheapest(of_q: tuple[int, ...], of_k: tuple[int, ...], columns_v: int, placement: Placement, mask: Mask | None,
             score: Score | None, dropout_p: float) -> str:
    """The method by which fewer bytes travel in the forward pass. `of_q` and `of_k` are (heads, head_dim)."""
    size = placement.ranks
    per_key = of_k[0] * (of_k[1] + columns_v)
    per_query = of_q[0] * (of_q[1] + columns_v)
    by_gather = max(placement.remote) * per_key
    by_heads = max(map(placement.rows, range(size))) * (size - 1) / size * (per_key + per_query)
    if by_heads >= by_gather:
        return "gather"
    return "gather" if heads.refusal(of_q[0], of_k[0], mask, score, dropout_p, size) else "heads"


def _is_hopper(device: torch.device) -> bool:
    if device.type != "cuda":
        return False
    properties = torch.cuda.get_device_properties(device)
    return (properties.major, properties.minor) == _ARRIVE_CAPABILITY
