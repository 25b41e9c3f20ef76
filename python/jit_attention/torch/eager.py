"""Attention with gradients without PyTorch's dispatcher, whose overhead exceeds a short kernel."""

import torch
from torch.autograd import forward_ad

from .operator import (
    DEFAULTS,
    OUTPUTS,
    backward_operator,
    compute,
    compute_gradients,
    gradients_of,
    save_for_backward,
)

_PLAIN = torch.Tensor, torch.nn.Parameter  # subclasses may override operators


def is_watched(*tensors):
    """Whether a compiler, tracer, dispatch mode, transform or tensor subclass observes operators."""
    if torch.compiler.is_compiling():
        return True
    for tensor in tensors:
        if tensor is not None and type(tensor) not in _PLAIN:
            return True
    return (torch._C._len_torch_dispatch_stack() > 0 or torch._C._get_tracing_state() is not None
            or torch._C._are_functorch_transforms_active()
            or forward_ad._current_level >= 0)


def attention_with_gradients(q, k, v, tensors, *facts, sinks=None, **others):
    """The operator's result for its arguments, when nothing observes the call."""
    return _Attention.apply(q, k, v, sinks, facts, others, *tensors)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, sinks, facts, others, *tensors):
        inputs = q, k, v, tensors, *facts, *(DEFAULTS | others | {"sinks": sinks}).values()
        output = compute(*inputs)
        save_for_backward(ctx, inputs, output)
        ctx.mark_non_differentiable(*(made for name, made in zip(OUTPUTS, output[2:]) if name != "mean_score"))
        return output

    @staticmethod
    def backward(ctx, do, dlse, *outputs):
        # With create_graph, the operator refuses second derivatives.
        backward = backward_operator if torch.is_grad_enabled() or is_watched(do, dlse) else compute_gradients
        dq, dk, dv, of_tensors, d_sinks = gradients_of(ctx, do, dlse, outputs, backward)
        return dq, dk, dv, d_sinks, None, None, *of_tensors
