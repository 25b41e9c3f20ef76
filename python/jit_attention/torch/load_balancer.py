"""Placements for PyTorch's own context parallelism."""

from __future__ import annotations

from typing import Any

import torch

from ..distributed.placement import Placement
from ..errors import InvalidArgumentError

try:
    from torch.distributed.tensor.experimental._context_parallel._load_balancer import _LoadBalancer as _Base
except ImportError:  # a prototype of PyTorch, which may move
    _Base = object  # type: ignore[assignment, misc]


class LoadBalancer(_Base):
    """A placement as a load balancer of PyTorch's context parallelism, which FlexAttention's `BlockMask` takes, too.

    Pass it where ``torch.distributed.tensor.experimental._context_parallel`` takes a ``load_balancer``. PyTorch's shards
    are of equal size.

    Args:
        placement: As `jit_attention.distributed.balance` made it, with as many rows for each rank.
        device: The device of the index tensors.

    Raises:
        InvalidArgumentError: Ranks have different numbers of rows.

    Examples:
        >>> placement = jit_attention.distributed.balance(jit_attention.mask.causal(), seqlen=512, ranks=2, mode="zigzag")
        >>> indices = jit_attention.torch.LoadBalancer(placement)._generate_indices()
        >>> indices.shape, indices[0, 128].item()
        (torch.Size([1, 512]), 384)
    """

    def __init__(self, placement: Placement, device: Any = "cpu") -> None:
        rows = {placement.rows(rank) for rank in range(placement.ranks)}
        if len(rows) > 1:
            raise InvalidArgumentError(f"placement: has from {min(rows)} to {max(rows)} rows by rank, and PyTorch's shards "
                                       "are equal: pad the sequence to a multiple of ranks · granule", "arguments",
                                       "placement")
        self.placement = placement
        self.device = device

    def _generate_indices(self, restore: bool = False) -> torch.Tensor:
        """int64 (1, seqlen): the positions of all shards, one behind the other, or with restore the inverse."""
        positions = torch.cat([self.placement.positions(rank, device=self.device) for rank in range(self.placement.ranks)])
        return (positions.argsort() if restore else positions)[None]
