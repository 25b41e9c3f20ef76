"""Caches sharded over ranks, as in engines' decode context parallelism: runs of positions go to ranks in turn.

Every rank attends to its keys with all ranks' query heads, and the results are merged by LSE. Masks see positions in
whole sequences, so that windows, and requests of several new tokens, need nothing else.
"""

from dataclasses import dataclass

import torch


def lengths_here(lengths, rank, ranks, run):
    """Number of keys that a rank holds for these lengths, in the dtype of `lengths`."""
    rounds = lengths // (ranks * run)
    return rounds * run + (lengths - rounds * (ranks * run) - rank * run).clamp(0, run)


def places_here(rank, ranks, run, device):
    """Positions of a rank's keys, as `k_positions` of attention, int32 (1, 1, 4)."""
    return torch.tensor([[[0, rank * run, run, ranks * run]]], dtype=torch.int32, device=device)


@dataclass
class SharedKeys:
    """Metadata of a step's keys that are sharded over ranks, for all layers.

    Attributes:
        places: `places_here` of this rank.
        seqused_k: int32 (requests), of each request the keys that are here, new ones included.
        lengths: int32 (requests, 2), its new tokens, and its keys on all ranks.
        are_new: Whether the step has all keys, because no request had any before.
    """

    places: torch.Tensor
    seqused_k: torch.Tensor
    lengths: torch.Tensor
    are_new: bool = False

    def arguments(self):
        """Keyword arguments for attention."""
        return dict(k_positions=self.places, seqused_k=self.seqused_k, global_seqlens=self.lengths)


def with_sinks(o, lse, sinks):
    """o (tokens, heads, head_dim) over all ranks' keys, with LSE (tokens, heads), corrected for sinks (heads), which
    count once. Without keys o is 0."""
    if sinks is None:
        return o
    return o * torch.sigmoid(lse - sinks).nan_to_num(0)[..., None]
