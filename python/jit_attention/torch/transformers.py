"""Attention for models of Hugging Face Transformers, behind ``attn_implementation="jit_attention"``."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Optional

import torch

from .. import mask as _mask
from .. import score as _score
from ..errors import InvalidArgumentError
from . import active
from .active import attention
from .quantized import quantized_attention
from .sdpa import _BIAS, _bias_of, _in_16_bits, _refuse, causal_of, is_causal_bias

_CAUSAL = _mask.causal()

# Arguments that would change the result but are not supported here.
_UNSERVED = {
    "head_mask": "factors of heads",
    "block_indices": "blocks of keys by index",
}


# Options of `quantized_attention` that models may pass.
_QUANTIZED = frozenset(("dtype", "scales", "value_scales", "rotation_seed", "center_keys", "center_values",
                        "interpolated_exponentials"))
# Fewer queries do not repay quantizing all keys: decoding stays in 16 bits.
_LEAST_QUANTIZED_QUERIES = 64


def register_with_transformers(name: str = "jit_attention", quantized: dict[str, Any] | bool | None = None) -> None:
    """Registers ``attn_implementation=name`` with Hugging Face Transformers.

    It serves models in bf16 or fp16, or in fp32 under ``torch.autocast``: encoders, decoders and KV caches, with
    padding on either side, sliding windows, softcap, sinks, position biases and grouped-query attention. Causal
    masks, windows and padding are computed in the kernel, which skips empty tiles. Other masks are tensors, as for
    "eager"; the log names patterns that are not recognized. Padding rows that see no token are 0. Packed sequences in
    one batch entry are recognized by positions that restart, or by `cu_seq_lens_q` and `cu_seq_lens_k`, which
    `DataCollatorWithFlattening` makes.

    Args:
        name: The name. A second registration under the same name replaces the first one.
        quantized: Options of `jit_attention.torch.quantized_attention` (dtype, scales, value_scales, rotation_seed,
            center_keys, center_values, interpolated_exponentials): calls with 64 queries or more are computed in FP8.
            Others, such as decoding, gradients and dropout, stay in 16 bits. True: k and v are centered, and q and k
            are rotated if head_dim is a power of two. None: everything stays in 16 bits.

    Raises:
        ImportError: Transformers is missing or too old: version 5 is needed.
        InvalidArgumentError: `quantized` has an unknown option. A model raises it when it runs in fp32 without
            autocast, or with attention weights as results, head masks, or other masks beside cumulative lengths.

    Thread safety:
        Call it once, from one thread.

    Examples:
        >>> import transformers
        >>> jit_attention.torch.register_with_transformers()
        >>> config = transformers.BertConfig(hidden_size=64, num_hidden_layers=1, num_attention_heads=2)
        >>> model = transformers.AutoModel.from_config(config, dtype=torch.bfloat16,
        ...                                            attn_implementation="jit_attention")
        >>> model(torch.ones((1, 16), dtype=torch.int64)).last_hidden_state.shape
        torch.Size([1, 16, 64])
    """
    try:
        from transformers import AttentionInterface
        from transformers.masking_utils import AttentionMaskInterface

        from .transformers_mask import attention_mask_function
        from .transformers_models import refuse_others
    except ImportError as error:
        raise ImportError("register_with_transformers needs a current transformers 5: "
                          "pip install -U transformers") from error

    AttentionInterface.register(name, attention_function if quantized is None else _quantizing(quantized))
    AttentionMaskInterface.register(name, attention_mask_function)
    refuse_others(name)


def _quantizing(quantized):
    """The attention function that uses fp8 where supported."""
    if quantized is not True and not isinstance(quantized, dict):
        _refuse("quantized", f"is {quantized!r}; it must be None, True or a dict of {', '.join(sorted(_QUANTIZED))}")
    for option in () if quantized is True else quantized:
        if option not in _QUANTIZED:
            _refuse("quantized", f"has {option!r}; options are {', '.join(sorted(_QUANTIZED))}")
    return functools.partial(attention_function, quantized=quantized)


def _quantized_options(quantized, query, key, value, score, dropout):
    """Options of `quantized_attention` for rows (…, seqlen, heads, head_dim); None: 16 bits."""
    wants_gradient = torch.is_grad_enabled() and any(x.requires_grad for x in (query, key, value))
    if quantized is None or wants_gradient or dropout != 0 or query.shape[-3] < _LEAST_QUANTIZED_QUERIES:
        return None
    if quantized is True:
        is_power = query.shape[-1] & (query.shape[-1] - 1) == 0
        quantized = dict(center_keys=True, center_values=True, rotation_seed=0 if is_power else None)
    return quantized if score is None else quantized | dict(center_keys=False)


class AttentionMaskIsNoTensorError(InvalidArgumentError, AttributeError):
    """A layer used an AttentionMask as a tensor. AttributeError makes `hasattr` return False."""


def _used_as_tensor(use):
    raise AttentionMaskIsNoTensorError(
        f"attention_mask: {use} was asked of what attn_implementation='jit_attention' has in place of a mask tensor, by "
        "a layer that computes attention by itself: load this model, or this part of it by a dict of implementations, "
        "with attn_implementation='eager'", "arguments", "attention_mask")


@dataclasses.dataclass(frozen=True, eq=False)
class AttentionMask:
    """The mask function's result for the attention layers where no tensor is needed.

    Attributes:
        mask: a jit_attention.Mask that says all about which keys a query sees.
        tensors: what the mask reads, by name.
        shape: (batch, 1, seqlen_q, seqlen_kv), of the tensor that it stands for.
        of_each: the mask of each sequence by itself, where `mask` says nothing beside it but which ones are packed;
            else None.

    Whatever else a tensor has or takes part in raises AttentionMaskIsNoTensorError.
    """

    mask: _mask.Mask
    tensors: dict
    shape: tuple
    of_each: Optional[_mask.Mask] = None
    ndim = 4

    def to(self, device, **keywords):
        """The mask on another device, for its layers."""
        tensors = {name: tensor.to(device, **keywords) for name, tensor in self.tensors.items()}
        return dataclasses.replace(self, tensors=tensors)

    def contiguous(self):
        """The mask itself: `generate` calls this when it prepares a static cache."""
        return self

    def __getattr__(self, name):
        _used_as_tensor(name)

    def __eq__(self, other):
        return self is other if isinstance(other, AttentionMask) else _used_as_tensor("__eq__")

    __hash__ = object.__hash__

    @classmethod
    def __torch_function__(cls, function, types, arguments=(), keywords=None):
        _used_as_tensor(getattr(function, "__name__", repr(function)))


def _operator_of_tensors(name):
    def refuse(self, *_):
        _used_as_tensor(name)

    return refuse


for _name in ("getitem", "len", "iter", "add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "neg", "invert",
              "and", "rand", "or", "ror", "lt", "le", "gt", "ge"):
    setattr(AttentionMask, f"__{_name}__", _operator_of_tensors(f"__{_name}__"))


def attention_function(module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
                       attention_mask, scaling: Optional[float] = None, dropout: float = 0.0,
                       sliding_window: Optional[int] = None, softcap: Optional[float] = None,
                       is_causal: Optional[bool] = None, position_bias: Optional[torch.Tensor] = None,
                       cu_seq_lens_q: Optional[torch.Tensor] = None, cu_seq_lens_k: Optional[torch.Tensor] = None,
                       s_aux: Optional[torch.Tensor] = None, quantized=None, **kwargs):
    """The attention of one layer, as `transformers.AttentionInterface` calls it.

    Args:
        module: the layer; its `is_causal` holds unless the argument is given.
        query: (batch, heads_q, seqlen_q, head_dim), bf16 or fp16, or fp32 under autocast.
        key, value: (batch, heads_kv, seqlen_kv, head_dim); heads are not repeated.
        attention_mask: an AttentionMask or a tensor (batch|1, heads_q|1, seqlen_q|1, seqlen_kv), bool (True is kept)
            or additive; both are all of the mask. None: `is_causal`, bottom-right, and `sliding_window` are.
        scaling: of query · key; None: 1/sqrt(head_dim).
        dropout: the rate at which probabilities are dropped at random, which models set in training alone.
        sliding_window: number of keys that a causal query sees, its own included; without is_causal as many after it.
        softcap: of the scores, before masks and biases.
        position_bias: (batch|1, heads_q|1, seqlen_q|1, seqlen_kv), added to the scores.
        cu_seq_lens_q, cu_seq_lens_k: (sequences + 1), where each of the packed sequences begins and ends, both or
            none. attention_mask is None then, or a pattern without padding, alone or over packed sequences.
        s_aux: (heads_q), sinks: a score of each head without a value.
        quantized: as `register_with_transformers` has it.

    Returns:
        (batch, seqlen_q, heads_q, head_dim_v), contiguous, and None for the weights.

    Raises InvalidArgumentError for what it does not serve; see `register_with_transformers`.
    """
    _check(kwargs)
    packed = _packed(query, attention_mask, position_bias, cu_seq_lens_q, cu_seq_lens_k)
    query, key, value = _in_16_bits(query, key, value)

    tensors = {}
    if isinstance(attention_mask, AttentionMask) and packed:
        mask = attention_mask.of_each
    elif isinstance(attention_mask, AttentionMask):
        mask, tensors = attention_mask.mask, dict(attention_mask.tensors)
    elif attention_mask is None:
        if is_causal is None:
            is_causal = getattr(module, "is_causal", True)
        if sliding_window is not None:
            mask = _mask.sliding_window(sliding_window - 1, 0 if is_causal else sliding_window - 1)
        else:
            mask = _CAUSAL if is_causal else None
    else:
        mask = None
    if is_causal_bias(attention_mask):
        mask, attention_mask = causal_of(attention_mask, query.shape[-2], key.shape[-2]), None

    bias = attention_mask if isinstance(attention_mask, torch.Tensor) else None
    if position_bias is not None:
        bias = _joined_bias(position_bias.to(query.dtype), bias)
    score = None if softcap is None else _score.softcap(softcap)
    if bias is not None:
        bias = _bias_of(bias, query, key.shape[2], query.shape[:1])
        tensors["bias"] = bias
        score = _BIAS[bias.dtype] if score is None else score.then(_BIAS[bias.dtype])

    rows = [x.transpose(1, 2) for x in (query, key, value)]
    rows = [x if x.stride(-1) == 1 else x.contiguous() for x in rows]
    if packed:
        rows = [x.squeeze(0) for x in rows]
    options = dict(mask=mask, score=score, softmax_scale=scaling, tensors=tensors, dropout_p=dropout,
                   sinks=None if s_aux is None else s_aux.float(), **packed)
    by_fp8 = _quantized_options(quantized, *rows, score, dropout)
    o = attention(*rows, **options) if by_fp8 is None else quantized_attention(*rows, **by_fp8, **options)
    return o.unsqueeze(0) if packed else o, None


def _packed(query, attention_mask, position_bias, cu_seq_lens_q, cu_seq_lens_k):
    """Arguments of `attention` for packed sequences; empty without any."""
    if active.calls or (cu_seq_lens_q is None and cu_seq_lens_k is None):  # a placement has the lengths of its sequences
        return {}
    if cu_seq_lens_q is None or cu_seq_lens_k is None:
        missing = "cu_seq_lens_q" if cu_seq_lens_q is None else "cu_seq_lens_k"
        _refuse(missing, "is None, and the lengths of the other side are given; give both")
    if query.shape[0] != 1:
        _refuse("cu_seq_lens_q", f"is given, and the batch is {query.shape[0]}; packed sequences are one batch entry")
    if attention_mask is not None and getattr(attention_mask, "of_each", None) is None:
        _refuse("attention_mask", "is given beside cu_seq_lens_q, and is not only which sequences are packed: leave it "
                "out, or the lengths (return_flash_attn_kwargs=False of the collator), so that a mask says all")
    if position_bias is not None:
        _refuse("position_bias", "is given beside cu_seq_lens_q; packed sequences have none")
    return dict(cu_seqlens_q=cu_seq_lens_q.to(torch.int32), cu_seqlens_k=cu_seq_lens_k.to(torch.int32))


def _check(kwargs):
    if kwargs.get("output_attentions"):
        _refuse("output_attentions", "is set, but no weights are formed here; use attn_implementation='eager'")
    for name, meaning in _UNSERVED.items():
        if kwargs.get(name) is not None:
            _refuse(name, f"is given, but {meaning} are not served; use another attn_implementation")


def _joined_bias(position_bias, attention_mask):
    if attention_mask is None:
        return position_bias
    if attention_mask.dtype == torch.bool:
        return position_bias.masked_fill(attention_mask.logical_not(), -torch.inf)
    return position_bias + attention_mask.to(position_bias.dtype)
