"""Caches that ranks share out, as engines' decode context parallelism has it: runs of positions go to ranks in turn.

Every rank attends to its keys with the query heads of all ranks, and what they return is merged by LSE. Masks see positions
of whole sequences, so that windows, and requests of several new tokens, need nothing else.
"""

from dataclasses import dataclass

import torch


def lengths_here(lengths, rank, ranks, run):
    """How many of so many keys a rank holds, in the dtype of `lengths`."""
    rounds = lengths // (ranks * run)
    return rounds * run + (lengths - rounds * (ranks * run) - rank * run).clamp(0, run)


def places_here(rank, ranks, run, device):
    """Where a rank's keys stand, as `k_positions` of attention, int32 (1, 1, 4)."""
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
        """The result of attention."""
        return dict(k_positions=self.places, seqused_k=self.seqused_k, global_seqlens=self.lengths)


def with_sinks(o, lse, sinks):
    """o (tokens, heads, head_dim) over the keys of all ranks, with LSE (tokens, heads), as it is with sinks (heads), which
    count once. Without keys o is 0."""
    if sinks is None:
        return o
    return o * torch.sigmoid(lse - sinks).nan_to_num(0)[..., None]
