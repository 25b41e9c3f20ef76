"""Attention of 16-bit tensors in FP8: one launch quantizes them, one computes attention.

Rotations and means make rounding to FP8 more accurate, and can be undone exactly: a rotation of q and k does not
change their products, a mean of k shifts all scores of a row by the same number, and a mean of v is added to the
result.
"""

import inspect
from typing import Any, Literal, Optional

import torch
from torch import library

from .._keywords import refuse_unknown
from ..errors import InvalidArgumentError
from ..quantize import quantize_qkv
from ..score import Score
from ..typing import Fp8DType, Layout, ScaleKind
from .op import attention, autocast

_TYPES = {"fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}
_SCALES = ("head", "token", "block")
_VALUE_SCALES = ("head", "channel")
_OPTIONS = frozenset(inspect.signature(attention).parameters)


def quantized_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    dtype: Fp8DType = "fp8_e4m3",
    scales: ScaleKind = "head",
    rotation_seed: int | None = None,
    center_keys: bool = False,
    center_values: bool = False,
    value_scales: Literal["head", "channel"] = "head",
    interpolated_exponentials: bool = False,
    cu_seqlens_q: torch.Tensor | None = None,
    cu_seqlens_k: torch.Tensor | None = None,
    seqused_q: torch.Tensor | None = None,
    seqused_k: torch.Tensor | None = None,
    softmax_scale: float | None = None,
    score: Score | None = None,
    sinks: torch.Tensor | None = None,
    return_lse: bool = False,
    layout: Layout = "BSHD",
    **options: Any,
) -> Any:
    """Computes attention of bf16 or fp16 tensors in FP8: one launch quantizes them, one computes attention.

    There are no gradients and no dropout.

    Args:
        q: Queries (batch, seqlen_q, heads_q, head_dim), bf16 or fp16. Or varlen, (tokens, heads_q, head_dim), with
            cu_seqlens_q and cu_seqlens_k: then all sequences share the means and scales of a head.
        k: Keys (batch, seqlen_kv, heads_kv, head_dim), likewise.
        v: Values (batch, seqlen_kv, heads_kv, head_dim_v), likewise.
        dtype: "fp8_e4m3" or "fp8_e5m2", the type that they are rounded to.
        scales: The elements of q and k that share a scale. "head": those of a batch entry and KV head. "token": those
            of a row, for rows with outliers. "block": those of 64 rows.
        rotation_seed: Seed ≥ 0 of the random signs of a Hadamard matrix that q and k are multiplied by before they
            are rounded, which spreads outliers over a head. head_dim must be a power of two. None: no rotation.
        center_keys: Whether to subtract k's mean over the sequence, for each head and channel. LSE and sinks are
            corrected. Not with `score`.
        center_values: Whether to subtract v's mean, and to add it to the result. It helps long sequences, because FP8
            products are summed in a format with 13 fractional bits.
        value_scales: The elements of v that share a scale: "head", or "channel" for those of a column, too.
        interpolated_exponentials: As in `jit_attention.attention`.
        cu_seqlens_q: As in `jit_attention.attention`.
        cu_seqlens_k: As in `jit_attention.attention`.
        seqused_q: As in `jit_attention.attention`.
        seqused_k: As in `jit_attention.attention`.
        softmax_scale: As in `jit_attention.attention`.
        score: As in `jit_attention.attention`.
        sinks: As in `jit_attention.attention`.
        return_lse: Whether to return LSE, too.
        layout: As in `jit_attention.attention`.
        options: Other arguments of `attention`, such as mask and tensors.

    Returns:
        o in q's dtype (under ``torch.autocast`` in that dtype), or (o, LSE).

    Raises:
        InvalidArgumentError: An argument is wrong.
        Error: As `attention` raises it.

    Thread safety:
        Any number of threads may call at the same time.

    Examples:
        >>> q = torch.randn(1, 64, 2, 64, dtype=torch.bfloat16)
        >>> jit_attention.torch.quantized_attention(q, q, q, rotation_seed=1).dtype
        torch.bfloat16
    """
    for name in options:
        if name not in _OPTIONS:
            refuse_unknown(attention, [name])
    q, k, v = autocast(q, k, v)
    lengths = dict(cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, seqused_q=seqused_q, seqused_k=seqused_k)
    _check(q, k, v, dtype, scales, value_scales, rotation_seed, center_keys, score, layout, lengths, options)
    is_turned = layout == "BHSD" and q.dim() == 4
    own = [x.transpose(1, 2) if is_turned else x for x in (q, k, v)]
    own = [x if x.stride(-1) == 1 else x.contiguous() for x in own]
    with_shift = center_keys and (return_lse or sinks is not None)  # sinks compare with unshifted scores
    quantize = _operator if torch.compiler.is_compiling() else _quantized
    q8, k8, v8, q_descale, k_descale, v_descale, v_mean, lse_shift = quantize(
        *own, dtype, scales, value_scales, rotation_seed, center_keys, center_values, with_shift, **lengths
    )  # fmt: skip
    result = attention(
        q8,
        k8,
        v8,
        q_descale=q_descale,
        k_descale=k_descale,
        v_descale=v_descale,
        v_mean=v_mean if center_values else None,
        lse_shift=lse_shift if with_shift else None,
        descale_per=scales,
        softmax_scale=softmax_scale,
        score=score,
        sinks=sinks,
        return_lse=return_lse,
        out_dtype=_name(q.dtype),
        interpolated_exponentials=interpolated_exponentials,
        **lengths,
        **options,
    )
    o, *lse = result if return_lse else (result,)
    o = o.transpose(1, 2) if is_turned else o
    return (o, *lse) if return_lse else o


def _quantized(
    q, k, v, dtype, scales, value_scales, rotation_seed, center_keys, center_values, with_shift, **lengths
):  # fmt: skip
    """The tensors of `quantize_qkv`; empty ones when absent."""
    made = quantize_qkv(
        q,
        k,
        v,
        out_dtype=dtype,
        scales=scales,
        value_scales=value_scales,
        rotation_seed=rotation_seed,
        center_keys=center_keys,
        center_values=center_values,
        return_lse_shift=with_shift,
        **lengths,
    )
    means = [q.new_empty(0, dtype=torch.float32) if x is None else x for x in (made.v_mean, made.lse_shift)]
    return [*made[:6], *means]


@library.custom_op("jit_attention::quantize_qkv", mutates_args=())
def _operator(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dtype: str, scales: str, value_scales: str,
              rotation_seed: Optional[int], center_keys: bool, center_values: bool, with_shift: bool,
              cu_seqlens_q: Optional[torch.Tensor] = None, cu_seqlens_k: Optional[torch.Tensor] = None,
              seqused_q: Optional[torch.Tensor] = None,
              seqused_k: Optional[torch.Tensor] = None) -> list[torch.Tensor]:  # fmt: skip
    return _quantized(
        q, k, v, dtype, scales, value_scales, rotation_seed, center_keys, center_values, with_shift,
        cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, seqused_q=seqused_q, seqused_k=seqused_k,
    )  # fmt: skip


@_operator.register_fake
def _(q, k, v, dtype, scales, value_scales, rotation_seed, center_keys, center_values, with_shift,
      *_lengths):  # fmt: skip
    def numbers(*shape):
        return q.new_empty(shape, dtype=torch.float32)

    batch, (seqlen_q, heads_q) = q.shape[:-3], q.shape[-3:-1]
    of_heads = (*batch, k.shape[-2])
    made = [x.new_empty(x.shape, dtype=_TYPES[dtype]) for x in (q, k, v)]
    for x in (q, k):
        rows = x.shape[-3] if scales == "token" else (x.shape[-3] + 63) // 64
        made.append(numbers(*of_heads) if scales == "head" else numbers(*batch, rows, x.shape[-2]))
    made.append(numbers(*of_heads, *(v.shape[-1:] if value_scales == "channel" else ())))
    made.append(numbers(*of_heads, v.shape[-1]) if center_values else numbers(0))
    made.append(numbers(*batch, heads_q, seqlen_q) if with_shift else numbers(0))
    return made


def _check(q, k, v, dtype, scales, value_scales, rotation_seed, center_keys, score, layout, lengths, options):
    boundaries = "cu_seqlens_q", "cu_seqlens_k"
    is_varlen = any(lengths[name] is not None for name in boundaries)
    for name in boundaries:
        if is_varlen and lengths[name] is None:
            _refuse(name, "is missing; give both, or neither: q, k and v are quantized together")
    rank, meaning = (3, "beside cu_seqlens_q") if is_varlen else (4, "sequences of one length")
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.dtype not in (torch.bfloat16, torch.float16):
            _refuse(name, f"is {tensor.dtype}; it must be torch.bfloat16 or torch.float16")
        if tensor.dim() != rank:
            _refuse(name, f"has {tensor.dim()} dimensions; it must have {rank}: {meaning}")
        if torch.is_grad_enabled() and tensor.requires_grad:
            _refuse(
                name,
                "requires grad, and there are no gradients of fp8: compute under torch.no_grad(), or give detach()",
            )
    heads = 1 if layout == "BHSD" or is_varlen else 2
    if k.shape[heads] == 0 or q.shape[heads] % k.shape[heads] != 0:
        _refuse(
            "k", f"has {k.shape[heads]} heads and q has {q.shape[heads]}; the number of q's must be a multiple of k's"
        )
    if dtype not in _TYPES:
        _refuse("dtype", f"is {dtype!r}; it must be one of {', '.join(map(repr, _TYPES))}")
    if scales not in _SCALES:
        _refuse("scales", f"is {scales!r}; it must be one of {', '.join(map(repr, _SCALES))}")
    if value_scales not in _VALUE_SCALES:
        _refuse("value_scales", f"is {value_scales!r}; it must be one of {', '.join(map(repr, _VALUE_SCALES))}")
    if rotation_seed is not None and q.shape[-1] & (q.shape[-1] - 1):
        _refuse("rotation_seed", f"was given, and head_dim is {q.shape[-1]}; a Hadamard matrix needs a power of two")
    if rotation_seed is not None and not 0 <= rotation_seed < 2**63:
        _refuse("rotation_seed", f"is {rotation_seed}; it must be from 0 to 2^63 - 1")
    if center_keys and score is not None:
        _refuse("center_keys", "must be False with a score: it would see scores without k's mean")
    if options.get("return_rng_state"):
        _refuse("return_rng_state", "must be False: there is no dropout with fp8")
    for name in (
        "q_descale",
        "k_descale",
        "v_descale",
        "v_mean",
        "lse_shift",
        "kv_dtype",
        "out_dtype",
        "descale_per",
        "page_table",
        "cache_leftpad",
    ):
        if options.get(name) is not None:
            _refuse(name, "has no place here: call jit_attention.torch.attention with tensors of fp8")


def _refuse(argument, reason):
    raise InvalidArgumentError(f"{argument}: {reason}", "arguments", argument)


def _name(dtype):
    return "bf16" if dtype == torch.bfloat16 else "fp16"
