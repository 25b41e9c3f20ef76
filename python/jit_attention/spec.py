"""What is wanted, without a word on how it is computed."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from types import SimpleNamespace

from . import _core
from .functor import element_type
from .mask import Mask
from .score import Score


@dataclass(frozen=True)
class AttentionSpec:
    """What a kernel is specialized for. Batch, heads, lengths and strides are run-time facts and never compile.

    Change one with ``dataclasses.replace``. Raises InvalidSpecError for what no GPU can be served with: field, value,
    rule, and what would work.

    Attributes:
        dtype: of q, of k and v unless kv_dtype says else, and of o unless out_dtype does: "bf16" or "fp16"; or "fp8_e4m3"
            or "fp8_e5m2" of q, k and v alike. Sums are fp32.
        head_dim: of q and k: a multiple of 8 from 8 to 256, with values_in_keys to 576.
        head_dim_v: of v and o, same rule; None: head_dim.
        gqa_ratio: query heads per KV head: 1 is MHA, heads_q is MQA.
        alignment: bytes that every row of q, k, v and o is aligned to: 16, 8, 4 or 2; 16 is fastest.
        seqlen_q: 0: given at run time; else baked into the kernel.
        seqlen_kv: the same for keys.
        sequences_q: how queries and outputs lie: "dense" or "varlen".
        sequences_kv: how keys and values lie: "dense", "varlen" or "paged".
        page_size: rows of a page, from 1 to 65536; 0 unless sequences_kv is "paged".
        sinks: whether each head has a sink: a score without a value, in the sum of all its rows.
        dropout: whether probabilities are dropped at random, at the rate and with the seed of each call. Of dense and
            varlen sequences, without split_keys.
        split_keys: 0: how sums over keys are cut is left to each call. Else a request's bits depend on the request
            alone, and on whether TMA can read the call: its keys are summed in spans of so many, a multiple of 64.
        checked: whether calls look at what lengths and page tables hold on the device, wait for it, and raise where it is
            out of range. For finding errors: slow.
        kv_dtype: of k and v, where it is not dtype: "fp8_e4m3" or "fp8_e5m2". Forward alone, without dropout.
        out_dtype: of o; None: dtype, or "bf16" where that is fp8. Where dtype is fp8: "bf16", "fp16" or "fp32"; else dtype.
        descale_per: what k_descale and v_descale have a scale for, of k and v of fp8: "head", which is one for all, for each
            KV head, or for each batch entry and KV head; "token", one for each key and KV head; or "block", beside q of fp8,
            one for each 64 rows and head.
        v_descale_per: the same of v beside q of fp8: "head", or "channel", one for each column.
        v_mean: whether v of fp8 has lost a mean of each column, which calls give, so that o has it again.
        lse_shift: whether k of fp8 has lost its mean, and calls give what LSE has lost with it; with scores that add alone.
        values_in_keys: whether the values are the first head_dim_v columns of the keys, so that calls have no v: the
            latent cache of multi-head latent attention. Forward alone, without dropout, of 16-bit keys.
        exact_exponentials: whether all probabilities of q, k and v of fp8 are computed. Else forward_wgmma makes half of
            them, which are rounded to e4m3 anyway, by interpolation between powers of two: in calls that ask for no LSE,
            in tiles where nothing else is lost by it. The other families always compute. Where dtype is fp8.
        mask: which keys a query sees; None: all.
        score: what happens to a score before the softmax; None: nothing.
        softmax_scale: of q·k, positive, at most 1e5; None: 1/sqrt(head_dim). A run-time fact too.
    """

    dtype: str = "bf16"
    head_dim: int = 128
    head_dim_v: int | None = None
    gqa_ratio: int = 1
    alignment: int = 16
    seqlen_q: int = 0
    seqlen_kv: int = 0
    sequences_q: str = "dense"
    sequences_kv: str = "dense"
    page_size: int = 0
    sinks: bool = False
    dropout: bool = False
    split_keys: int = 0
    checked: bool = False
    kv_dtype: str | None = None
    out_dtype: str | None = None
    descale_per: str = "head"
    v_descale_per: str = "head"
    v_mean: bool = False
    lse_shift: bool = False
    values_in_keys: bool = False
    exact_exponentials: bool = False
    mask: Mask | None = None
    score: Score | None = None
    softmax_scale: float | None = None

    def __post_init__(self):
        if self.dtype is not None:  # else it is refused as what it is
            object.__setattr__(self, "dtype", element_type(self.dtype))
        for name in ("kv_dtype", "out_dtype"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, element_type(getattr(self, name)))
        _core.validate_spec(self)


@dataclass(frozen=True)
class Refusal:
    """One reason why a spec cannot be served.

    Attributes:
        field: "head_dim".
        value: "100".
        rule: "must be a multiple of 8 from 8 to 256".
        nearest: what would work: "104".
    """

    field: str
    value: str
    rule: str
    nearest: str


def supports(arch: str | None = None, /, **fields) -> bool:
    """Whether a spec with these fields can be served on a GPU of this architecture.

        supports("sm_90a", head_dim=96)  # True

    Takes what `refusals` takes, which tells why not.
    """
    return not refusals(arch, **fields)


def refusals(arch: str | None = None, /, **fields) -> list[Refusal]:
    """All reasons why a spec with these fields cannot be served on a GPU of this architecture; empty: it can.

        refusals("sm_90a", head_dim=100, gqa_ratio=0)

    Takes the fields of `AttentionSpec`, which itself raises the first of these reasons. Without ``arch``: on device 0
    of this process.
    """
    values = {field.name: field.default for field in dataclasses.fields(AttentionSpec)}
    unknown = fields.keys() - values.keys()
    if unknown:
        raise TypeError(f"a spec has no field {min(unknown)}; its fields are {', '.join(values)}")
    return [Refusal(*reasons) for reasons in _core.refusals(SimpleNamespace(**values | fields), arch)]
