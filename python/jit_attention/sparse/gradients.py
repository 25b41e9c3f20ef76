"""Which calls have gradients: those of PyTorch tensors that require grad, by operators of `jit_attention.torch`."""

from __future__ import annotations

import sys
from typing import Any

from .. import _core


def wants_gradient(*tensors: Any) -> bool:
    """Whether autograd, or a compiler, must see a call with these arrays."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(tensors[0], torch.Tensor):
        return False
    return torch.compiler.is_compiling() or (
        torch.is_grad_enabled() and any(getattr(tensor, "requires_grad", False) for tensor in tensors))


def differentiable_attention(*tensors: Any) -> Any:
    """`attention` of PyTorch where gradients are wanted, else that of all arrays."""
    if not wants_gradient(*tensors):
        return _core.attention
    from ..torch import attention

    return attention
