"""Gradients of contenders that use torch's autograd."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field

from .contender import Runner, Unsupported, first_line


@dataclass
class Forward:
    """`call(q, k, v)` maps tensors of Inputs to o in the cell's output_shape(), differentiable by autograd; `context`
    surrounds it and its gradients; `detail` is a Runner's."""

    call: Callable
    context: Callable = contextlib.nullcontext
    detail: dict = field(default_factory=dict)


@contextlib.contextmanager
def deterministic_torch():
    """torch.use_deterministic_algorithms, without its kernels that fill new tensors with NaN."""
    import torch

    fills = torch.utils.deterministic.fill_uninitialized_memory
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)
        torch.utils.deterministic.fill_uninitialized_memory = fills


def context_of(cell, forward):
    """A function that creates the context around calls of `forward` and its gradients."""

    @contextlib.contextmanager
    def entered():
        import torch

        with deterministic_torch() if cell.deterministic else contextlib.nullcontext():
            with forward.context(), torch.enable_grad():
                yield

    return entered


def own_stream(device):
    """A function that runs another one on a new stream, ordered with the current one, and returns its result.

    Autograd computes gradients on the stream of their forward, and a CUDA graph can only hold them if that is not the
    default stream.
    """
    import torch

    if device.type != "cuda":
        return lambda function: function()
    stream = torch.cuda.Stream(device)

    def ordered(function):
        current = torch.cuda.current_stream(device)
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            result = function()
        current.wait_stream(stream)
        return result

    return ordered


class ByAutograd:
    """differentiate() and train() of a Contender with forward_of(cell, inputs) -> Forward, which raises Unsupported.
    NotImplementedError also means that the cell is not supported."""

    def differentiate(self, cell, inputs):
        import torch

        forward, leaves = self.forward_of(cell, inputs), inputs.with_gradients()
        context, ordered = context_of(cell, forward), own_stream(inputs.q.device)
        with refusals(), context():
            output = ordered(lambda: forward.call(*leaves))

        def call():
            return ordered(lambda: torch.autograd.grad(output, leaves, inputs.d_o, retain_graph=True))

        return first_called(Runner(call, context, forward.detail))

    def train(self, cell, inputs):
        import torch

        forward, leaves = self.forward_of(cell, inputs), inputs.with_gradients()

        def call():
            return torch.autograd.grad(forward.call(*leaves), leaves, inputs.d_o)

        return first_called(Runner(call, context_of(cell, forward), forward.detail))


def first_called(runner):
    """The Runner after a first call, which has compiled everything."""
    with refusals(), runner.context():
        runner.call()
    return runner


@contextlib.contextmanager
def refusals():
    """Converts NotImplementedError to Unsupported."""
    try:
        yield
    except NotImplementedError as error:
        raise Unsupported(first_line(error)) from None
