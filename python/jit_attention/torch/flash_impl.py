"""jit-attention as an implementation of flash attention that PyTorch's own `scaled_dot_product_attention` calls."""

from __future__ import annotations

import torch
from torch import library

from .. import attention as _attention
from .. import attention_backward as _attention_backward
from .. import mask as _mask
from ..errors import InvalidArgumentError

_NAME = "jit_attention"
_CAUSAL = _mask.causal("top_left")


def register_with_torch() -> None:
    """Makes "jit_attention" a name for ``torch.nn.attention.activate_flash_attention_impl``.

    After ``torch.nn.attention.activate_flash_attention_impl("jit_attention")``, the function
    ``torch.nn.functional.scaled_dot_product_attention`` computes with this library what its flash backend would
    serve: bf16 and fp16 on a GPU without attn_mask, with gradients and dropout, also inside of PyTorch's modules.
    ``torch.nn.attention.restore_flash_attention_impl()`` ends this. Varlen calls of PyTorch are not replaced.

    Raises:
        RuntimeError: This PyTorch cannot register implementations.

    Thread safety:
        Call it once, from one thread.

    Examples:
        >>> jit_attention.torch.register_with_torch()
        >>> torch.nn.attention.activate_flash_attention_impl("jit_attention")
        >>> torch.nn.attention.restore_flash_attention_impl()
    """
    register = getattr(torch.nn.attention, "register_flash_attention_impl", None)
    if register is None:
        raise RuntimeError(f"PyTorch {torch.__version__} has no register_flash_attention_impl: take a newer one, or "
                           "call jit_attention.torch.scaled_dot_product_attention")
    register(_NAME, register_fn=Activation)


class Activation:
    """Replacement of PyTorch's operators for a dispatch key until `remove`."""

    def __init__(self, dispatch_key="CUDA"):
        self._replaced = library.Library("aten", "IMPL", dispatch_key)
        for name, function in (("_scaled_dot_product_flash_attention", _forward),
                               ("_scaled_dot_product_flash_attention_backward", _backward)):
            self._replaced.impl(name, function, dispatch_key, allow_override=True)

    def remove(self):
        self._replaced = None


def _forward(query, key, value, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None):
    if return_debug_mask:
        raise InvalidArgumentError("return_debug_mask: is True, and which probabilities were dropped is not kept: leave "
                                   "it out", "arguments", "return_debug_mask")
    rng_state = torch.zeros(2, dtype=torch.int64, device=query.device)
    dropout = {}
    if dropout_p != 0:
        rng_state.random_()
        dropout = dict(dropout_p=dropout_p, rng_state=rng_state)
    (q, k, v), layout = _as_query_lies(query, query, key, value)
    o, lse = _attention(q, k, v, mask=_CAUSAL if is_causal else None, softmax_scale=scale, layout=layout,
                        return_lse=True, **dropout)
    nothing = query.new_empty(0)
    return (o if layout == "BHSD" else o.transpose(1, 2), lse, None, None, query.shape[2], key.shape[2],
            rng_state.view(torch.uint64), torch.empty((), dtype=torch.uint64, device=query.device), nothing)


def _backward(grad_out, query, key, value, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal,
              philox_seed, philox_offset, *, scale=None):
    dropout = dict(dropout_p=dropout_p, rng_state=philox_seed.view(torch.int64)) if dropout_p != 0 else {}
    (do, q, k, v, o), layout = _as_query_lies(query, grad_out, query, key, value, out)
    gradients = _attention_backward(do, q, k, v, o, logsumexp, mask=_CAUSAL if is_causal else None,
                                    softmax_scale=scale, layout=layout,
                                    deterministic=torch.are_deterministic_algorithms_enabled(), **dropout)
    return gradients if layout == "BHSD" else tuple(gradient.transpose(1, 2) for gradient in gradients)


def _as_query_lies(query, *tensors):
    """Tensors (batch, heads, seqlen, head_dim), permuted so that results get query's memory order."""
    rows = [x.detach() if x.stride(-1) == 1 else x.detach().contiguous() for x in tensors]
    if query.stride(1) < query.stride(2):
        return [x.transpose(1, 2) for x in rows], "BSHD"
    return rows, "BHSD"
