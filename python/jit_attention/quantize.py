"""Quantization of queries, keys and values to FP8, in one launch."""

from __future__ import annotations

import typing
from typing import Literal

from . import _core
from ._keywords import Nothing, hides_unknown, refuse_unknown
from .typing import Array, ArrayT, DTypeObject, Fp8DType, OperandDType, Stream


class QuantizedQkv(typing.NamedTuple):
    """The result of `quantize_qkv`. ``attention(z.q, z.k, z.v, **z.scales)`` computes attention of it.

    Attributes:
        q: FP8 queries, of the shape of those that were given.
        k: FP8 keys.
        v: FP8 values.
        q_descale: fp32 dequantization scales of q.
        k_descale: fp32 dequantization scales of k.
        v_descale: fp32 dequantization scales of v.
        k_mean: With center_keys: fp32 (batch, heads_kv, head_dim), the mean of the rotated keys.
        v_mean: With center_values: fp32 (batch, heads_kv, head_dim_v), which attention adds to o.
        lse_shift: With return_lse_shift: fp32 (batch, heads_q, seqlen_q). Attention adds softmax_scale times this to
            LSE.
        descale_per: The elements that share a scale of q_descale and k_descale: "head", "token" or "block".
    """

    q: typing.Any
    k: typing.Any
    v: typing.Any
    q_descale: typing.Any
    k_descale: typing.Any
    v_descale: typing.Any
    k_mean: typing.Any = None
    v_mean: typing.Any = None
    lse_shift: typing.Any = None
    descale_per: typing.Any = None

    @property
    def scales(self) -> dict[str, typing.Any]:
        """The keyword arguments that `attention` needs beside q, k and v."""
        names = "q_descale", "k_descale", "v_descale", "v_mean", "lse_shift"
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        if self.descale_per == "block" and len(self.q_descale.shape) == 2:  # as many as there are requests, by chance
            given["descale_per"] = self.descale_per
        return given


@hides_unknown
def quantize_qkv(
    q: ArrayT,
    k: ArrayT,
    v: ArrayT,
    *,
    q_out: Array | None = None,
    k_out: Array | None = None,
    v_out: Array | None = None,
    q_descale: Array | None = None,
    k_descale: Array | None = None,
    v_descale: Array | None = None,
    out_dtype: Fp8DType | DTypeObject = "fp8_e4m3",
    scales: Literal["token", "block", "head", "given"] = "token",
    value_scales: Literal["head", "channel", "given"] = "head",
    rotation_seed: int | None = None,
    center_keys: bool = False,
    center_values: bool = False,
    return_lse_shift: bool = False,
    cu_seqlens_q: Array | None = None,
    cu_seqlens_k: Array | None = None,
    seqused_q: Array | None = None,
    seqused_k: Array | None = None,
    cos_sin: Array | None = None,
    q_positions: Array | None = None,
    k_positions: Array | None = None,
    rotary_interleaved: bool = False,
    q_norm_weight: Array | None = None,
    k_norm_weight: Array | None = None,
    norm_eps: float = 1e-6,
    norm_adds_one: bool = False,
    keep_rows: bool | None = None,
    dtype: OperandDType | DTypeObject | None = None,
    stream: Stream | None = None,
    **unknown: Nothing,
) -> QuantizedQkv:
    """Quantizes q, k and v to FP8 in one launch, with scales that it computes.

    A row of q or k passes through RMS norm, rotary embedding (both as in `append`) and a rotation, if requested, all
    in fp32. Then a mean is subtracted from rows of k and v, if requested. Rows are divided by a scale, rounded to
    nearest even and saturated. Equal inputs give bitwise identical results.

    Args:
        q: Queries (batch, seqlen_q, heads_q, head_dim), bf16, fp16 or fp32. Any strides, if the last one is 1. Or
            varlen, (tokens, heads, head_dim), if k and v are varlen, too: then all tokens share the scales and means
            of their head, and the shapes below have no batch.
        k: Keys (batch, seqlen_kv, heads_kv, head_dim). heads_q is a multiple of heads_kv.
        v: Values (batch, seqlen_kv, heads_kv, head_dim_v). Head dims are multiples of 8 from 8 to 256.
        q_out: An array of q's shape that receives the FP8 queries. None: a new one.
        k_out: The same for k.
        v_out: The same for v.
        q_descale: fp32. With scales="given" the dequantization scales, which are read: (1), (heads_kv) or
            (batch, heads_kv); None: 1. Otherwise an array that receives them; None: a new one.
        k_descale: The same for k.
        v_descale: The same for v, with value_scales="given".
        out_dtype: "fp8_e4m3" or "fp8_e5m2".
        scales: The elements of q and k that share a scale. "token": those of a row. "block": those of 64 rows of a
            head, counted from the first row of a batch entry, or of all varlen rows. "head": those of a batch entry
            and KV head. The largest magnitude becomes the largest FP8 number; below 2^-100 the scale is 1. "given":
            see q_descale.
        value_scales: The same for v: "head", "channel" for each batch entry, head and column, or "given".
        rotation_seed: Seed of the random signs of a Hadamard matrix that q and k are multiplied by. It spreads
            outliers over a head and does not change q kᵀ. head_dim must be a power of two. None: no rotation.
        center_keys: Whether to subtract k's mean over the tokens, for each head and channel. It shifts all scores of
            a query by the same number. That changes o with sinks (unless `attention` gets lse_shift), and with scores
            that do more than add, such as softcap.
        center_values: Whether to subtract v's mean over the tokens, which `attention` adds to the result.
        return_lse_shift: With center_keys: whether to return lse_shift, with which `attention` corrects LSE.
        cu_seqlens_q: int32 (batch + 1), for varlen arrays: sequence b has rows cu_seqlens_q[b] to cu_seqlens_q[b +
            1]. None: one sequence. This array and the next three are read only on the device.
        cu_seqlens_k: The same for k and v.
        seqused_q: int32 (batch). Number of rows of each sequence, if the array has room for more. Padding rows are
            neither read nor written.
        seqused_k: The same for k and v.
        cos_sin: fp32, bf16 or fp16 (max_pos, rotary_dim). For each position the cosines of rotary_dim / 2 pairs, then
            their sines. The first rotary_dim elements of a head are rotated. None: no rotary embedding.
        q_positions: int64 (batch, seqlen_q), or (tokens). The row of cos_sin of each query. None, if q is not varlen:
            the token's place in its batch entry. A row without such a position becomes NaN, and is ignored by scales.
        k_positions: The same for keys.
        rotary_interleaved: Whether pairs are (2j, 2j + 1), as in GPT-J. Otherwise they are (j, j + rotary_dim / 2),
            as in GPT-NeoX.
        q_norm_weight: (head_dim). Weights of an RMS norm of every query head. None: no norm.
        k_norm_weight: (head_dim). Weights of an RMS norm of every key head. None: no norm.
        norm_eps: Added to the mean of squares.
        norm_adds_one: Whether the factors are 1 + weight, as in Gemma.
        keep_rows: On sm_90: whether rows stay in shared memory until the scales are known (True), or are read twice
            (False). The results are the same. None: the faster way. True is refused for arrays that do not fit.
        dtype: "bf16" or "fp16": the element type of arrays of 16-bit integers, which cannot state it.
        stream: A stream's handle, or an object with ``__cuda_stream__``. None: the current stream of q's framework.

    Returns:
        The FP8 arrays, with scales and means.

    Raises:
        InvalidArgumentError: An array or another argument is wrong. Nothing was launched.
        InvalidSpecError: The library does not serve these types or sizes; the message says what would work.
        TypeError: An argument has a wrong type or name.
        Error: Compiling, loading or launching failed; `jit_attention.errors` lists the classes.

    Thread safety:
        Any number of threads may call at the same time, if they write to different arrays.

    Examples:
        >>> x = np.ones((1, 64, 2, 64), ml_dtypes.bfloat16)
        >>> z = ja.quantize_qkv(x, x, x)
        >>> z.q.dtype.name, z.q_descale.shape
        ('float8_e4m3fn', (1, 64, 2))
        >>> o = ja.attention(z.q, z.k, z.v, **z.scales)
        >>> o.dtype.name
        'bfloat16'
    """
    if unknown:
        refuse_unknown(quantize_qkv, unknown)
    made = QuantizedQkv(
        *_core.quantize_qkv(
            q,
            k,
            v,
            q_out=q_out,
            k_out=k_out,
            v_out=v_out,
            q_descale=q_descale,
            k_descale=k_descale,
            v_descale=v_descale,
            out_dtype=out_dtype,
            scales=scales,
            value_scales=value_scales,
            rotation_seed=rotation_seed,
            center_keys=center_keys,
            center_values=center_values,
            return_lse_shift=return_lse_shift,
            cu_seqlens_q=cu_seqlens_q,
            cu_seqlens_k=cu_seqlens_k,
            seqused_q=seqused_q,
            seqused_k=seqused_k,
            cos_sin=cos_sin,
            q_positions=q_positions,
            k_positions=k_positions,
            rotary_interleaved=rotary_interleaved,
            q_norm_weight=q_norm_weight,
            k_norm_weight=k_norm_weight,
            norm_eps=norm_eps,
            norm_adds_one=norm_adds_one,
            keep_rows=keep_rows,
            dtype=dtype,
            stream=stream,
        )
    )
    return made._replace(descale_per="head" if scales == "given" else scales)
