"""Attention over a process group: the public functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, overload

import torch

from .._keywords import Nothing, hides_unknown, refuse_unknown
from ..errors import InvalidArgumentError, PeerTimeoutError, RankMismatchError
from ..mask import Mask
from ..score import Score
from ..torch.eager import is_watched
from ..torch.op import attention as _attention_here
from ..typing import Layout
from . import arguments, arrive, repeated
from .groups import control_of, exchange_rows, group_of, hosts_of, seconds_of
from .operator import compute, compute_directly, refuse_tensors_of_masks
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
        group: A ProcessGroup, or a 1-d DeviceMesh. None: the default group, or the mesh of DTensors. Or a 2-d
            DeviceMesh (hosts, ranks of a host): keys are sent once to each other host, whose ranks copy them from
            each other; method is then "auto", "gather" or "arrive".
        placement: The rows of each rank, made by `balance`; if it was made for packed sequences, each sees itself
            alone, with positions in the whole. "contiguous" and "zigzag" name the placement of that mode, for equally
            many rows on all ranks; None: "contiguous".
        mask: As in `jit_attention.attention`, of the whole sequence.
        score: As in `jit_attention.attention`.
        softmax_scale: As in `jit_attention.attention`.
        method: "gather": a rank copies the keys that its queries need, and one kernel computes. "arrive": the kernel
            computes with own keys while those of others are copied, between GPUs with access to each other
            (sm_90a, granules of multiples of 128); without these "gather" computes, with one warning. "ring": keys go around
            one shard at a time, and take the least memory. "heads": rows are exchanged for heads; both numbers of heads
            must be multiples of the group's size. "auto": "arrive" over two such GPUs
            from 8,192 tokens on, with head dims up to 256, without packed sequences and masks that read tensors; in
            other calls "heads" if it can be and fewer bytes travel, else "gather".
        tensors: What mask and score read, by name: of the whole sequence, equal on all ranks. Gradients of those that
            the score reads are sums over all ranks, on each rank.
        sinks: As in `jit_attention.attention`, equal on all ranks; the gradient is the sum over all ranks.
        dropout_p: The rate of dropout. The same probabilities are dropped as on one GPU with the same rng_state.
        rng_state: int64 (2), equal on all ranks. None: rank 0 draws one and sends it to the others.
        deterministic: As in `jit_attention.torch.attention`. Sums over ranks have a fixed order in any case.
        return_lse: Whether to return LSE, too.
        layout: "BSHD" or "BHSD".
        timeout: Seconds to wait for other ranks. None: the time-out of the group. Exchanges between GPUs end by the
            group's time-out.

    Returns:
        o, of q's shape with head_dim_v; with return_lse (o, LSE (batch, heads_q, rows)).

    Raises:
        InvalidArgumentError: An argument is wrong on this rank.
        RankMismatchError: Ranks call with different arguments, and all of them raise it; or another rank has refused its own.
        PeerTimeoutError: A rank is dead, stalled, or in another collective; the message names it. The group is
            unusable.
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
    key = None
    if tensors is None and sinks is None and dropout_p == 0 and layout == "BSHD" and not is_watched(q, k, v):
        key = repeated.key_of(q, k, v, group, placement, mask, score, softmax_scale, method, deterministic, timeout)
        if key is not None and (known := repeated.find(key, q, k, v)) is not None:
            o, lse = compute_directly(known, q, k, v)
            return (o, lse) if return_lse else o
    alive = group, placement, mask, score
    mesh = seqlen = None
    if not type(q) is type(k) is type(v) is torch.Tensor:  # importing DTensor, or looking for it, is slow
        from . import dtensors

        mesh = dtensors.mesh_of(q, k, v, 1 if layout == "BSHD" else 2)
    if mesh is not None:
        seqlen = q.shape[1 if layout == "BSHD" else 2]
        if group is not None and group_of(group) != group_of(mesh):
            raise InvalidArgumentError("group: is another one than that of the mesh of q; leave it out", "arguments", "group")
        group = mesh
    hosts = 1 if group is None else hosts_of(group)
    group = group_of(group)
    tensors = dict(tensors) if tensors else {}
    try:
        if mesh is not None:
            q, k, v, tensors, sinks, rng_state = dtensors.on_this_rank(q, k, v, tensors, sinks, rng_state)
        q, k, v, rng_state, call = arguments.checked(q, k, v, layout, mask, score, tensors, softmax_scale, group, hosts, placement,
                                                     method, dropout_p, rng_state, deterministic, timeout, seqlen)
        if call is not None and torch.is_grad_enabled():
            refuse_tensors_of_masks(call.score, call.names, tensors.values())
    except (RankMismatchError, PeerTimeoutError):  # of all ranks, which count this call already
        raise
    except Exception as error:
        if not torch.compiler.is_compiling():
            control_of(group).refuse(error)  # others may have begun the call
        raise
    if call is None:  # of one rank
        o, lse = _alone(q, k, v, placement, mask, score, softmax_scale, tensors, sinks, dropout_p, rng_state, deterministic)
    else:
        o, lse = compute(call, q, k, v, tuple(tensors.values()), sinks, rng_state)
        if key is not None:
            repeated.keep(key, call, *alive)
    if layout == "BHSD":
        o = o.transpose(1, 2)
    if mesh is not None:
        o, lse = dtensors.wrapped(o, lse, mesh, 1 if layout == "BSHD" else 2, seqlen)
    return (o, lse) if return_lse else o


def _alone(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, placement: Any, mask: Mask | None, score: Score | None,
           softmax_scale: float | None, tensors: dict[str, torch.Tensor], sinks: torch.Tensor | None, dropout_p: float,
           rng_state: torch.Tensor | None, deterministic: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The call on plain tensors."""
    is_placement = isinstance(placement, Placement)
    if is_placement and (placement.ranks != 1 or placement.seqlen != q.shape[1]):
        raise InvalidArgumentError(f"placement: is of {placement.ranks} ranks and {placement.seqlen} positions; the group "
                                   f"has 1, and q has {q.shape[1]} rows", "arguments", "placement")
    of_call = dict(mask=mask, tensors=tensors)
    if is_placement and placement.documents:
        of_call = mask_of_call(Problem(q, k, v, None, placement, mask, score, tensors=tensors))  # type: ignore[arg-type]
    return _attention_here(q, k, v, score=score, softmax_scale=softmax_scale, sinks=sinks, dropout_p=dropout_p,
                           rng_state=rng_state, deterministic=deterministic, return_lse=True, **of_call)


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

    Otherwise the next call raises. Kernels that wait in vain for another rank's keys stop at the time-out and write
    NaN.

    Args:
        group: As in `attention`.

    Raises:
        PeerTimeoutError: A rank has not delivered; the message names it and the keys. `reset` begins anew.
    """
    arrive.check(control_of(group_of(group)))


def reset(group: Any = None, timeout: float | None = None) -> None:
    """Makes the group usable after a failed call with method "arrive". All ranks of the group call it, once each.

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
