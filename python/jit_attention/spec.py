"""The description of a problem, and whether the library serves it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal

from . import _core
from ._keywords import answers_unknown, refuse_unknown
from .functor import element_type
from .mask import Mask
from .output import OutputFunctor
from .score import Score
from .typing import DTypeObject, InputDType, OutputDType, ScaleKind, SequenceKind, StoredDType


@dataclass(frozen=True)
class AttentionSpec:
    """The problem that a kernel is specialized for. Immutable, hashable and picklable.

    Batch size, number of heads, lengths and strides are not part of it: they are known at a call and never compile.
    ``dataclasses.replace`` makes a changed copy.

    Attributes:
        dtype: Element type of q, k, v and o: "bf16" or "fp16". Or "fp8_e4m3" or "fp8_e5m2" for FP8 q, k and v. Sums
            are fp32. kv_dtype and out_dtype may differ from it.
        head_dim: Head dim of q and k: a multiple of 8 from 8 to 512 (FP8 dtype: 256; values_in_keys: 576).
        head_dim_v: Head dim of v and o, likewise. None: head_dim.
        gqa_ratio: Query heads per KV head: 1 is multi-head attention, heads_q is multi-query attention.
        alignment: Bytes that every row of q, k, v and o is aligned to: 16, 8, 4 or 2. 16 is fastest.
        seqlen_q: Number of queries, compiled into the kernel, for dense sequences. 0: it is known at a call.
        seqlen_kv: The same for keys.
        sequences_q: How q and o are stored: "dense" or "varlen".
        sequences_kv: How k and v are stored: "dense", "varlen" or "paged".
        page_size: Rows of a page, from 1 to 65536. 0 unless sequences_kv is "paged".
        sinks: Whether each head has a sink: an extra logit in the softmax denominator, without a value vector.
        dropout: Whether calls drop probabilities, with a rate and a seed of each call. For 16-bit q, k and v, dense
            and varlen sequences, without split_keys.
        split_keys: A multiple of 64 up to 2**20, not with FP8 dtype: keys are summed in spans of this length, so that
            the result of a sequence does not depend on the rest of the batch, nor, if `bits_of` has a text, on layout
            and kernel. Gradients ignore it. 0: each call splits sums in the fastest way.
        checked: Whether calls check lengths and page tables on the device and that the mask's functions agree, wait
            for it, and raise an error if something is wrong. Slow; for debugging.
        kv_dtype: Element type of k and v, if it is not dtype: "fp8_e4m3", "fp8_e5m2", "int8", "int4", "nvfp4" or
            "mxfp4"; with values_in_keys "latent_656", "latent_584" or "latent_528". Forward only, without dropout.
        out_dtype: Element type of o. None: dtype, or "bf16" with FP8. With FP8 dtype: "bf16", "fp16" or "fp32". With
            16-bit dtype: "fp32" (sm_90a), for partial results; gradients of q, k and v are then fp32, too. Or
            "fp8_e4m3" or "int8", with scales of o.
        descale_per: The elements of 8- or 4-bit k and v that share a dequantization scale. "head": all, those of a KV
            head, or those of a KV head and batch entry. "token": those of a key and KV head. "block", with FP8 dtype:
            those of 64 rows of a head. "int4" has "token", "nvfp4" and "mxfp4" have "head".
        v_descale_per: The same for v, with FP8 dtype: "head", or "channel" for one scale per column.
        v_mean: Whether the mean of each column was subtracted from FP8 v. Calls pass it, and it is added to o.
        lse_shift: Whether the mean was subtracted from FP8 k. Calls pass `lse_shift`, which corrects LSE and sinks.
            Only with scores that add.
        values_in_keys: Whether the values are the first head_dim_v columns of the keys, so that calls have no v: the
            latent cache of multi-head latent attention. Forward only, without dropout, with 16-bit keys or latents.
        interpolated_exponentials: With FP8 dtype: whether forward_wgmma may interpolate half of the probabilities in calls
            that do not return LSE, which is faster and less exact.
        q_positions: Whether calls pass the positions of queries in a sequence of which they have a part: masks,
            scores and dropout see these positions and the lengths of whole sequences.
        k_positions: The same for keys.
        key_arrivals: Whether keys arrive from other devices during the kernel, as with method "arrive" of
            `jit_attention.distributed.attention`. For dense 16-bit q, k and v, on sm_90a.
        list_block: Keys of an entry of the list of keys that each query has, 1 to 128. 0: no lists. With lists, calls
            pass tensors key_lists and key_counts, queries are varlen, and keys varlen or paged.
        list_slots: With list_block: whether entry e names rows of varlen k, or of all pages in order, from e ·
            list_block on, instead of keys of the query's sequence. Without mask and score; page_size is a multiple of
            list_block.
        list_queries: With list_block: rows of q, 1 to 32, that share a list. With more than 1, calls have key_members, too.
        max_logit: Whether calls raise the largest score of each head, an output that `return_aux` names. With 16-bit q,
            k and v.
        row_max: The same for the largest score of each query.
        mean_score: Whether calls write the mean of each query's scores, weighted by its probabilities. With 16-bit q,
            k and v, without split_keys, values_in_keys and list_block.
        o_descale: With out_dtype "fp8_e4m3" or "int8" and head dims up to 256: whether calls compute a scale for each
            row of o, an output that `return_aux` names. Otherwise callers pass scales.
        running_lse: With out_dtype "fp32", by `forward_wgmma`: whether calls add their keys to `out` and the array that
            `return_aux` names, results over other keys. With 16-bit q, k and v, without split_keys, values_in_keys,
            list_block, output and mean_score.
        mask: The keys that each query sees. None: all.
        score: The function of a score that is applied before the softmax. None: none.
        output: The function that is applied to o in fp32 before it is rounded, such as a gate. None: none. With
            16-bit q.
        softmax_scale: A positive factor of q · k, at most 1e5. None: 1/sqrt(head_dim). It is not compiled in.

    Raises:
        InvalidSpecError: No GPU supports this spec. The message has the field, its value, the rule, and what would
            work.

    Examples:
        >>> spec = ja.AttentionSpec(head_dim=64, gqa_ratio=4, mask=ja.mask.causal())
        >>> dataclasses.replace(spec, head_dim=128).head_dim
        128
    """

    dtype: InputDType | DTypeObject = "bf16"
    head_dim: int = 128
    head_dim_v: int | None = None
    gqa_ratio: int = 1
    alignment: int = 16
    seqlen_q: int = 0
    seqlen_kv: int = 0
    sequences_q: Literal["dense", "varlen"] = "dense"
    sequences_kv: SequenceKind = "dense"
    page_size: int = 0
    sinks: bool = False
    dropout: bool = False
    split_keys: int = 0
    checked: bool = False
    kv_dtype: StoredDType | DTypeObject | None = None
    out_dtype: OutputDType | DTypeObject | None = None
    descale_per: ScaleKind = "head"
    v_descale_per: Literal["head", "channel"] = "head"
    v_mean: bool = False
    lse_shift: bool = False
    values_in_keys: bool = False
    interpolated_exponentials: bool = False
    q_positions: bool = False
    k_positions: bool = False
    key_arrivals: bool = False
    list_block: int = 0
    list_slots: bool = False
    list_queries: int = 1
    max_logit: bool = False
    row_max: bool = False
    mean_score: bool = False
    o_descale: bool = False
    running_lse: bool = False
    mask: Mask | None = None
    score: Score | None = None
    output: OutputFunctor | None = None
    softmax_scale: float | None = None

    def __post_init__(self) -> None:
        if self.dtype is not None:  # else it is refused as what it is
            object.__setattr__(self, "dtype", element_type(self.dtype))
        for name in ("kv_dtype", "out_dtype"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, element_type(getattr(self, name)))
        _core.validate_spec(self)


answers_unknown(AttentionSpec)


@dataclass(frozen=True)
class Refusal:
    """One reason why a spec cannot be served.

    Attributes:
        field: The field of the spec, such as "head_dim".
        value: Its value, such as "100".
        rule: The rule that it violates: "must be a multiple of 8 from 8 to 512".
        nearest: A value that would work: "104".
    """

    field: str
    value: str
    rule: str
    nearest: str


def supports(arch: str | None = None, /, **fields: Any) -> bool:
    """Whether the library serves a spec on an architecture. `refusals` says why not.

    Args:
        arch: The architecture, such as "sm_90a". None: that of device 0 of this process.
        fields: Fields of `AttentionSpec`.

    Returns:
        Whether `refusals` returns none.

    Raises:
        TypeError: A spec has no such field.
        InvalidArgumentError: arch cannot be read.

    Examples:
        >>> ja.supports("sm_90a", head_dim=96)
        True
    """
    return not refusals(arch, **fields)


def refusals(arch: str | None = None, /, **fields: Any) -> list[Refusal]:
    """Lists the reasons why the library does not serve a spec on an architecture.

    Args:
        arch: The architecture, such as "sm_90a". None: that of device 0 of this process.
        fields: Fields of `AttentionSpec`, which would raise the first of these reasons.

    Returns:
        The reasons; an empty list if the spec is served.

    Raises:
        TypeError: A spec has no such field.
        InvalidArgumentError: arch cannot be read.

    Examples:
        >>> [refusal.nearest for refusal in ja.refusals("sm_90a", head_dim=100)]
        ['104']
    """
    values = {field.name: field.default for field in dataclasses.fields(AttentionSpec)}
    unknown = fields.keys() - values.keys()
    if unknown:
        refuse_unknown(AttentionSpec, sorted(unknown))
    return [Refusal(*reasons) for reasons in _core.refusals(SimpleNamespace(**values | fields), arch)]
