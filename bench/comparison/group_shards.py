"""A contender's computation on one rank, and its errors."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

# Tolerated difference from one GPU, relative to the largest value.
TOLERANCE = 0.02


@dataclasses.dataclass
class Shards:
    """A rank's shards of q, k, v and do, and what computes o of them: `forward(q, k, v)`, differentiable by autograd.

    whole(x): o or a gradient as (batch, seqlen, heads, …) of the whole sequence; close(): ends what preparing began;
    local(gradients): a call of this rank's kernels alone, without an exchange, or None; placement: of jit-attention.
    """

    forward: Callable
    tensors: list
    do: Any
    whole: Callable
    close: Callable = lambda: None
    local: Callable | None = None
    placement: Any = None

    def call(self, gradients):
        """The call that is timed."""
        import torch

        if gradients:
            leaves = [x.detach().requires_grad_() for x in self.tensors]
            return lambda: torch.autograd.grad(self.forward(*leaves), leaves, self.do)

        def call():
            with torch.no_grad():
                return self.forward(*self.tensors)

        return call


def errors_of(rank, shards, expected):
    """Errors of o, and of dq, dk and dv if they are expected, on the worst rank. Gradients of repeated KV heads are summed."""
    import torch

    if len(expected) > 1:
        leaves = [x.detach().requires_grad_() for x in shards.tensors]
        o = shards.forward(*leaves)
        found = [o, *torch.autograd.grad(o, leaves, shards.do)]
    else:
        with torch.no_grad():
            found = [shards.forward(*shards.tensors)]
    errors = []
    for x, right in zip(found, expected):
        x, right = shards.whole(x).float(), right.float()
        if x.shape[2] != right.shape[2]:
            x = x.unflatten(2, (right.shape[2], -1)).sum(3)
        error = ((x - right).abs().max() / right.abs().max()).item()
        errors += rank.slowest(error if math.isfinite(error) else math.inf)
    return errors
