"""Method "ring": shards of keys and values travel around the ring; no rank ever holds more than two.

O and LSE are continued in fp32 over the steps, by the kernels of each step if they can, and rounded once at the end. In the
backward pass fp32 sums of dK and dV follow their keys, from the owner in rank order, so that every run is bitwise identical.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch

from . import problem as _problem
from .groups import start_rows
from .placement import Placement
from .problem import Gradients, Problem, State
from .rows import apart, beside


class _Neighbors:
    """Sends rows to the next rank while receiving from the previous one."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.size = problem, problem.control.size

    def start(self, held: torch.Tensor, coming: int) -> tuple[torch.Tensor, Any]:
        sent, received = [0] * self.size, [0] * self.size
        sent[(self.problem.rank + 1) % self.size] = held.shape[0]
        received[(self.problem.rank - 1) % self.size] = coming
        return start_rows(self.problem.control, held, sent, received)

    def finish(self, started: tuple[torch.Tensor, Any]) -> torch.Tensor:
        result, work = started
        self.problem.control.wait(work, self.problem.timeout, result.is_cuda)
        return result


@functools.lru_cache(maxsize=1024)
def _has_work(placement: Placement, rank: int, source: int) -> bool:
    """Whether some query of a rank needs another rank's key."""
    granule = placement.granule
    return any(begin < -(-end_of_run // granule) and begin_of_run // granule < end
               for begin, end in placement.needs[rank]
               for begin_of_run, end_of_run in placement.runs[source])


def _steps(problem: Problem) -> Iterator[tuple[int, bool, torch.Tensor, torch.Tensor]]:
    """For each passing shard: its rank, whether it has work, and its keys and values. The next one is received
    meanwhile."""
    size, neighbors = problem.control.size, _Neighbors(problem)
    held = beside(problem.k, problem.v)
    for step in range(size):
        source = (problem.rank - step) % size
        started = neighbors.start(held, problem.placement.rows((source - 1) % size)) if step + 1 < size else None
        yield source, step == 0 or _has_work(problem.placement, problem.rank, source), *apart(held, problem.k, problem.v)
        if started is not None:
            held = neighbors.finish(started)


def forward(problem: Problem) -> tuple[torch.Tensor, torch.Tensor]:
    """O and LSE of this rank's queries."""
    state = State()
    for source, has_work, k, v in _steps(problem):
        if has_work:
            state.add_keys(problem, k, v, source, with_sinks=source == problem.rank)
    assert state.o is not None and state.lse is not None
    return state.o.to(problem.q.dtype), state.lse


def backward(problem: Problem, do: torch.Tensor, o: torch.Tensor, lse: torch.Tensor, dlse: torch.Tensor | None,
             wanted: tuple[str, ...], want_sinks: bool) -> Gradients:
    """Gradients of this rank's rows; for tensors and sinks, this rank's contribution."""
    neighbors = _Neighbors(problem)
    dq = torch.zeros(problem.q.shape, dtype=torch.float32, device=problem.q.device)
    by_name: dict[str, torch.Tensor] = {}
    of_sinks = None
    sums = torch.zeros_like(beside(problem.k, problem.v), dtype=torch.float32)
    for source, has_work, k, v in _steps(problem):
        is_own = source == problem.rank
        if has_work:
            part = _problem.backward(problem, k, v, do, o, lse, dlse, wanted, want_sinks and is_own, source)
            dq += part.dq
            sums += beside(part.dk, part.dv)
            for name, gradient in part.tensors.items():
                by_name[name] = by_name[name] + gradient.float() if name in by_name else gradient.float()
            of_sinks = part.sinks if is_own else of_sinks
        # The sums follow their keys; after the last step they have reached the owner.
        sums = neighbors.finish(neighbors.start(sums, problem.placement.rows((source - 1) % problem.control.size)))
    dk, dv = (x.to(problem.k.dtype, memory_format=torch.contiguous_format) for x in apart(sums, problem.k, problem.v))
    tensors = problem.tensors or {}
    return Gradients(dq.to(problem.q.dtype), dk, dv,
                     {name: gradient.to(tensors[name].dtype) for name, gradient in by_name.items()}, of_sinks)
