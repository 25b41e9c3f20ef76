"""Method "arrive", for a forward call that equals the one before it but for its numbers."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from . import arrive
from . import problem as _problem
from .groups import is_captured
from .problem import Problem


class Repeated:
    """A forward call with the sizes, memory and time-out of the one before it: the host only exchanges and launches."""

    __slots__ = ("problem", "control", "fields", "workspace", "shared", "life", "on_gpu")

    def __init__(self, problem: Problem, workspace: arrive._Workspace, shared: arrive._Shared) -> None:
        q, k, v = (x.new_empty((x.shape[0], 0, *x.shape[2:])) for x in (problem.q, problem.k, problem.v))
        self.problem = dataclasses.replace(problem, q=q, k=k, v=v)  # without this call's tensors, which may be freed
        self.control, self.fields = problem.control, problem.control.fields
        self.workspace, self.shared, self.life = workspace, shared, shared.life
        self.on_gpu = problem.q.is_cuda

    def __call__(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
                 timeout: float) -> tuple[torch.Tensor, torch.Tensor] | None:
        """O and LSE; None, without having begun: something has changed, and the call is made as any other."""
        workspace, shared = self.workspace, self.shared
        if (shared.life != self.life or workspace._broken.value or timeout != shared.timeout
                or (self.on_gpu and torch._C._cuda_isCurrentStreamCapturing())):
            return None
        control, exchange = self.control, shared.exchange
        control.repeat(self.fields)
        stream = arrive._stream(workspace.device)
        with arrive.leaving_if_it_fails(control):
            addresses = shared.begin(k, v, stream)
        try:
            with arrive.leaving_if_it_fails(control):
                found = shared.arguments.get((self, addresses))
                if found is None:
                    whole_k, whole_v, arrivals = shared.tensors(addresses, k, v, self.problem.placement.seqlen)
                    options = _problem.arriving(self.problem, None, True, arrivals)
                    found = shared.arguments[self, addresses] = whole_k, whole_v, options | {"return_lse": True}
                return _problem._attention(q, found[0], found[1], **found[2])
        finally:
            exchange.end(stream)


def repeated(problem: Problem) -> Any:
    """The shortcut for the next equal call, which has no tensors but q, k and v; None: that is made as any other."""
    _, workspace, sizes = problem.kept.get("workspace", ("", None, ()))
    if arrive._LAUNCHES_BLOCK or workspace is None or workspace.refusal or len(workspace.hosts) > 1:
        return None
    if is_captured(problem.q):
        return None
    return Repeated(problem, workspace, workspace.kept.get((problem.placement, sizes), workspace.shared))
