"""Attention of 16-bit tensors by fp8: quantised by PyTorch's operations, multiplied by jit_attention.

What makes fp8 coarse is taken away before, where it can be added back exactly: a rotation of q and k leaves their
products as they are, a mean of k shifts all scores of a row alike, and a mean of v is a summand of the result.
"""

import math

import torch

from ..errors import InvalidArgumentError
from .op import attention

_TYPES = {"fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}
_SCALES = {"tensor": (0, 1, 2, 3), "head": (1, 3)}


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
        scales: "tensor": one each for q, k and v; "head": one for each batch entry and KV head. The largest magnitude
            becomes the largest number of the type.
        rotation_seed: a number: q and k are multiplied by a Hadamard matrix with random signs of this seed before they
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
    wide_q, wide_k, wide_v = (x.float() for x in own)
    scale = wide_q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    k_mean = v_mean = None
    if center_keys and wide_k.shape[1] > 0:
        k_mean = wide_k.mean(1, keepdim=True)
        wide_k = wide_k - k_mean
    if center_values and wide_v.shape[1] > 0:
        v_mean = wide_v.mean(1, keepdim=True)
        wide_v = wide_v - v_mean
    if rotation_seed is not None:
        matrix = _rotation(wide_q.shape[-1], rotation_seed, q.device)
        rotated_q, wide_k = wide_q @ matrix, wide_k @ matrix
    else:
        rotated_q = wide_q
    ratio = wide_q.shape[2] // wide_k.shape[2]
    (q8, q_descale), (k8, k_descale), (v8, v_descale) = (
        _rounded(x, dtype, scales, heads) for x, heads in ((rotated_q, ratio), (wide_k, 1), (wide_v, 1))
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
        out_dtype="fp32" if v_mean is not None else _name(q.dtype),
        **options,
    )
    if v_mean is not None:  # a row that sees no key stays 0
        sees = torch.isfinite(lse).transpose(1, 2)[..., None]
        o = (o + torch.where(sees, _of_queries(v_mean, ratio), 0)).to(q.dtype)
    if k_mean is not None:
        lse = lse + scale * (wide_q * _of_queries(k_mean, ratio)).sum(-1).transpose(1, 2)
    o = o.transpose(1, 2) if layout == "BHSD" else o
    return (o, lse) if return_lse else o


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


def _rounded(x, dtype, scales, heads):
    """x in fp8, and what makes x of it again: of each batch entry and KV head, which `heads` heads of x share."""
    kind = _TYPES[dtype]
    most = torch.finfo(kind).max
    batch, seqlen, count, width = x.shape
    groups = x.reshape(batch, seqlen, count // heads, heads * width)
    largest = groups.abs().amax(_SCALES[scales], keepdim=True) if groups.numel() else groups.new_zeros(1, 1, 1, 1)
    # Of zeros alone any scale will do.
    scale = torch.where(largest > 0, largest / most, torch.ones_like(largest))
    codes = (groups / scale).clamp(-most, most).to(kind).reshape(x.shape)
    return codes, scale[:, 0, :, 0].contiguous()


def _rotation(width, seed, device):
    """An orthogonal matrix whose elements have one magnitude."""
    matrix = torch.ones(1, 1)
    while matrix.shape[0] < width:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    generator = torch.Generator().manual_seed(seed)
    signs = torch.randint(2, (width, 1), generator=generator) * 2 - 1
    return (signs * matrix / math.sqrt(width)).to(device)
