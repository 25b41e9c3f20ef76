"""Serving problems: one call over a batch of requests with different lengths and possibly paged keys."""

import dataclasses
import functools
import itertools
from dataclasses import dataclass

from .cells import cell
from .stored_keys import KINDS, bytes_of_row

MASKS = ("none", "causal")
BANDWIDTHS = {"H200": 4.5e12, "H100": 3.1e12}  # achievable read bandwidth in bytes/s, by GPU name
PEAK = 989e12  # dense bf16 operations a second of its tensor cores, by its data sheet


def bandwidth_of(name):
    """The bandwidth of a GPU with this name; an H200's when unknown."""
    return next((rate for part, rate in BANDWIDTHS.items() if part in name), BANDWIDTHS["H200"])


@functools.cache
def bandwidth():
    """The present GPU's bandwidth; an H200's without a GPU."""
    try:
        import torch

        return bandwidth_of(torch.cuda.get_device_name())
    except (ImportError, AssertionError, RuntimeError):
        return bandwidth_of("")


@dataclass(frozen=True)
class Requests:
    """One call, bf16 but for keys of another type, and how it is measured. Lengths are those of flash-attention's
    interface.

    groups: (count, seqlen_q, seqlen_k) for each run of equal requests; seqlen_k counts the keys of a request, those of
    its new tokens included, and is at least seqlen_q. Requests with more than one query come first.
    mask: "none" or "causal" (bottom-right aligned within each request).
    q_sequences: "dense" (batch, seqlen_q, heads, head_dim) or "varlen" (total_q, heads, head_dim).
    kv_sequences: "dense", "varlen", or "paged" in pages of `page_size` keys, in an order of their own; kv_layout:
        "NHD"
    (page_size, heads_kv, head_dim) or "HND" (heads_kv, page_size, head_dim) within a page.
    kv_dtype: of k and v, "bf16", "fp8_e4m3", or one of stored_keys.KINDS; inline_scales: those of tokens lie behind the
        elements of their row.
    values_in_keys: v is the first head_dim_v columns of k, as in the latent cache of multi-head latent attention.
    mode: as a Cell's. panel, tick: where a chart shows it.
    """

    suite: str
    label: str
    groups: tuple
    heads_q: int
    heads_kv: int
    head_dim: int
    head_dim_v: int
    mask: str = "none"
    q_sequences: str = "dense"
    kv_sequences: str = "dense"
    page_size: int = 0
    kv_layout: str = "NHD"
    kv_dtype: str = "bf16"
    inline_scales: bool = False
    values_in_keys: bool = False
    mode: str = "replay"
    panel: str = ""
    tick: str = ""

    def __post_init__(self):
        for kind, lengths in ((self.q_sequences, self.seqlens_q), (self.kv_sequences, self.seqlens_k)):
            if kind == "dense" and len(set(lengths)) > 1:
                raise ValueError(f"{self.name}: dense sequences are of one length, not of {sorted(set(lengths))}")
        if (self.kv_sequences == "paged") != (self.page_size > 0):
            raise ValueError(f"{self.name}: page_size {self.page_size} with {self.kv_sequences} keys")
        if any(q > k for q, k in zip(self.seqlens_q, self.seqlens_k)):
            raise ValueError(f"{self.name}: a request has more queries than keys")

    @property
    def name(self):
        """suite/label, unique over all suites."""
        return f"{self.suite}/{self.label}"

    def __str__(self):
        kv = f"/{self.heads_kv}" if self.heads_kv != self.heads_q else ""
        dv = f"/{self.head_dim_v}" if self.head_dim_v != self.head_dim else ""
        groups = [f"{count} of {q} × {k}" for count, q, k in self.groups]
        if len(groups) > 4:
            groups = [f"{self.batch} of {min(self.seqlens_q)} to {max(self.seqlens_q)} × {min(self.seqlens_k)} to "
                      f"{max(self.seqlens_k)}"]
        pages = f" of {self.page_size}, {self.kv_layout}" if self.page_size else ""
        kind = f" in {self.kv_dtype}" if self.kv_dtype != "bf16" else ""
        return ", ".join([*groups, f"{self.heads_q}{kv} heads", f"head_dim {self.head_dim}{dv}",
                          f"{self.kv_sequences}{pages}{kind}", *([self.mask] if self.mask != "none" else [])])

    @functools.cached_property
    def seqlens_q(self):
        """Queries of each request."""
        return tuple(q for count, q, _ in self.groups for _ in range(count))

    @functools.cached_property
    def seqlens_k(self):
        """Keys of each request."""
        return tuple(k for count, _, k in self.groups for _ in range(count))

    @property
    def batch(self):
        return len(self.seqlens_q)

    @property
    def total_q(self):
        return sum(self.seqlens_q)

    @property
    def max_seqlen_q(self):
        return max(self.seqlens_q)

    @property
    def max_seqlen_k(self):
        return max(self.seqlens_k)

    @property
    def max_pages(self):
        """Columns of the page table."""
        return -(-self.max_seqlen_k // self.page_size)

    @property
    def gqa_ratio(self):
        return self.heads_q // self.heads_kv

    @property
    def prefills(self):
        """The number of requests with several queries; these come first."""
        return sum(q > 1 for q in self.seqlens_q)

    def part(self, begin, end):
        """The requests from `begin` to `end` as a separate problem, with dense queries if all have one."""
        lengths = itertools.groupby(zip(self.seqlens_q[begin:end], self.seqlens_k[begin:end]))
        groups = tuple((len(list(equal)), *length) for length, equal in lengths)
        ones = all(q == 1 for _, q, _ in groups)
        return dataclasses.replace(self, groups=groups, q_sequences="dense" if ones else "varlen")

    def cell(self, request=None):
        """The dense problem of one request, or of all, if their lengths are equal."""
        batch, index = (self.batch, 0) if request is None else (1, request)
        return cell(self.suite, self.label, batch, self.seqlens_q[index], self.heads_q, self.head_dim,
                    seqlen_kv=self.seqlens_k[index], heads_kv=self.heads_kv, head_dim_v=self.head_dim_v,
                    mask=self.mask, mode=self.mode)

    @property
    def unit(self):
        return "µs"

    def speed(self, us):
        return us

    def flops(self):
        """Useful FLOPs: multiplications and additions of both products, for kept pairs only."""
        causal = self.mask == "causal"
        pairs = sum(q * k - (q * (q - 1) // 2 if causal else 0) for q, k in zip(self.seqlens_q, self.seqlens_k))
        return 2 * pairs * self.heads_q * (self.head_dim + self.head_dim_v)

    def kv_bytes(self):
        """Bytes of all visible keys and values, each once."""
        rows = sum(self.seqlens_k) * self.heads_kv
        if self.kv_dtype in KINDS:
            return rows * (bytes_of_row(self.kv_dtype, self.head_dim) + bytes_of_row(self.kv_dtype, self.head_dim_v))
        element = {"bf16": 2, "fp8_e4m3": 1}[self.kv_dtype]
        return element * rows * (self.head_dim + (0 if self.values_in_keys else self.head_dim_v))

    def bytes(self):
        """Bytes of k and v, and of q and o in bf16: the least that must be read or written."""
        return self.kv_bytes() + 2 * self.total_q * self.heads_q * (self.head_dim + self.head_dim_v)

    def floor_us(self):
        """Lower bound in microseconds: K and V read once at bandwidth(), or the products at PEAK if that takes longer,
        as for prefill."""
        return 1e6 * max(self.kv_bytes() / bandwidth(), self.flops() / PEAK)

    def output_shape(self):
        """The shape of a contender's result: all requests' rows, concatenated."""
        return self.total_q, self.heads_q, self.head_dim_v
