"""Attention with the arguments of `torch.nn.functional.scaled_dot_product_attention`."""

from __future__ import annotations

import math
import sys
from typing import Any

import torch

from .. import mask as _mask
from .. import score as _score
from .._keywords import Nothing, hides_unknown, refuse_unknown
from ..errors import InvalidArgumentError
from .active import attention
from .op import autocast

_CAUSAL, _LOWER_RIGHT = _mask.causal("top_left"), _mask.causal()
_BIAS = {
    torch.float32: _score.bias("fp32"),
    torch.bfloat16: _score.bias("bf16"),
    torch.float16: _score.bias("fp16"),
}


@hides_unknown
def scaled_dot_product_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: Any = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False, **unknown: Nothing
) -> torch.Tensor:
    """Computes ``torch.nn.functional.scaled_dot_product_attention`` in bf16 and fp16, with gradients.

    query, key, value and a floating-point attn_mask have gradients. A query that sees no key has a result of 0,
    whatever hides its keys. Values of a floating-point mask below −2^80, such as −1e30, drop the key as −inf does. A
    value of −1e9 does so if another key has an ordinary score.

    Args:
        query: (..., heads_q, seqlen_q, head_dim), bf16 or fp16, with any number of batch dimensions; fp32 under
            ``torch.autocast``. Two dimensions are (seqlen_q, head_dim).
        key: (..., heads_kv, seqlen_kv, head_dim), of query's dtype. Batch dimensions of size 1 broadcast.
        value: (..., heads_kv, seqlen_kv, head_dim_v), of query's dtype.
        attn_mask: Broadcasts to (..., heads_q, seqlen_q, seqlen_kv). bool: True is kept. fp32 or query's dtype: it is
            added to the scores. Dimensions of size 1 are not expanded in memory, except the last one. A
            ``CausalBias`` of ``torch.nn.attention.bias`` becomes a causal mask.
        dropout_p: The rate of dropout, 0 ≤ dropout_p < 1, with random numbers from torch's default generator. They
            differ from those of torch's own function.
        is_causal: Whether query i sees the keys up to i, whatever the lengths are. Not with attn_mask.
        scale: A positive factor of query · key. None: 1/sqrt(head_dim).
        enable_gqa: Whether heads_q may be a multiple of heads_kv. Otherwise they are equal, or heads_kv is 1.

    Returns:
        (..., heads_q, seqlen_q, head_dim_v), dense in query's order of dimensions.

    Raises:
        InvalidArgumentError: An argument is wrong, or tensors are fp32 without autocast.
        InvalidSpecError: The library does not serve this problem; the message says what would work.

    Thread safety:
        Any number of threads may call at the same time.

    Examples:
        >>> q = torch.randn(1, 2, 16, 64, dtype=torch.bfloat16)
        >>> jit_attention.torch.scaled_dot_product_attention(q, q, q, is_causal=True).shape
        torch.Size([1, 2, 16, 64])
    """
    if unknown:
        refuse_unknown(scaled_dot_product_attention, unknown)
    if attn_mask is not None and is_causal:
        _refuse("attn_mask", "is given together with is_causal=True; put the causal part into attn_mask, or pass one")
    mask = _CAUSAL if is_causal else None
    if is_causal_bias(attn_mask):
        mask, attn_mask = causal_of(attn_mask, query.shape[-2], key.shape[-2]), None
    query, key, value = _in_16_bits(query, key, value)
    _check_heads(query, key, value, enable_gqa)
    batch = query.shape[:-3]
    if query.dim() != 4 or key.dim() != 4 or value.dim() != 4 or not batch == key.shape[:-3] == value.shape[:-3]:
        batch = torch.broadcast_shapes(batch, key.shape[:-3], value.shape[:-3])
        shape = (*batch, *query.shape[-3:-1], value.shape[-1])
        query, key, value = (_four_dimensions(tensor, batch) for tensor in (query, key, value))
    else:
        shape = None

    tensors = score = None
    if attn_mask is not None:
        if attn_mask.dtype != torch.float32:  # fp32 may stay as precise as it is
            (attn_mask,) = autocast(attn_mask)
        bias = _bias_of(attn_mask, query, key.shape[2], batch)
        tensors, score = {"bias": bias}, _BIAS[bias.dtype]
    if query.stride(1) < query.stride(2):
        o = attention(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), mask=mask, score=score,
                      softmax_scale=scale, tensors=tensors, dropout_p=dropout_p).transpose(1, 2)
    else:
        o = attention(query, key, value, mask=mask, score=score, softmax_scale=scale, layout="BHSD", tensors=tensors,
                      dropout_p=dropout_p)
    return o if shape is None else o.reshape(shape)


def _refuse(argument, message):
    raise InvalidArgumentError(f"{argument}: {message}", "arguments", argument)


def is_causal_bias(mask):
    """Whether a mask is a `CausalBias`. Does not import its module, which loads a compiler; a mask of it implies it is
    loaded."""
    module = sys.modules.get("torch.nn.attention.bias")
    return module is not None and isinstance(mask, module.CausalBias)


def causal_of(bias, seqlen_q, seqlen_kv):
    """The causal mask of a `torch.nn.attention.bias.CausalBias`, whose memory is uninitialized."""
    if (bias.seq_len_q, bias.seq_len_kv) != (seqlen_q, seqlen_kv):
        _refuse("attn_mask", f"is a CausalBias of {bias.seq_len_q} queries and {bias.seq_len_kv} keys, and there are "
                f"{seqlen_q} and {seqlen_kv}; make it with these sizes")
    return _CAUSAL if bias.variant.name == "UPPER_LEFT" else _LOWER_RIGHT


def _in_16_bits(*tensors):
    """The tensors, in autocast's dtype if it is on; refuses all but bf16 or fp16 throughout."""
    tensors = autocast(*tensors)
    dtypes = [tensor.dtype for tensor in tensors]
    if dtypes[0] not in (torch.bfloat16, torch.float16) or len(set(dtypes)) > 1:
        _refuse("query", f"query, key and value are {', '.join(map(str, dtypes))}; they must be all bf16 or all fp16: "
                "convert them, or the whole model, with .to(torch.bfloat16), or compute under torch.autocast")
    return tensors


def _check_heads(query, key, value, enable_gqa):
    heads_q, heads_k, heads_v = (tensor.shape[-3] if tensor.dim() > 2 else 1 for tensor in (query, key, value))
    if heads_k != heads_v:
        _refuse("value", f"has {heads_v} heads and key has {heads_k}; they must have the same number")
    if heads_k not in (heads_q, 1) and not enable_gqa:
        _refuse("key", f"has {heads_k} heads and query has {heads_q}; pass enable_gqa=True if heads_q is a multiple")


def _four_dimensions(tensor, batch):
    if tensor.dim() < 2:
        _refuse("query", f"has {tensor.dim()} dimensions; query, key and value must have at least (seqlen, head_dim)")
    if tensor.dim() == 2:
        tensor = tensor.unsqueeze(0)
    return tensor.expand(*batch, *tensor.shape[-3:]).reshape(math.prod(batch), *tensor.shape[-3:])


def _bias_of(attn_mask, query, seqlen_kv, batch):
    """attn_mask as (batch|1, heads_q|1, seqlen_q|1, seqlen_kv) with last stride 1, added to the scores."""
    if attn_mask.dtype not in (torch.bool, torch.float32, query.dtype):
        _refuse("attn_mask", f"is {attn_mask.dtype}; it must be torch.bool, torch.float32 or {query.dtype}")
    wanted = (*batch, *query.shape[1:3], seqlen_kv)
    sizes = (1,) * (len(wanted) - attn_mask.dim()) + tuple(attn_mask.shape)
    if len(sizes) > max(len(wanted), 4) or any(s not in (1, w) for s, w in zip(reversed(sizes), reversed(wanted))):
        _refuse("attn_mask", f"has shape {tuple(attn_mask.shape)}; it must broadcast to {wanted}")
    bias = attn_mask.reshape((1,) * (4 - len(sizes)) + sizes)
    if bias.dim() > 4:
        lead = (1,) * len(batch) if all(size == 1 for size in sizes[:-3]) else batch
        bias = bias.expand(*lead, *sizes[-3:]).reshape(math.prod(lead), *sizes[-3:])
    if bias.dtype == torch.bool:
        for dimension in range(3):
            if bias.stride(dimension) == 0:
                bias = bias.narrow(dimension, 0, 1)
        bias = query.new_zeros(bias.shape).masked_fill_(bias.logical_not(), -math.inf)
    bias = bias.expand(*bias.shape[:3], seqlen_kv)
    return bias if bias.stride(3) == 1 else bias.contiguous()
