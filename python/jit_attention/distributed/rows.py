"""Keys and values concatenated for transfers."""

from __future__ import annotations

import torch


def beside(k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Keys and values (batch, rows, heads, …) as (rows, batch, both rows' elements); without a copy for results of
    `apart`."""
    both = k._base
    if both is not None and both is v._base and both.dim() == 3 and k.data_ptr() == both.data_ptr():
        if all((x.data_ptr(), x.shape, x.stride()) == (y.data_ptr(), y.shape, y.stride()) for x, y in zip((k, v), apart(both, k, v))):
            return both
    return torch.cat([k.transpose(0, 1).flatten(2), v.transpose(0, 1).flatten(2)], -1)


def apart(rows: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The inverse, as views with the heads and elements of k and v."""
    (_, _, heads, columns), columns_v = k.shape, v.shape[3]
    of_k, of_v = rows.split_with_sizes([heads * columns, v.shape[2] * columns_v], -1)
    count = rows.shape[:2]
    return (of_k.view(*count, heads, columns).transpose(0, 1), of_v.view(*count, v.shape[2], columns_v).transpose(0, 1))
