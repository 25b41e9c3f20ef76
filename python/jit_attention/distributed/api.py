"""Attention over a process group, as programs call it."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Literal, overload

import torch
import torch.distributed as dist

from .._keywords import Nothing, hides_unknown, refuse_unknown
from ..errors import InvalidArgumentError
from ..mask import Mask
from ..score import Score
from ..torch.op import attention as _attention_here
from ..torch.op import autocast
from ..typing import Layout
from . import arrive, heads
from .balance import balance
from .groups import control_of, exchange_rows, group_of, hosts_of, seconds_of
from .operator import METHODS, Call, compute
from .placement import Placement
from .problem import Problem, mask_of_call

Method = Literal["auto", "arrive", "gather", "heads", "ring"]


@overload
def attention(q: Any, k: Any, v: Any, *, return_lse: Literal[False] = False, **options: Any) -> Any: ...
@overload
def attention(q: Any, k: Any, v: Any, *, return_lse: Literal[True], **options: Any) -> tuple[Any, Any]: ...
@hides_unknown
def attention(q: Any, k: Any, v: Any, *, group: Any = None, placement: Placement | str | None = None,
              mask: Mask | None = None, score: Score | None = None, softmax_scale: float | None = None,
              method: Method = "auto", tensors: Mapping[str, torch.Tensor] | None = None,
              sinks: torch.Tensor | None = None, dropout_p: float = 0.0, rng_state: torch.Tensor | None = None,
              deterministic: bool = False, return_lse: bool = False, layout: Layout = "BSHD",
              timeout: float | None = None, **unknown: Nothing) -> Any:
    """Computes attention of a sequence whose rows are spread over the ranks of a group, with gradients.

    Each rank gives its shard of q, k and v and gets its shard of the result. Masks, scores and dropout see positions of
    the whole sequence, so results are those of one GPU. All ranks of the group make the same calls in the same order, and
    the same backward passes; it is one operator under ``torch.compile``. A group of one rank equals
    `jit_attention.torch.attention` bit for bit.

    Args:
        q: (batch, rows, heads_q, head_dim), this rank's queries, bf16 or fp16; rows are those that the placement gives
            it, and may be none. Or a DTensor that is sharded along rows over a mesh of one dimension; so is the result.
        k: (batch, rows, heads_kv, head_dim), the keys at the same positions.
        v: (batch, rows, heads_kv, head_dim_v), the values there.
        group: A ProcessGroup, or a DeviceMesh of one dimension. None: the default group, or the mesh of DTensors. Or a
            DeviceMesh of two, hosts and ranks of each: keys cross once to each other host, where ranks gather them from
            each other; method is "auto" or "gather" then.
        placement: Which rank has which rows, as `balance` made it; if it was made for packed sequences, each sees itself
            alone, at positions of the whole. "contiguous" and "zigzag" stand for the placement of that mode, if all
            ranks have as many rows; None: "contiguous".
        mask: As in `jit_attention.attention`, of the whole sequence.
        score: As in `jit_attention.attention`.
        softmax_scale: As in `jit_attention.attention`.
        method: "gather": a rank copies the keys that its queries need, and one kernel computes. "arrive": the kernel
            computes with own keys while those of others are copied, between GPUs of one host with access to each
            other (sm_90a, granules of multiples of 128); elsewhere "gather", said once. "ring": keys go around
            one shard at a time, and take the least memory. "heads": rows are exchanged for heads; both numbers of heads
            must be multiples of the group's size. "auto": "heads" if it can be and fewer bytes travel, else "gather".
        tensors: What mask and score read, by name: of the whole sequence, equal on all ranks. Gradients of those that
            the score reads are sums over all ranks, on each rank.
        sinks: As in `jit_attention.attention`, equal on all ranks; the gradient is the sum over all ranks.
        dropout_p: The rate of dropout. What one GPU drops with the same rng_state is dropped.
        rng_state: int64 (2), equal on all ranks. None: rank 0 draws one and sends it to the others.
        deterministic: As in `jit_attention.torch.attention`. Sums over ranks have a fixed order in any case.
        return_lse: Whether to return LSE, too.
        layout: "BSHD" or "BHSD".
        timeout: Seconds to wait for other ranks. None: the time-out of the group. Exchanges between GPUs end by the
            group's own.

    Returns:
        o, of q's shape with head_dim_v; with return_lse (o, LSE (batch, heads_q, rows)).

    Raises:
        InvalidArgumentError: An argument is wrong on this rank.
        RankMismatchError: Ranks call with different arguments; all of them raise it.
        PeerTimeoutError: A rank is dead, asleep, or elsewhere; the message names it. The group cannot be used any more.
        InvalidSpecError: The library does not serve this problem.

    Thread safety:
        One thread of a process at a time uses a group.

    Examples:
        >>> import torch, torch.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> q = torch.randn(1, 16, 2, 64, dtype=torch.bfloat16)
        >>> ja.distributed.attention(q, q, q, mask=ja.mask.causal()).shape
        torch.Size([1, 16, 2, 64])
        >>> dist.destroy_process_group()
    """
    if unknown:
        refuse_unknown(attention, unknown)
    mesh = None
    if not type(q) is type(k) is type(v) is torch.Tensor:  # importing DTensors takes long, and looking for them, too
        from . import dtensors

        mesh = dtensors.mesh_of(q, k, v, 1 if layout == "BSHD" else 2)
    if mesh is not None:
        group = mesh if group is None else group
        if group_of(group) != group_of(mesh):
            raise InvalidArgumentError("group: is another one than that of the mesh of q; leave it out", "arguments", "group")
        q, k, v = (x.to_local() for x in (q, k, v))
    hosts, group = hosts_of(group), group_of(group)
    if layout == "BHSD":
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    q, k, v = autocast(q, k, v)
    if not (q.dim() == k.dim() == v.dim() == 4 and q.dtype is k.dtype is v.dtype and q.dtype in _DTYPES):
        _refuse(q, k, v)
    if not q.stride(3) == k.stride(3) == v.stride(3) == 1:
        q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
    if timeout is not None and not timeout > 0:
        raise InvalidArgumentError(f"timeout: is {timeout}; it must be positive, in seconds", "arguments", "timeout")
    size = group.size()
    if not isinstance(placement, Placement) and size > 1:
        placement = _regular(placement, mask, q.shape[1] * size, size)
    if method not in METHODS and method != "auto":
        raise InvalidArgumentError(f'method: is {method!r}; it must be "auto", "arrive", "gather", "heads" or "ring"', "arguments",
                                   "method")
    if dropout_p == 0:
        rng_state = None
    elif rng_state is None:
        rng_state = _shared_rng_state(q, group)
    tensors = dict(tensors) if tensors else {}
    if size == 1:
        o, lse = _alone(q, k, v, placement, mask, score, softmax_scale, tensors, sinks, dropout_p, rng_state, deterministic)
    else:
        if hosts > 1:
            method = _within_hosts(method, hosts)
        elif method == "auto":
            method = _cheapest(q, k, v, group, placement, mask, score, dropout_p)
        scale = None if softmax_scale is None else float(softmax_scale)
        call = Call(mask, score, tuple(tensors), scale, group, placement, method, float(dropout_p), bool(deterministic),
                    timeout)
        o, lse = compute(call, q, k, v, tuple(tensors.values()), sinks, rng_state)
    if layout == "BHSD":
        o = o.transpose(1, 2)
    if mesh is not None:
        seqlen = q.shape[1] if placement is None else placement.seqlen
        o, lse = dtensors.wrapped(o, lse, mesh, 1 if layout == "BSHD" else 2, seqlen)
    return (o, lse) if return_lse else o


_DTYPES = torch.bfloat16, torch.float16


def _refuse(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.dim() != 4:
            raise InvalidArgumentError(f"{name}: has {tensor.dim()} dimensions; it must have 4, (batch, rows, heads, "
                                       "head_dim)", "arguments", name)
        if tensor.dtype not in _DTYPES or tensor.dtype != q.dtype:
            raise InvalidArgumentError(f"{name}: is {tensor.dtype}; q, k and v must be all bf16 or all fp16", "arguments",
                                       name)


def _regular(mode: Any, mask: Mask | None, seqlen: int, ranks: int) -> Placement:
    """The placement of a mode by name, of equal shards. What its ranks need is not known: they copy all."""
    if mode not in (None, "contiguous", "zigzag"):
        raise InvalidArgumentError(f'placement: is {mode!r}; it must be what jit_attention.distributed.balance returns, '
                                   '"contiguous", "zigzag" or None', "arguments", "placement")
    if torch.compiler.is_compiling():
        raise InvalidArgumentError("placement: is made at each call; under torch.compile make it before, with "
                                   "jit_attention.distributed.balance", "arguments", "placement")
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


def _shared_rng_state(q: torch.Tensor, group: Any) -> torch.Tensor:
    """Drawn from the default generator of q's device on rank 0, and sent to all."""
    if torch.compiler.is_compiling():
        raise InvalidArgumentError("rng_state: is missing; under torch.compile give one that is equal on all ranks",
                                   "arguments", "rng_state")
    state = torch.randint(2**63 - 1, (2,), dtype=torch.int64, device=q.device)
    dist.broadcast(state, group=group, group_src=0)
    return state


def _alone(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, placement: Any, mask: Mask | None, score: Score | None,
           softmax_scale: float | None, tensors: dict[str, torch.Tensor], sinks: torch.Tensor | None, dropout_p: float,
           rng_state: torch.Tensor | None, deterministic: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The plain call."""
    is_placement = isinstance(placement, Placement)
    if is_placement and (placement.ranks != 1 or placement.seqlen != q.shape[1]):
        raise InvalidArgumentError(f"placement: is of {placement.ranks} ranks and {placement.seqlen} positions; the group "
                                   f"has 1, and q has {q.shape[1]} rows", "arguments", "placement")
    of_call = dict(mask=mask, tensors=tensors)
    if is_placement and placement.documents:
        of_call = mask_of_call(Problem(q, k, v, None, placement, mask, score, tensors=tensors))  # type: ignore[arg-type]
    return _attention_here(q, k, v, score=score, softmax_scale=softmax_scale, sinks=sinks, dropout_p=dropout_p,
                           rng_state=rng_state, deterministic=deterministic, return_lse=True, **of_call)


def _cheapest(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, group: Any, placement: Placement, mask: Mask | None,
              score: Score | None, dropout_p: float) -> str:
    """The method by which fewer bytes travel in the forward pass; equal on all ranks."""
    size = group.size()
    if placement.ranks != size:
        return "gather"  # which refuses it
    per_key = k.shape[2] * (k.shape[3] + v.shape[3])
    per_query = q.shape[2] * (q.shape[3] + v.shape[3])
    by_gather = max(placement.remote) * per_key
    by_heads = max(map(placement.rows, range(size))) * (size - 1) / size * (per_key + per_query)
    if by_heads >= by_gather:
        return "gather"
    refusal = heads.refusal(q.shape[2], k.shape[2], mask, score, dropout_p, size)
    return "gather" if refusal else "heads"


def _within_hosts(method: str, hosts: int) -> str:
    """A method as the operator is told it, over several hosts."""
    if method not in ("auto", "gather"):
        raise InvalidArgumentError(f'method: is {method!r}, and the group a mesh of {hosts} hosts, within which ranks gather; '
                                   'give "gather", or a group of one dimension', "arguments", "method")
    return f"gather/{hosts}"


def unshard(tensor: torch.Tensor, dim: int, *, group: Any = None, placement: Placement,
            timeout: float | None = None) -> torch.Tensor:
    """Returns the whole of a tensor of which each rank has its shard: the inverse of `Placement.shard`, without gradients.

    Args:
        tensor: This rank's shard.
        dim: The dimension of positions.
        group: As in `attention`.
        placement: As `balance` made it.
        timeout: As in `attention`.

    Returns:
        The whole tensor, on every rank.

    Raises:
        InvalidArgumentError: The shard has another number of rows than the placement gives this rank.
        PeerTimeoutError: As in `attention`.
    """
    group = group_of(group)
    control = control_of(group)
    rows: Sequence[int] = [placement.rows(rank) for rank in range(placement.ranks)]
    if placement.ranks != control.size or tensor.shape[dim] != rows[control.rank]:
        raise InvalidArgumentError(f"tensor: has {tensor.shape[dim]} rows along dimension {dim}; the placement is of "
                                   f"{rows} rows by rank", "arguments", "tensor")
    shard = tensor.detach().movedim(dim, 0).contiguous()
    seconds = seconds_of(group, timeout, tensor.device)
    control.begin(("unshard", dim, tensor.dtype, placement),
                  lambda: {"pass": "unshard", "dim": f"dimension {dim}", "dtype": str(tensor.dtype),
                           "placement": placement.digest}, seconds)
    sent = shard.repeat(control.size, *[1] * (shard.dim() - 1))
    parts = exchange_rows(control, sent, [shard.shape[0]] * control.size, list(rows), seconds).split(list(rows))
    return placement.unshard([part.movedim(0, dim) for part in parts], dim)


def check(group: Any = None) -> None:
    """Waits for all calls with method "arrive" on this rank, and raises if one has failed.

    Without it the next call does: kernels that wait in vain for keys of another rank end after the time-out and leave NaN.

    Args:
        group: As in `attention`.

    Raises:
        PeerTimeoutError: A rank has not delivered; the message names it and the keys. `reset` begins anew.
    """
    arrive.check(control_of(group_of(group)))


def reset(group: Any = None, timeout: float | None = None) -> None:
    """Begins anew after a call with method "arrive" has failed. All ranks of the group call it, once each.

    Args:
        group: As in `attention`.
        timeout: Seconds to wait for the other ranks. None: the time-out of the group.

    Raises:
        PeerTimeoutError: A rank has not come, or another method has failed: make a new group then.
    """
    group = group_of(group)
    control = control_of(group)
    seconds = seconds_of(group, timeout, torch.device("cpu" if not torch.cuda.is_available() else "cuda"))
    control.restart(seconds)
    arrive.reset(control, seconds)
