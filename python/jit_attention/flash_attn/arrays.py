"""Uniform access to arrays of PyTorch, NumPy etc., and the attention call for them."""

import importlib

from .. import attention as _attention
from .refusals import refuse

try:
    import torch

    from ..torch import attention as _attention_of_tensors
except ImportError:
    torch = None


def is_tensor(array):
    """Whether it is a PyTorch tensor."""
    return torch is not None and isinstance(array, torch.Tensor)


def beside(array):
    """An array's framework module, and the keywords that create arrays on its device."""
    if is_tensor(array):
        return torch, {"device": array.device}
    return importlib.import_module(type(array).__module__.partition(".")[0]), {}


def unpacked(array, axis):
    """Views of an array along an axis, whose gradients are assembled into one tensor."""
    if is_tensor(array):
        return array.unbind(axis)
    return tuple(array[(slice(None),) * axis + (i,)] for i in range(array.shape[axis]))


def attend(q, k, v, *, deterministic=False, dropout_p=0.0, **options):
    """Attention by `jit_attention.torch`; for arrays other than tensors by `jit_attention.attention`."""
    if not is_tensor(q):
        if dropout_p != 0:
            refuse("dropout_p", f"is {dropout_p}, and only PyTorch's tensors have random numbers of their own: give "
                                "rng_state to jit_attention.attention")
        return _attention(q, k, v, **options)
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
    head_dim, head_dim_v = q.shape[-1], v.shape[-1]
    if head_dim % 8 == 0 and head_dim_v % 8 == 0:
        return _attention_of_tensors(q, k, v, dropout_p=dropout_p, deterministic=deterministic, **options)
    if options.get("softmax_scale") is None:
        options["softmax_scale"] = head_dim**-0.5
    q, k, v = (torch.nn.functional.pad(x, (0, -x.shape[-1] % 8)) for x in (q, k, v))
    o = _attention_of_tensors(q, k, v, dropout_p=dropout_p, deterministic=deterministic, **options)
    return (o[0][..., :head_dim_v], o[1]) if options.get("return_lse") else o[..., :head_dim_v]
