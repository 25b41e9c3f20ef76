"""Which calls have gradients: those of PyTorch tensors that require grad, by operators of `jit_attention.torch`."""

from __future__ import annotations

import sys
from typing import Any

from .. import _core


def _torch_of(array: Any) -> Any:
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(array, torch.Tensor) else None


def requires_gradient(*tensors: Any) -> bool:
    """Whether autograd must see a call with these arrays."""
    torch = _torch_of(tensors[0])
    return torch is not None and torch.is_grad_enabled() and any(
        getattr(tensor, "requires_grad", False) for tensor in tensors)


def is_compiled(array: Any) -> bool:
    """Whether `torch.compile` sees a call with this array."""
    torch = _torch_of(array)
    return torch is not None and torch.compiler.is_compiling()


def differentiable_attention(*tensors: Any) -> Any:
    """`attention` of PyTorch where gradients are wanted, else that of all arrays."""
    if not requires_gradient(*tensors) and not is_compiled(tensors[0]):
        return _core.attention
    from ..torch import attention

    return attention
