"""Attention over a group as one PyTorch operator, `torch.ops.jit_attention.distributed_attention`, and its gradient.

Process groups are passed by name, placements as an integer tensor, masks and scores as text: a compiled graph contains
only their kinds. Eager calls bypass the operator, unless a mode or transform observes operators.
"""

from __future__ import annotations

import functools
import re
import types
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Optional

import torch
from torch import library
from torch.distributed.distributed_c10d import default_pg_timeout

from .. import __version__
from .._written import read as read_problem
from .._written import written as written_problem
from ..errors import InvalidArgumentError
from ..mask import Mask
from ..score import Score
from ..torch.eager import is_watched
from . import arrive, arrive_again, gather, heads, hosts, ring
from .groups import Control, control_of, group_of, is_captured, options_of, seconds_of, sum_over_ranks
from .placement import Placement
from .problem import Problem
from .written import read as read_placement
from .written import written as written_placement

METHODS = {"arrive": arrive, "gather": gather, "heads": heads, "ring": ring}
#: "auto" of calls for which it is "arrive": ranks of several hosts gather.
_NEAR = types.SimpleNamespace(forward=functools.partial(arrive.forward, is_chosen=True),
                              backward=functools.partial(arrive.backward, is_chosen=True))


@functools.lru_cache(maxsize=64)
def _method_of(name: str) -> tuple[Any, int]:
    """A method's module, and the number of hosts: "gather/2" gathers within each of 2."""
    method, _, count = name.partition("/")
    return (hosts.OverHosts(method), int(count)) if count else ((METHODS | {"auto": _NEAR})[method], 1)


def _fields(problem: Problem, method: str, text: str, which: str) -> dict[str, str]:
    """Values that must be equal on all ranks, by argument name. The comparison cannot be part of a graph."""
    if is_captured(problem.q):
        raise InvalidArgumentError(f"group: ranks have not made such a call ({which} by {method}, with these sizes, masks and "
                                   "placement) before its capture; make it once ahead of the capture, on all ranks",
                                   "arguments", "group")
    q, k, v = problem.q, problem.k, problem.v
    rows = problem.placement.rows(problem.rank)
    shapes = {}
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        shape = [*tensor.shape]
        if shape[1] == rows:
            shape[1] = -1
        shapes[name] = f"{name} of shape {shape}, {tensor.dtype}".replace("-1", "rows")
    tensors = ", ".join(f"{name} {tuple(x.shape)} {x.dtype}" for name, x in sorted((problem.tensors or {}).items()))
    return {
        "version": f"jit_attention {__version__}", "pass": which, "method": f'method "{method}"', **shapes,
        "mask": f"mask and score {text}", "softmax_scale": f"softmax_scale {problem.softmax_scale}",
        "tensors": f"tensors {tensors or 'none'}", "sinks": f"sinks {problem.sinks is not None}",
        "dropout_p": f"dropout_p {problem.dropout_p}", "deterministic": f"deterministic {problem.deterministic}",
        "placement": f"a placement of {problem.placement.seqlen} positions, digest {problem.placement.digest}"
                     + (f", {len(problem.placement.documents)} documents" if problem.placement.documents else ""),
    }


#: Tensors of built-in masks and scores, by the name of that functor: dimensions as long as the sequence; one of a bias may be 1.
_WHOLE_DIMS = {"document": {"document_ids_q": (-1,), "document_ids_kv": (-1,)}, "tree": {"tree_ends": (-1,)},
               "bias": {"bias": (-2, -1)}}


def _built_in(functor: Any) -> str:
    """The text of a mask or score without the names of texts, whose tensors may have any sizes."""
    return "" if functor is None else re.sub(r"text\([^)]*\)", "", functor.text)


def _check_wholes(problem: Problem) -> None:
    """Refuses a rank's shards where tensors of the whole sequence are needed, which kernels could not tell."""
    seqlen, tensors = problem.placement.seqlen, problem.tensors or {}
    words = set(re.findall(r"\w+", f"{_built_in(problem.mask)} {_built_in(problem.score)}"))
    wholes = {name: dims for word, own in _WHOLE_DIMS.items() if word in words for name, dims in own.items() if name in tensors}
    for name, dims in wholes.items():
        for dim in dims:
            size = tensors[name].shape[dim]
            if size != seqlen and (len(dims) == 1 or size != 1):
                raise InvalidArgumentError(f"tensors: {name!r} has {size} along dimension {dim}, and the sequence {seqlen} "
                                           "positions; give each rank the whole tensor, no shard", "arguments", "tensors")
    sides = re.search(r"block_mask\((\d+)", problem.mask.text) if "block_mask" in tensors and problem.mask is not None else None
    if sides is not None and tensors["block_mask"].shape[-2] != -(-seqlen // int(sides[1])):
        raise InvalidArgumentError(f"tensors: 'block_mask' has {tensors['block_mask'].shape[-2]} rows of blocks of {sides[1]} "
                                   f"queries, and the sequence {seqlen} positions; give each rank that of the whole sequence",
                                   "arguments", "tensors")


def check_shapes(problem: Problem, method: str) -> None:
    """Raises when this rank's arguments are inconsistent, independent of other ranks."""
    placement, control = problem.placement, problem.control
    rows = placement.rows(control.rank)
    for name, tensor in (("q", problem.q), ("k", problem.k), ("v", problem.v)):
        if tensor.shape[1] != rows:
            raise InvalidArgumentError(f"{name}: has {tensor.shape[1]} rows on rank {control.rank}, and the placement gives "
                                       f"it {rows} of {placement.seqlen}; give placement.shard(…)", "arguments", name)
    _check_wholes(problem)
    if placement.documents and problem.q.shape[0] != 1:
        raise InvalidArgumentError(f"q: has a batch of {problem.q.shape[0]}, and the placement is of packed sequences, "
                                   "which are one batch entry", "arguments", "q")
    heads_q, heads_kv = problem.q.shape[2], problem.k.shape[2]
    refusal = heads.refusal(heads_q, heads_kv, problem.mask, problem.score, problem.dropout_p, control.size)
    if method == "heads" and refusal:
        raise InvalidArgumentError(refusal, "arguments", "method")


class Call(NamedTuple):
    """A call's arguments other than tensors."""

    mask: Optional[Mask]
    score: Optional[Score]
    names: tuple[str, ...]  # of `tensors`
    softmax_scale: Optional[float]
    group: Any
    placement: Placement
    method: str
    dropout_p: float
    deterministic: bool
    timeout: Optional[float]
    #: State of its passes, by pass and determinism, of a call with tensors of one shape, and none of masks and scores.
    kinds: Optional[dict[tuple[str, bool], _Kind]] = None


@dataclass
class _Kind:
    """The state of a call that was begun before."""

    control: Control
    fields: dict[str, str]
    kept: dict[Any, Any]
    hosts: int
    options: Any  # of the group's backend, which have its time-out
    run: Any = None  # by the method: what makes such a call, unless something has changed

    def seconds(self, call: Call) -> float:
        """The time-out of the call, which the group may have changed."""
        if call.timeout is not None:
            return float(call.timeout)
        return (default_pg_timeout if self.options is None else self.options._timeout).total_seconds()


def _read(problem: str, softmax_scale: Optional[float], group: str, placement: torch.Tensor, method: str, dropout_p: float,
          deterministic: bool, timeout: Optional[float]) -> Call:
    """The call of an operator's arguments."""
    mask, score, names = read_problem(problem)
    return Call(mask, score, names, softmax_scale, group_of(group), read_placement(placement), method, dropout_p,
                deterministic, timeout)


def _begin(call: Call, which: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, tensors: Sequence[torch.Tensor],
           sinks: Optional[torch.Tensor], rng_state: Optional[torch.Tensor]) -> Problem:
    """The problem of an operator's arguments; counts the call. The description of a kind of calls is formatted at its
    first one."""
    deterministic = call.deterministic or torch._C._get_deterministic_algorithms()
    kinds = None if tensors or sinks is not None or call.dropout_p != 0 else call.kinds
    known = None if kinds is None else kinds.get((which, deterministic))
    if known is not None:
        known.control.repeat(known.fields)
        return Problem(q, k, v, known.control, call.placement, call.mask, call.score, call.softmax_scale, None, None, 0.0, None,
                       deterministic, known.seconds(call), known.hosts, known.kept)
    control = control_of(call.group)
    problem = Problem(q, k, v, control, call.placement, call.mask, call.score, call.softmax_scale,
                      dict(zip(call.names, tensors, strict=True)) if tensors else None, sinks, call.dropout_p, rng_state,
                      deterministic, seconds_of(call.group, call.timeout, q.device), _method_of(call.method)[1])
    kind = (which, call.method, call.mask, call.score, call.names, call.softmax_scale, call.placement, call.dropout_p,
            deterministic, sinks is None, q.device, q.shape, k.shape, v.shape, q.dtype, k.dtype, v.dtype,
            *((x.shape, x.dtype) for x in tensors))
    problem.kept = control.begin(
        kind, lambda: _fields(problem, call.method, written_problem(call.mask, call.score, call.names), which),
        problem.timeout, lambda: check_shapes(problem, call.method))
    if kinds is not None:
        kinds[which, deterministic] = _Kind(control, control.fields, problem.kept, problem.hosts, options_of(call.group, q.device))
    return problem


def _forward(call: Call, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, tensors: Sequence[torch.Tensor],
             sinks: Optional[torch.Tensor], rng_state: Optional[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    known = call.kinds.get(("forward", call.deterministic or torch._C._get_deterministic_algorithms())) if call.kinds else None
    if known is not None and known.run is not None:
        results = known.run(q, k, v, known.seconds(call))
        if results is not None:
            return results
    method = _method_of(call.method)[0]
    problem = _begin(call, "forward", q, k, v, tensors, sinks, rng_state)
    results = method.forward(problem)
    if known is not None and method in (arrive, _NEAR):
        known.run = arrive_again.repeated(problem)
    return results


def _backward(call: Call, do: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor,
              lse: torch.Tensor, dlse: Optional[torch.Tensor], tensors: Sequence[torch.Tensor],
              sinks: Optional[torch.Tensor], rng_state: Optional[torch.Tensor], wanted: Sequence[int],
              want_sinks: bool) -> list[torch.Tensor]:
    own = _begin(call, "backward", q, k, v, tensors, sinks, rng_state)
    names = tuple(call.names[i] for i in wanted)
    gradients = _method_of(call.method)[0].backward(own, do, o, lse, dlse, names, want_sinks)
    of_whole = [gradients.tensors[name] for name in names]
    if want_sinks:
        assert gradients.sinks is not None
        of_whole.append(gradients.sinks)
    return [gradients.dq, gradients.dk, gradients.dv, *(sum_over_ranks(own.control, x, own.timeout) for x in of_whole)]


@library.custom_op("jit_attention::distributed_attention", mutates_args=())
def attention_operator(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, tensors: Sequence[torch.Tensor], problem: str,
        softmax_scale: Optional[float], group: str, placement: torch.Tensor, method: str, sinks: Optional[torch.Tensor],
        dropout_p: float, rng_state: Optional[torch.Tensor], deterministic: bool,
        timeout: Optional[float]) -> tuple[torch.Tensor, torch.Tensor]:
    call = _read(problem, softmax_scale, group, placement, method, dropout_p, deterministic, timeout)
    return _forward(call, q, k, v, tensors, sinks, rng_state)


@attention_operator.register_fake
def _(q, k, v, tensors, problem, softmax_scale, group, placement, method, sinks, dropout_p, rng_state, deterministic,
      timeout):
    lse = q.new_empty((q.size(0), q.size(2), q.size(1)), dtype=torch.float32)
    return q.new_empty((*q.shape[:-1], v.size(-1))), lse


@library.custom_op("jit_attention::distributed_attention_backward", mutates_args=())
def backward_operator(
        do: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor, lse: torch.Tensor,
        dlse: Optional[torch.Tensor], tensors: Sequence[torch.Tensor], problem: str, softmax_scale: Optional[float],
        group: str, placement: torch.Tensor, method: str, sinks: Optional[torch.Tensor], dropout_p: float,
        rng_state: Optional[torch.Tensor], deterministic: bool, timeout: Optional[float], wanted: Sequence[int],
        want_sinks: bool) -> list[torch.Tensor]:
    """dq, dk and dv of this rank's rows, then gradients of the whole tensors and of sinks, summed over ranks."""
    call = _read(problem, softmax_scale, group, placement, method, dropout_p, deterministic, timeout)
    return _backward(call, do, q, k, v, o, lse, dlse, tensors, sinks, rng_state, wanted, want_sinks)


@backward_operator.register_fake
def _(do, q, k, v, o, lse, dlse, tensors, problem, softmax_scale, group, placement, method, sinks, dropout_p, rng_state,
      deterministic, timeout, wanted, want_sinks):
    of = [q, k, v, *(tensors[i] for i in wanted), *([sinks] if want_sinks else [])]
    return [tensor.new_empty(tensor.shape) for tensor in of]


def refuse_tensors_of_masks(score: Optional[Score], names: Sequence[str], tensors: Iterable[torch.Tensor]) -> None:
    """Raises for a tensor that requires grad and that only the mask reads."""
    differentiable = score.tensors if score is not None else {}
    for name, tensor in zip(names, tensors, strict=True):
        if tensor.requires_grad and name not in differentiable:
            raise InvalidArgumentError(f"tensors: {name!r} requires grad, and no score reads it, only the mask, of "
                                       "which there is no gradient: compute under torch.no_grad(), or give detach()")


def _save_for_backward(ctx, inputs, output):
    q, k, v, tensors, problem, softmax_scale, group, placement, method, sinks, *others = inputs
    dropout_p, rng_state, deterministic, timeout = others
    _, score, names = read_problem(problem)
    refuse_tensors_of_masks(score, names, tensors)
    ctx.save_for_backward(q, k, v, *output, sinks, rng_state, placement, *tensors)
    ctx.set_materialize_grads(False)
    ctx.facts = problem, softmax_scale, group, method, dropout_p, deterministic, timeout
    ctx.wanted = [i for i, tensor in enumerate(tensors) if tensor.requires_grad]
    ctx.wants_sinks = sinks is not None and sinks.requires_grad


def _gradients(ctx, do, dlse):
    q, k, v, o, lse, sinks, rng_state, placement, *tensors = ctx.saved_tensors
    problem, softmax_scale, group, method, dropout_p, deterministic, timeout = ctx.facts
    of_tensors = [None] * len(tensors)
    # A rank whose loss does not depend on this call still takes part: others need its contributions.
    do = torch.zeros_like(o) if do is None else do
    dq, dk, dv, *of_whole = backward_operator(do, q, k, v, o, lse, dlse, tensors, problem, softmax_scale, group, placement,
                                              method, sinks, dropout_p, rng_state, deterministic, timeout, ctx.wanted,
                                              ctx.wants_sinks)
    for i, gradient in zip(ctx.wanted, of_whole):
        of_tensors[i] = gradient
    of_sinks = of_whole[-1] if ctx.wants_sinks else None
    return dq, dk, dv, of_tensors, None, None, None, None, None, of_sinks, None, None, None, None


def _refuse_second_gradients(ctx, *_):
    raise InvalidArgumentError("do: requires grad, and the gradients of attention have no gradients themselves: leave "
                               "out create_graph")


backward_operator.register_autograd(_refuse_second_gradients, setup_context=lambda ctx, inputs, output: None)
attention_operator.register_autograd(_gradients, setup_context=_save_for_backward)


class _Eager(torch.autograd.Function):
    """The operator and its gradient without PyTorch's dispatcher, whose overhead is that of a short kernel."""

    @staticmethod
    def forward(ctx, call, q, k, v, sinks, rng_state, *tensors):
        o, lse = _forward(call, q, k, v, tensors, sinks, rng_state)
        ctx.save_for_backward(q, k, v, o, lse, sinks, rng_state, *tensors)
        ctx.set_materialize_grads(False)
        ctx.call = call
        return o, lse

    @staticmethod
    def backward(ctx, do, dlse):
        q, k, v, o, lse, sinks, rng_state, *tensors = ctx.saved_tensors
        call = ctx.call
        do = torch.zeros_like(o) if do is None else do  # as in _gradients
        needs = ctx.needs_input_grad
        wanted = [i for i, is_needed in enumerate(needs[6:]) if is_needed]
        if torch.is_grad_enabled():  # create_graph: the operator refuses gradients of gradients
            gradients = backward_operator(do, q, k, v, o, lse, dlse, tensors, *_texts(call), sinks, call.dropout_p, rng_state,
                                          call.deterministic, call.timeout, wanted, needs[4])
        else:
            gradients = _backward(call, do, q, k, v, o, lse, dlse, tensors, sinks, rng_state, wanted, needs[4])
        dq, dk, dv, *of_whole = gradients
        of_tensors = [None] * len(tensors)
        for i, gradient in zip(wanted, of_whole):
            of_tensors[i] = gradient
        return None, dq, dk, dv, of_whole[-1] if needs[4] else None, None, *of_tensors


def _texts(call: Call) -> tuple[str, Optional[float], str, torch.Tensor, str]:
    placement = call.placement
    return (written_problem(call.mask, call.score, call.names), call.softmax_scale, call.group.group_name,
            written_placement(placement) if placement.written is None else placement.written, call.method)


def compute(call: Call, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, tensors: Sequence[torch.Tensor],
            sinks: Optional[torch.Tensor], rng_state: Optional[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """O and LSE of this rank's queries: by the operator when something observes operators, else directly."""
    if is_watched(q):
        return attention_operator(q, k, v, list(tensors), *_texts(call), sinks, call.dropout_p, rng_state, call.deterministic,
                                  call.timeout)
    return compute_directly(call, q, k, v, tensors, sinks, rng_state)


def compute_directly(call: Call, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, tensors: Sequence[torch.Tensor] = (),
                     sinks: Optional[torch.Tensor] = None,
                     rng_state: Optional[torch.Tensor] = None) -> tuple[torch.Tensor, torch.Tensor]:
    """compute, when nothing observes operators."""
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (q, k, v, sinks, *tensors)):
        return _Eager.apply(call, q, k, v, sinks, rng_state, *tensors)
    return _forward(call, q, k, v, tensors, sinks, rng_state)
