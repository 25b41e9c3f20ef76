"""Calls whose arguments were checked before: the same objects, with tensors of the same shapes and types."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch
import torch.distributed as dist

from .operator import Call
from .placement import Placement

#: Calls that are remembered. They hold masks, placements and groups.
_MOST = 256
_known: dict[Hashable, tuple[Call, Any]] = {}


def key_of(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, group: Any, placement: Any, mask: Any, score: Any,
           softmax_scale: Any, method: Any, deterministic: Any, timeout: Any) -> Hashable:
    """A key by which a call without tensors, sinks and dropout is known; None: its arguments are checked anew. Groups,
    placements, masks and scores count by identity."""
    if not (type(q) is type(k) is type(v) is torch.Tensor and type(placement) is Placement and type(method) is str
            and type(group) is not str and (softmax_scale is None or type(softmax_scale) is float)
            and (timeout is None or type(timeout) in (int, float)) and not torch._C._is_any_autocast_enabled()):
        return None
    # The default group counts by identity, too: after destroy_process_group it may be another one.
    own = id(dist.group.WORLD if group is None else group)
    return (own, id(placement), id(mask), id(score), q.shape, k.shape, v.shape, q.dtype, k.dtype, v.dtype, q.device, k.device, v.device, method,
            softmax_scale, timeout, bool(deterministic))


def find(key: Hashable, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Call | None:
    """The call of a key, if these tensors need no copy."""
    found = _known.get(key)
    return found[0] if found is not None and q.stride(3) == k.stride(3) == v.stride(3) == 1 else None


def keep(key: Hashable, call: Call, *alive: Any) -> None:
    """Remembers a call, and keeps what its key knows by identity."""
    if len(_known) >= _MOST:
        _known.clear()
    _known[key] = call, alive
