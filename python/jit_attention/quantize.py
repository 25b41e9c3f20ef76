"""Queries, keys and values made fp8 in one launch, with what attention wants to know of it."""

import typing

from . import _core


class QuantizedQkv(typing.NamedTuple):
    """What `quantize_qkv` makes: `attention(z.q, z.k, z.v, **z.scales)`."""

    q: typing.Any
    k: typing.Any
    v: typing.Any
    q_descale: typing.Any
    k_descale: typing.Any
    v_descale: typing.Any
    #: With center_keys: (batch, heads_kv, head_dim), of rotated keys.
    k_mean: typing.Any = None
    #: With center_values: (batch, heads_kv, head_dim_v), what o lacks of rows that see a key.
    v_mean: typing.Any = None
    #: With return_lse_shift: (batch, heads_q, seqlen_q); softmax_scale times this is what LSE lacks.
    lse_shift: typing.Any = None
    #: What q_descale and k_descale are for: "head", "token" or "block".
    descale_per: typing.Any = None

    @property
    def scales(self):
        """The arguments of `attention` that make numbers of these elements again, and give back what they have lost."""
        names = "q_descale", "k_descale", "v_descale", "v_mean", "lse_shift"
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        if self.descale_per == "block" and len(self.q_descale.shape) == 2:  # as many as there are requests, by chance
            given["descale_per"] = self.descale_per
        return given


def quantize_qkv(
    q,
    k,
    v,
    *,
    q_out=None,
    k_out=None,
    v_out=None,
    q_descale=None,
    k_descale=None,
    v_descale=None,
    out_dtype="fp8_e4m3",
    scales="token",
    value_scales="head",
    rotation_seed=None,
    center_keys=False,
    center_values=False,
    return_lse_shift=False,
    cu_seqlens_q=None,
    cu_seqlens_k=None,
    seqused_q=None,
    seqused_k=None,
    cos_sin=None,
    q_positions=None,
    k_positions=None,
    rotary_interleaved=False,
    q_norm_weight=None,
    k_norm_weight=None,
    norm_eps=1e-6,
    norm_adds_one=False,
    keep_rows=None,
    dtype=None,
    stream=None,
):
    """q, k and v made of 8 bits, in one launch, with scales that are found on the way.

    A row of q or k, in fp32, goes through RMS norm and rotary position embedding as `append` has them, then through a
    rotation, each if it is asked for. A row of q, k or v then loses a mean, then is divided by a scale, by way of
    its reciprocal, and rounded to the nearest even element; too large ones become the largest. Equal inputs give equal
    bits.

    Args:
        q: (batch, seqlen_q, heads_q, head_dim), bf16, fp16 or fp32; any strides whose last is 1. Or varlen, (tokens,
            heads, head_dim), as k and v then are: all tokens are one batch entry, of one mean and one scale of a
            head, and the shapes below have no batch.
        k: (batch, seqlen_kv, heads_kv, head_dim); heads_q is a multiple of heads_kv.
        v: (batch, seqlen_kv, heads_kv, head_dim_v). Head dims are multiples of 8 from 8 to 256.
        q_out, k_out, v_out: arrays to write to; None: new ones.
        q_descale, k_descale, v_descale: fp32, what elements are multiplied by to be numbers again. With "given" they are
            read: (1), (heads_kv) or (batch, heads_kv), None: 1. Else they are written: arrays to write to, None: new ones.
        out_dtype: "fp8_e4m3" or "fp8_e5m2".
        scales: of q and k: "token", one for each row; "block", one for each 64 rows of a head, counted from the first of a
            batch entry, or of all varlen rows; "head", one for each batch entry and KV head; or "given". The largest
            magnitude becomes the largest element; of less than 2^-100 a scale is 1.
        value_scales: of v: "head", "channel" (batch, heads_kv, head_dim_v), or "given".
        rotation_seed: a number: q and k are multiplied by a Hadamard matrix with random signs of this seed, which spreads
            outliers over a head and leaves q kᵀ as it is; head_dim is a power of two. None: they are not.
        center_keys: k loses its mean over the tokens, of each head and channel: all scores of a query shift alike. That
            changes o under sinks, which do not shift, unless attention has lse_shift, and under a score that does more
            than add, such as softcap.
        center_values: v loses the same, and attention adds it to the result.
        return_lse_shift: with center_keys: also what LSE has lost, over softmax_scale, which attention adds to it.
        cu_seqlens_q, cu_seqlens_k: int32 (batch + 1), of varlen tensors: sequence b has rows cu_seqlens_q[b] to
            cu_seqlens_q[b + 1]. None: all rows are of a sequence.
        seqused_q, seqused_k: int32 (batch), rows of each sequence, where it has room for more; None: all. These four
            are read on the device alone. Rows of no sequence are not read, take no part in scales and means, and are
            not written: in new arrays they hold anything, and so do scales of these rows alone, and lse_shift.
        cos_sin: fp32, bf16 or fp16 (max_pos, rotary_dim): of each position the cosines of rotary_dim / 2 pairs, then their
            sines, by which the leading rotary_dim elements of q's and k's heads are rotated; None: they are not.
        q_positions, k_positions: int64 (batch, seqlen), or (tokens): rows of cos_sin. None, where q is not varlen:
            tokens' places in their batch entries. A row whose position is none becomes NaN, and takes no part in a
            scale.
        rotary_interleaved: pairs are (2j, 2j + 1), as GPT-J has it, else (j, j + rotary_dim / 2), as GPT-NeoX.
        q_norm_weight, k_norm_weight: (head_dim): RMS norm of every head of q and k before that; None: none.
        norm_eps: added to the mean of squares.
        norm_adds_one: weights are 1 + weight, as Gemma has it.
        keep_rows: whether rows stay in shared memory until all is known of their sequence, on sm_90, or are read twice. Bits
            are the same. None: what is faster, by sizes. True: a call whose tensors cannot be kept is refused; where the
            program is not at hand rows are read twice.
        dtype: "bf16" or "fp16", for arrays of 16-bit integers, which cannot say what they hold.
        stream: a number or an object with __cuda_stream__; None: the current stream of q's framework.

    Returns:
        A QuantizedQkv.

    Raises:
        InvalidArgumentError: an array is wrong; names the argument, before anything is launched.
        InvalidSpecError: types or sizes are none that can be served, with what would work.
        Error: of another kind, see jit_attention.errors.
    """
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
