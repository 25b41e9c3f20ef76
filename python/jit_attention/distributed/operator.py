"""Attention over a group as one PyTorch operator, `torch.ops.jit_attention.distributed_attention`, and its gradient.

Process groups come by name, placements as a tensor of whole numbers, masks and scores as text: nothing of them is baked into
a compiled graph but their kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

import torch
from torch import library

from .. import __version__
from .._written import read as read_problem
from ..errors import InvalidArgumentError
from . import gather, heads, ring
from .groups import Control, control_of, group_of, seconds_of, sum_over_ranks
from .problem import Problem
from .written import read as read_placement

METHODS = {"gather": gather, "heads": heads, "ring": ring}


def _fields(problem: Problem, method: str, text: str, which: str) -> dict[str, str]:
    """What must be equal on all ranks, by name of the argument."""
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


def check_shapes(problem: Problem, method: str) -> None:
    """Raises where what this rank was given does not fit together, whatever other ranks were given."""
    placement, control = problem.placement, problem.control
    if placement.ranks != control.size:
        raise InvalidArgumentError(f"placement: is of {placement.ranks} ranks, and the group has {control.size}; make it "
                                   "with this group", "arguments", "placement")
    rows = placement.rows(control.rank)
    for name, tensor in (("q", problem.q), ("k", problem.k), ("v", problem.v)):
        if tensor.shape[1] != rows:
            raise InvalidArgumentError(f"{name}: has {tensor.shape[1]} rows on rank {control.rank}, and the placement gives "
                                       f"it {rows} of {placement.seqlen}; give placement.shard(…)", "arguments", name)
    if placement.documents and problem.q.shape[0] != 1:
        raise InvalidArgumentError(f"q: has a batch of {problem.q.shape[0]}, and the placement is of packed sequences, "
                                   "which are one batch entry", "arguments", "q")
    heads_q, heads_kv = problem.q.shape[2], problem.k.shape[2]
    refusal = heads.refusal(heads_q, heads_kv, problem.mask, problem.score, problem.dropout_p, control.size)
    if method == "heads" and refusal:
        raise InvalidArgumentError(refusal, "arguments", "method")


def _problem(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, tensors: Sequence[torch.Tensor], text: str,
             softmax_scale: Optional[float], group: str, placement: torch.Tensor, sinks: Optional[torch.Tensor],
             dropout_p: float, rng_state: Optional[torch.Tensor], deterministic: bool,
             timeout: Optional[float]) -> Problem:
    mask, score, names = read_problem(text)
    members = group_of(group)
    return Problem(q, k, v, control_of(members), read_placement(placement), mask, score, softmax_scale,
                   dict(zip(names, tensors, strict=True)), sinks, dropout_p, rng_state,
                   deterministic or torch.are_deterministic_algorithms_enabled(), seconds_of(members, timeout, q.device))


def _begin(problem: Problem, method: str, text: str, which: str) -> Control:
    problem.control.begin(_fields(problem, method, text, which), problem.timeout, lambda: check_shapes(problem, method))
    return problem.control


@library.custom_op("jit_attention::distributed_attention", mutates_args=())
def attention_operator(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, tensors: Sequence[torch.Tensor], problem: str,
        softmax_scale: Optional[float], group: str, placement: torch.Tensor, method: str, sinks: Optional[torch.Tensor],
        dropout_p: float, rng_state: Optional[torch.Tensor], deterministic: bool,
        timeout: Optional[float]) -> tuple[torch.Tensor, torch.Tensor]:
    own = _problem(q, k, v, tensors, problem, softmax_scale, group, placement, sinks, dropout_p, rng_state,
                   deterministic, timeout)
    _begin(own, method, problem, "forward")
    return METHODS[method].forward(own)


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
    """dq, dk and dv of this rank's rows, then the gradients of the whole tensors and sinks, summed over ranks."""
    own = _problem(q, k, v, tensors, problem, softmax_scale, group, placement, sinks, dropout_p, rng_state,
                   deterministic, timeout)
    control = _begin(own, method, problem, "backward")
    names = tuple(read_problem(problem)[2][i] for i in wanted)
    gradients = METHODS[method].backward(own, do, o, lse, dlse, names, want_sinks)
    of_whole = [gradients.tensors[name] for name in names]
    if want_sinks:
        assert gradients.sinks is not None
        of_whole.append(gradients.sinks)
    return [gradients.dq, gradients.dk, gradients.dv, *(sum_over_ranks(control, x, own.timeout) for x in of_whole)]


@backward_operator.register_fake
def _(do, q, k, v, o, lse, dlse, tensors, problem, softmax_scale, group, placement, method, sinks, dropout_p, rng_state,
      deterministic, timeout, wanted, want_sinks):
    of = [q, k, v, *(tensors[i] for i in wanted), *([sinks] if want_sinks else [])]
    return [tensor.new_empty(tensor.shape) for tensor in of]


def _save_for_backward(ctx, inputs, output):
    q, k, v, tensors, problem, softmax_scale, group, placement, method, sinks, *others = inputs
    dropout_p, rng_state, deterministic, timeout = others
    _, score, names = read_problem(problem)
    differentiable = score.tensors if score is not None else {}
    for name, tensor in zip(names, tensors, strict=True):
        if tensor.requires_grad and name not in differentiable:
            raise InvalidArgumentError(f"tensors: {name!r} requires grad, and no score reads it, only the mask, of "
                                       "which there is no gradient: compute under torch.no_grad(), or give detach()")
    ctx.save_for_backward(q, k, v, *output, sinks, rng_state, placement, *tensors)
    ctx.set_materialize_grads(False)
    ctx.facts = problem, softmax_scale, group, method, dropout_p, deterministic, timeout
    ctx.wanted = [i for i, tensor in enumerate(tensors) if tensor.requires_grad]
    ctx.wants_sinks = sinks is not None and sinks.requires_grad


def _gradients(ctx, do, dlse):
    q, k, v, o, lse, sinks, rng_state, placement, *tensors = ctx.saved_tensors
    problem, softmax_scale, group, method, dropout_p, deterministic, timeout = ctx.facts
    of_tensors = [None] * len(tensors)
    # A rank whose loss depends on nothing of this call takes part: others need what it returns.
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
