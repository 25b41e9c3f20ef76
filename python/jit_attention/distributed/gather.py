"""Method "gather": each rank copies the keys and values that its queries need, then one kernel computes.

The copies are at their positions in the sequence, so that kernels see whole keys, and own queries by position. The
backward pass copies them again. Each rank returns its contributions to gradients of copied rows, in fp32, into a slot
of their owner, which sums the slots in rank order and rounds once: every run is bitwise identical.
"""

from __future__ import annotations

import torch

from . import problem as _problem
from .exchange import gather_rows, return_rows, route_of
from .problem import Gradients, Problem
from .rows import apart, beside


def _gathered(problem: Problem) -> tuple[torch.Tensor, torch.Tensor]:
    route = problem.kept.get("route")
    if route is None:
        route = problem.kept["route"] = route_of(problem.placement, problem.rank, problem.k.device)
    whole = gather_rows(problem.control, route, beside(problem.k, problem.v), problem.placement.seqlen, problem.timeout)
    return apart(whole, problem.k, problem.v)


def forward(problem: Problem) -> tuple[torch.Tensor, torch.Tensor]:
    """O and LSE of this rank's queries."""
    return _problem.forward(problem, *_gathered(problem))


def backward(problem: Problem, do: torch.Tensor, o: torch.Tensor, lse: torch.Tensor, dlse: torch.Tensor | None,
             wanted: tuple[str, ...], want_sinks: bool) -> Gradients:
    """Gradients of this rank's rows; for tensors and sinks, this rank's contribution."""
    return returned(problem, _problem.backward(problem, *_gathered(problem), do, o, lse, dlse, wanted, want_sinks))


def returned(problem: Problem, gradients: Gradients) -> Gradients:
    """Gradients of this rank's rows, from each rank's gradients of the whole sequence."""
    route = route_of(problem.placement, problem.rank, problem.k.device)
    results = [torch.empty_like(x, memory_format=torch.contiguous_format) for x in (problem.k, problem.v)]
    of_rows = [(slice(begin, begin + x.shape[2] * x.shape[3]), result.transpose(0, 1).flatten(2))
               for begin, x, result in zip((0, problem.k.shape[2] * problem.k.shape[3]), (problem.k, problem.v), results)]

    def round_dq() -> None:
        gradients.dq = gradients.dq.to(problem.q.dtype)

    return_rows(problem.control, route, beside(gradients.dk, gradients.dv), of_rows, problem.timeout, round_dq)
    gradients.dk, gradients.dv = results
    return gradients
