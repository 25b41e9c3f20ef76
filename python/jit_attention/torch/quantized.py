"""Attention of 16-bit tensors by fp8: one launch quantises them, one attends.

What makes fp8 coarse is taken away before, where it can be added back exactly: a rotation of q and k leaves their
products as they are, a mean of k shifts all scores of a row alike, and a mean of v is a summand of the result.
"""

from typing import Optional

import torch
from torch import library

from ..errors import InvalidArgumentError
from ..quantize import quantize_qkv
from .op import attention

_TYPES = {"fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}
_SCALES = ("head", "token")


def quantized_attention(
    q,
    k,
    v,
    *,
    dtype="fp8_e4m3",
    scales="head",
    rotation_seed=None,
    center_keys=False,
    center_values=False,
    softmax_scale=None,
    score=None,
    return_lse=False,
    layout="BSHD",
    **options,
):
    """`jit_attention.torch.attention` of bf16 or fp16 tensors, computed in fp8.

    Args:
        q, k, v: (batch, seqlen, heads, head_dim), without gradients. Sequences of one length.
        dtype: "fp8_e4m3" or "fp8_e5m2", what they are rounded to.
        scales: "head": one for each batch entry and KV head; "token": of q and k one for each row, which rows with
            outliers want. The largest magnitude becomes the largest number of the type.
        rotation_seed: a number from 0 on: q and k are multiplied by a Hadamard matrix with random signs of this seed before they
            are rounded, which spreads outliers over a head; head_dim is a power of two. None: they are not.
        center_keys: subtract k's mean over the sequence, of each head and channel, for keys with a bias. LSE has it
            again. Not with `score`, which would see other scores.
        center_values: subtract v's mean, and add it to the result: what wgmma's sums of 13 bits behind the point lose
            of long sequences is mostly the mean.
        softmax_scale, score, return_lse, layout, options: as those of `jit_attention.torch.attention`.

    Returns:
        o of q's dtype, or (o, lse), as `jit_attention.torch.attention` does.

    Raises:
        InvalidArgumentError: an argument cannot be served; names it.
        Error: what `jit_attention.torch.attention` raises.
    """
    _check(q, k, v, dtype, scales, rotation_seed, center_keys, score, layout, options)
    own = [x.transpose(1, 2) if layout == "BHSD" else x for x in (q, k, v)]
    own = [x if x.stride(-1) == 1 else x.contiguous() for x in own]
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    quantize = _operator if torch.compiler.is_compiling() else _quantized
    q8, k8, v8, q_descale, k_descale, v_descale, v_mean, lse_shift = quantize(
        *own, dtype, scales, rotation_seed, center_keys, center_values, return_lse
    )
    o, lse = attention(
        q8,
        k8,
        v8,
        q_descale=q_descale,
        k_descale=k_descale,
        v_descale=v_descale,
        softmax_scale=scale,
        score=score,
        return_lse=True,
        out_dtype="fp32" if center_values else _name(q.dtype),
        **options,
    )
    if center_values:  # a row that sees no key stays 0
        sees = torch.isfinite(lse).transpose(1, 2)[..., None]
        o = (o + torch.where(sees, _of_queries(v_mean[:, None], own[0].shape[2] // k8.shape[2]), 0)).to(q.dtype)
    if center_keys and return_lse:
        lse = lse + scale * lse_shift
    o = o.transpose(1, 2) if layout == "BHSD" else o
    return (o, lse) if return_lse else o


def _quantized(q, k, v, dtype, scales, rotation_seed, center_keys, center_values, return_lse):
    """The tensors of `quantize_qkv`; empty ones where there is none."""
    made = quantize_qkv(
        q,
        k,
        v,
        out_dtype=dtype,
        scales=scales,
        rotation_seed=rotation_seed,
        center_keys=center_keys,
        center_values=center_values,
        return_lse_shift=center_keys and return_lse,
    )
    means = [q.new_empty(0, dtype=torch.float32) if x is None else x for x in (made.v_mean, made.lse_shift)]
    return [*made[:6], *means]


@library.custom_op("jit_attention::quantize_qkv", mutates_args=())
def _operator(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dtype: str, scales: str, rotation_seed: Optional[int],
              center_keys: bool, center_values: bool, return_lse: bool) -> list[torch.Tensor]:  # fmt: skip
    return _quantized(q, k, v, dtype, scales, rotation_seed, center_keys, center_values, return_lse)


@_operator.register_fake
def _(q, k, v, dtype, scales, rotation_seed, center_keys, center_values, return_lse):
    def numbers(*shape):
        return q.new_empty(shape, dtype=torch.float32)

    batch, seqlen_q, heads_q = q.shape[:3]
    heads_kv = k.shape[2]
    made = [x.new_empty(x.shape, dtype=_TYPES[dtype]) for x in (q, k, v)]
    of_heads = numbers(batch, heads_kv)
    if scales == "token":
        made += [numbers(*q.shape[:3]), numbers(*k.shape[:3]), of_heads]
    else:
        made += [of_heads, numbers(batch, heads_kv), numbers(batch, heads_kv)]
    made.append(numbers(batch, heads_kv, v.shape[3]) if center_values else numbers(0))
    made.append(numbers(batch, heads_q, seqlen_q) if center_keys and return_lse else numbers(0))
    return made


def _check(q, k, v, dtype, scales, rotation_seed, center_keys, score, layout, options):
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.dtype not in (torch.bfloat16, torch.float16):
            _refuse(name, f"is {tensor.dtype}; it must be torch.bfloat16 or torch.float16")
        if tensor.dim() != 4:
            _refuse(name, f"has {tensor.dim()} dimensions; it must have 4: sequences of one length")
        if torch.is_grad_enabled() and tensor.requires_grad:
            _refuse(
                name,
                "requires grad, and there are no gradients of fp8: compute under torch.no_grad(), or give detach()",
            )
    heads = 1 if layout == "BHSD" else 2
    if k.shape[heads] == 0 or q.shape[heads] % k.shape[heads] != 0:
        _refuse(
            "k", f"has {k.shape[heads]} heads and q has {q.shape[heads]}; the number of q's must be a multiple of k's"
        )
    if dtype not in _TYPES:
        _refuse("dtype", f"is {dtype!r}; it must be one of {', '.join(map(repr, _TYPES))}")
    if scales not in _SCALES:
        _refuse("scales", f"is {scales!r}; it must be one of {', '.join(map(repr, _SCALES))}")
    if rotation_seed is not None and q.shape[-1] & (q.shape[-1] - 1):
        _refuse("rotation_seed", f"was given, and head_dim is {q.shape[-1]}; a Hadamard matrix needs a power of two")
    if rotation_seed is not None and not 0 <= rotation_seed < 2**63:
        _refuse("rotation_seed", f"is {rotation_seed}; it must be from 0 to 2^63 - 1")
    if center_keys and score is not None:
        _refuse("center_keys", "must be False with a score: it would see scores without k's mean")
    for name in (
        "q_descale",
        "k_descale",
        "v_descale",
        "kv_dtype",
        "out_dtype",
        "cu_seqlens_q",
        "cu_seqlens_k",
        "page_table",
        "sinks",
    ):
        if options.get(name) is not None:
            _refuse(name, "has no place here: call jit_attention.torch.attention with tensors of fp8")


def _refuse(argument, reason):
    raise InvalidArgumentError(f"{argument}: {reason}", "arguments", argument)


def _name(dtype):
    return "bf16" if dtype == torch.bfloat16 else "fp16"


def _of_queries(of_keys, ratio):
    return of_keys if ratio == 1 else of_keys.repeat_interleave(ratio, 2)
