"""DTensors that are sharded along the sequence."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.tensor import DTensor, Replicate, Shard

from ..errors import InvalidArgumentError


def mesh_of(q: Any, k: Any, v: Any, dim: int) -> Any:
    """The mesh of q, k and v if they are DTensors; None for plain tensors."""
    kinds = {isinstance(x, DTensor) for x in (q, k, v)}
    if kinds == {False}:
        return None
    if len(kinds) > 1:
        raise InvalidArgumentError("k: q, k and v must be all DTensors or none of them", "arguments", "k")
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.device_mesh.ndim != 1 or x.device_mesh != q.device_mesh or list(x.placements) != [Shard(dim)]:
            raise InvalidArgumentError(f"{name}: is a DTensor with placements {list(x.placements)} on a mesh of "
                                       f"{x.device_mesh.ndim} dimensions; it must be [Shard({dim})] on one of one "
                                       "dimension, that of q: redistribute it", "arguments", name)
    return q.device_mesh


def on_this_rank(q: DTensor, k: DTensor, v: DTensor, tensors: dict[str, Any], *others: Any) -> tuple[Any, ...]:
    """Shards of q, k and v of this rank; tensors, and others behind them, whole."""

    def whole(name: str, x: Any) -> Any:
        if not isinstance(x, DTensor):
            return x
        if list(x.placements) != [Replicate()] * x.device_mesh.ndim:
            raise InvalidArgumentError(f"{name}: is a DTensor with placements {list(x.placements)}, and each rank needs the whole: "
                                       "redistribute it to Replicate()", "arguments", name)
        return x.to_local()

    return (q.to_local(), k.to_local(), v.to_local(), {name: whole(name, x) for name, x in tensors.items()},
            *(whole(name, x) for name, x in zip(("sinks", "rng_state"), others)))


def wrapped(o: torch.Tensor, lse: torch.Tensor, mesh: Any, dim: int, seqlen: int) -> tuple[DTensor, DTensor]:
    """The results as DTensors, also sharded along rows."""

    def of(tensor: torch.Tensor, rows: int) -> DTensor:
        shape = torch.Size([*tensor.shape[:rows], seqlen, *tensor.shape[rows + 1:]])
        stride = torch.empty(shape, device="meta").stride()
        return DTensor.from_local(tensor, mesh, [Shard(rows)], run_check=False, shape=shape, stride=stride)

    return of(o.contiguous(), dim), of(lse, 2)
