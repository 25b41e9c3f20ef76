"""Arguments of a call, checked as far as one rank can tell, and as the operator takes them."""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.distributed as dist

from ..errors import InvalidArgumentError
from ..mask import Mask
from ..score import Score
from ..torch.op import autocast
from .balance import balance
from .choice import choose
from .groups import control_of, seconds_of
from .operator import METHODS, Call
from .placement import Placement


def checked(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layout: str, mask: Mask | None, score: Score | None,
            tensors: dict[str, torch.Tensor], softmax_scale: float | None, group: Any, hosts: int, placement: Any, method: str,
            dropout_p: float, rng_state: torch.Tensor | None, deterministic: bool, timeout: float | None,
            seqlen: int | None) -> tuple[Any, ...]:
    """q, k and v as (batch, rows, heads, head_dim), the state of dropout, and the call; None of a group of one rank. `seqlen` is
    that of the whole, if it is known without a placement."""
    if layout not in ("BSHD", "BHSD"):
        raise InvalidArgumentError(f'layout: is {layout!r}; it must be "BSHD" or "BHSD"', "arguments", "layout")
    if not type(q) is type(k) is type(v) is torch.Tensor:
        _refuse_types(q, k, v)
    if layout == "BHSD":
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    q, k, v = autocast(q, k, v)
    if not (q.dim() == k.dim() == v.dim() == 4 and q.dtype is k.dtype is v.dtype and q.dtype in _DTYPES):
        _refuse(q, k, v)
    if not q.stride(3) == k.stride(3) == v.stride(3) == 1:
        q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
    if timeout is not None and not timeout > 0:
        raise InvalidArgumentError(f"timeout: is {timeout}; it must be positive, in seconds", "arguments", "timeout")
    if not (mask is None or isinstance(mask, Mask)):
        raise InvalidArgumentError(f"mask: is {mask!r}; it must be a jit_attention.Mask, such as jit_attention.mask.causal()",
                                   "arguments", "mask")
    size = group.size()
    if not isinstance(placement, Placement):
        _refuse_mode(placement)
        if size > 1:
            placement = _regular(placement, mask, q.shape[1] * size if seqlen is None else seqlen, size)
    elif size > 1 and placement.ranks != size:
        raise InvalidArgumentError(f"placement: is of {placement.ranks} ranks, and the group has {size}; make it with this group",
                                   "arguments", "placement")
    if method not in METHODS and method != "auto":
        raise InvalidArgumentError(f'method: is {method!r}; it must be "auto", "arrive", "gather", "heads" or "ring"', "arguments",
                                   "method")
    if dropout_p == 0:
        rng_state = None
    elif rng_state is None:
        rng_state = _shared_rng_state(q, group, timeout)
    if size == 1:
        return q, k, v, rng_state, None
    if hosts > 1:
        method = _within_hosts(method, hosts)
    elif method == "auto" and (chosen := choose(q, k, v, group.size(), placement, mask, score, dropout_p)) != "arrive":
        method = chosen  # else "auto" remains: "arrive" between ranks of one host
    scale = None if softmax_scale is None else float(softmax_scale)
    return q, k, v, rng_state, Call(mask, score, tuple(tensors), scale, group, placement, method, float(dropout_p),
                                    bool(deterministic), timeout, {})


def _refuse_types(q: Any, k: Any, v: Any) -> None:
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, torch.Tensor):
            raise InvalidArgumentError(f"{name}: is a {type(x).__name__}; it must be a torch.Tensor", "arguments", name)


_DTYPES = torch.bfloat16, torch.float16


def _refuse(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.dim() != 4:
            raise InvalidArgumentError(f"{name}: has {tensor.dim()} dimensions; it must have 4, (batch, rows, heads, "
                                       "head_dim)", "arguments", name)
        if tensor.device != q.device:
            raise InvalidArgumentError(f"{name}: is on {tensor.device}, and q is on {q.device}; they must be on one device",
                                       "arguments", name)
        if tensor.dtype not in _DTYPES or tensor.dtype != q.dtype:
            raise InvalidArgumentError(f"{name}: is {tensor.dtype}; q, k and v must be all bf16 or all fp16", "arguments",
                                       name)


def _refuse_mode(mode: Any) -> None:
    if mode not in (None, "contiguous", "zigzag"):
        raise InvalidArgumentError(f'placement: is {mode!r}; it must be what jit_attention.distributed.balance returns, '
                                   '"contiguous", "zigzag" or None', "arguments", "placement")


def _regular(mode: Any, mask: Mask | None, seqlen: int, ranks: int) -> Placement:
    """The placement of a mode by name, of equal shards. What its ranks need is not known: they copy all."""
    if torch.compiler.is_compiling():
        raise ValueError("placement: is made at each call; under torch.compile make it before, with "
                         "jit_attention.distributed.balance")  # no compiler traces this library's errors
    parts = ranks if mode is None else ranks * (2 if mode == "zigzag" else 1)
    if seqlen % (16 * parts):
        raise InvalidArgumentError(f"placement: is {mode!r}, and {seqlen} rows cannot be {parts} parts of multiples of 16; "
                                   "make one with jit_attention.distributed.balance", "arguments", "placement")
    known = mask if mask is not None and not mask.tensors and not mask.texts else None
    return _made(known, seqlen, ranks, mode or "contiguous", seqlen // parts)


@functools.lru_cache(maxsize=64)
def _made(mask: Mask | None, seqlen: int, ranks: int, mode: Any, granule: int) -> Placement:
    return balance(mask, seqlen=seqlen, ranks=ranks, mode=mode, granule=_fine(granule))


def _fine(granule: int) -> int:
    """The largest divisor of a shard that is a granule of at most 128."""
    return next(size for size in range(128, 0, -16) if granule % size == 0)


def _shared_rng_state(q: torch.Tensor, group: Any, timeout: float | None) -> torch.Tensor:
    """Drawn from the default generator of q's device on rank 0, and sent to all, as a call of its own."""
    if torch.compiler.is_compiling():
        raise ValueError("rng_state: is missing; under torch.compile give one that is equal on all ranks")
    state = torch.randint(2**63 - 1, (2,), dtype=torch.int64, device=q.device)
    if group.size() == 1:
        return state
    seconds, control = seconds_of(group, timeout, q.device), control_of(group)
    control.begin("rng_state", lambda: {"pass": "rng_state", "method": "broadcast"}, seconds)
    control.wait(dist.broadcast(state, group=group, group_src=0, async_op=True), seconds, state.is_cuda)
    return state


def _within_hosts(method: str, hosts: int) -> str:
    """A method as the operator is told it, over several hosts."""
    if method not in ("auto", "gather", "arrive"):
        raise InvalidArgumentError(f'method: is {method!r}, and the group a mesh of {hosts} hosts, within which ranks gather or '
                                   'keys arrive; give "gather" or "arrive", or a group of one dimension', "arguments", "method")
    return f"{'gather' if method == 'auto' else method}/{hosts}"
