"""Keys and values side by side, as they travel."""

from __future__ import annotations

import torch


def beside(k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Keys and values (batch, rows, heads, …) as (rows, batch, elements of both)."""
    return torch.cat([x.transpose(0, 1).flatten(2) for x in (k, v)], -1)


def apart(rows: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The inverse, of as many heads and elements as k and v have, without a copy."""
    parts = rows.split([k.shape[2] * k.shape[3], v.shape[2] * v.shape[3]], -1)
    of_k, of_v = (part.unflatten(-1, x.shape[2:]).transpose(0, 1) for part, x in zip(parts, (k, v)))
    return of_k, of_v
