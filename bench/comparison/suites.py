"""The problems that are measured: cells, each with its mask and its useful work, in named suites."""

import dataclasses
import functools
import random
from dataclasses import dataclass

MASKS = ("none", "causal", "window", "prefix", "document", "causal_document")
SCORES = ("none", "softcap", "alibi")
RUN_MODES = ("cold", "sustained")  # that a whole run can be measured in
MODES = (*RUN_MODES, "eager", "graph")


@dataclass(frozen=True)
class Cell:
    """One attention problem, bf16, and how it is measured.

    mask: "none"; "causal" (bottom-right aligned, as all positions here); "window" (a query sees its own position
    and `window` keys before it); "prefix" (causal, but the first `prefix` keys are seen by all); "document" (keys of
    the query's own document, of which each batch entry holds `documents`); "causal_document" (both).
    score: "none"; "softcap" (softcap * tanh(score / softcap)); "alibi" (score - slope * distance).
    mode: "cold" (time on the GPU of single calls with a cold L2 cache), "sustained" (the same in bursts of calls back
    to back), "eager" or "graph" (tiny problems: time on the host's clock).
    panel, tick: where a chart shows the cell.
    """

    suite: str
    label: str
    batch: int
    seqlen_q: int
    seqlen_kv: int
    heads_q: int
    heads_kv: int
    head_dim: int
    head_dim_v: int
    mask: str = "none"
    score: str = "none"
    mode: str = "cold"
    window: int = 1024
    prefix: int = 1024
    documents: int = 16
    softcap: float = 30.0
    panel: str = ""
    tick: str = ""

    @property
    def name(self):
        """suite/label, unique over all suites."""
        return f"{self.suite}/{self.label}"

    def __str__(self):
        kv = f"/{self.heads_kv}" if self.heads_kv != self.heads_q else ""
        dv = f"/{self.head_dim_v}" if self.head_dim_v != self.head_dim else ""
        extra = [text for text in (self.mask, self.score, self.mode) if text not in ("none", "cold")]
        return ", ".join([f"batch {self.batch}", f"{self.heads_q}{kv} heads", f"{self.seqlen_q} × {self.seqlen_kv}",
                          f"head_dim {self.head_dim}{dv}", *extra])

    @property
    def gqa_ratio(self):
        return self.heads_q // self.heads_kv

    @property
    def unit(self):
        """What the cell's speed is given in: "µs" (less is better), "GB/s" or "TFLOP/s"."""
        if self.mode not in RUN_MODES:
            return "µs"
        return "GB/s" if self.seqlen_q == 1 else "TFLOP/s"

    def speed(self, us):
        """The speed in `unit` of one call that takes `us` microseconds."""
        if self.unit == "µs":
            return us
        return self.bytes() / us * 1e-3 if self.unit == "GB/s" else self.flops() / us * 1e-6

    def document_lengths(self, batch_entry):
        """Lengths of the documents of one batch entry: uneven, the same in every run."""
        count = min(self.documents, self.seqlen_kv)
        cuts = random.Random(f"{self.seqlen_kv} {self.documents} {batch_entry}").sample(range(1, self.seqlen_kv),
                                                                                        count - 1)
        edges = [0, *sorted(cuts), self.seqlen_kv]
        return [end - begin for begin, end in zip(edges, edges[1:])]

    def keep(self, q, k, document_q=None, document_k=None):
        """Whether query `q` sees key `k`: for integers, NumPy arrays and torch tensors alike, element by element.
        document_q, document_k: document ids of q and k, for masks that ask for them. Not for mask "none"."""
        position = q + (self.seqlen_kv - self.seqlen_q)
        if self.mask == "causal":
            return k <= position
        if self.mask == "window":
            return (k <= position) & (k >= position - self.window)
        if self.mask == "prefix":
            return (k <= position) | (k < self.prefix)
        if self.mask == "document":
            return document_q == document_k
        if self.mask == "causal_document":
            return (k <= position) & (document_q == document_k)
        raise ValueError(f'mask "{self.mask}" has no keep: it must be one of {", ".join(MASKS[1:])}')

    @functools.cache
    def kept_pairs(self):
        """Pairs of query and key that the mask keeps, over the batch, for one head."""
        if self.mask == "none":
            return self.batch * self.seqlen_q * self.seqlen_kv
        if self.mask in ("document", "causal_document"):
            lengths = [n for entry in range(self.batch) for n in self.document_lengths(entry)]
            return sum(n * n if self.mask == "document" else n * (n + 1) // 2 for n in lengths)
        pairs = 0
        for q in range(self.seqlen_q):
            position = q + self.seqlen_kv - self.seqlen_q
            seen = min(max(position + 1, 0), self.seqlen_kv)
            if self.mask == "window":
                seen = max(seen - max(position - self.window, 0), 0)
            elif self.mask == "prefix":
                seen = max(seen, min(self.prefix, self.seqlen_kv))
            pairs += seen
        return self.batch * pairs

    def flops(self):
        """Useful floating-point operations: multiplications and additions of both products, kept pairs only."""
        return 2 * self.kept_pairs() * self.heads_q * (self.head_dim + self.head_dim_v)

    def bytes(self):
        """Bytes of q, k, v and o in bf16: what must be read or written at least once."""
        queries, keys = self.batch * self.seqlen_q * self.heads_q, self.batch * self.seqlen_kv * self.heads_kv
        return 2 * (queries + keys) * (self.head_dim + self.head_dim_v)


def cell(suite, label, batch, seqlen_q, heads_q, head_dim, seqlen_kv=None, heads_kv=None, head_dim_v=None, **fields):
    """A Cell: seqlen_kv, heads_kv and head_dim_v are those of the queries unless given."""
    return Cell(suite, label, batch, seqlen_q, seqlen_kv or seqlen_q, heads_q, heads_kv or heads_q, head_dim,
                head_dim_v or head_dim, **fields)


def in_mode(cell, mode):
    """The cell measured in one of RUN_MODES; suites with modes of their own keep them."""
    return dataclasses.replace(cell, mode=mode) if cell.mode in RUN_MODES else cell


def titled(suite, mode):
    """"forward-sustained": a suite and one of RUN_MODES, as files are named; any other mode is the suite's own."""
    return f"{suite}-{mode}" if mode in RUN_MODES else suite


def _grid(suite, mask):
    tokens, width = 16384, 2048
    return [cell(suite, f"d{head_dim}-s{seqlen}", tokens // seqlen, seqlen, width // head_dim, head_dim, mask=mask,
                 panel=f"head_dim {head_dim}, by seqlen", tick=str(seqlen))
            for head_dim in (64, 128, 256) for seqlen in (512, 1024, 2048, 4096, 8192, 16384)]


def _masks():
    problems = (("causal", "causal", "none"), ("window1024", "window", "none"), ("document", "document", "none"),
                ("causal-document", "causal_document", "none"), ("prefix1024", "prefix", "none"),
                ("softcap", "none", "softcap"), ("causal-softcap", "causal", "softcap"),
                ("causal-alibi", "causal", "alibi"))
    return [cell("masks", label, 4, 8192, 16, 128, mask=mask, score=score,
                 panel="batch 4, 16 heads, 8192 × 8192, head_dim 128", tick=label.replace("-", "\n"))
            for label, mask, score in problems]


def _decode():
    problems = ((1, 32, 8, 1024), (1, 32, 8, 8192), (1, 64, 8, 131072), (16, 32, 8, 8192), (64, 32, 8, 4096),
                (128, 64, 8, 8192))
    return [cell("decode", f"b{batch}-h{heads_q}/{heads_kv}-kv{seqlen}", batch, 1, heads_q, 128, seqlen_kv=seqlen,
                 heads_kv=heads_kv, panel="one query token, head_dim 128",
                 tick=f"batch {batch}\n{heads_q}/{heads_kv} heads\n{seqlen} keys")
            for batch, heads_q, heads_kv, seqlen in problems]


def _gqa():
    heads = ((16, 16), (16, 8), (24, 8), (32, 8), (40, 8), (28, 4), (64, 8), (32, 1))
    panel = "causal, batch 2, 4096 × 4096, head_dim 128, by heads_q/heads_kv"
    return [cell("gqa", f"ratio{q // kv}-h{q}/{kv}", 2, 4096, q, 128, heads_kv=kv, mask="causal", panel=panel,
                 tick=f"{q}/{kv}") for q, kv in heads]


def _odd_shapes():
    dims = [cell("odd-shapes", f"d{head_dim}", 4, 4096, 16, head_dim, panel="head dims (batch 4, 16 heads, 4096)",
                 tick=str(head_dim)) for head_dim in (40, 72, 80, 96, 112, 160, 192)]
    dims.append(cell("odd-shapes", "d192-dv128-causal", 4, 4096, 16, 192, head_dim_v=128, mask="causal",
                     panel="head dims (batch 4, 16 heads, 4096)", tick="192/128\ncausal"))
    panel = "lengths (16 heads, head_dim 128)"
    return dims + [
        cell("odd-shapes", "s1000-causal", 16, 1000, 16, 128, mask="causal", panel=panel, tick="1000\ncausal"),
        cell("odd-shapes", "s4097", 4, 4097, 16, 128, panel=panel, tick="4097"),
        cell("odd-shapes", "s4097-causal", 4, 4097, 16, 128, mask="causal", panel=panel, tick="4097\ncausal"),
        cell("odd-shapes", "s1024x8192-causal", 4, 1024, 16, 128, seqlen_kv=8192, mask="causal", panel=panel,
             tick="1024 × 8192\ncausal"),
        cell("odd-shapes", "s4097x1000", 4, 4097, 16, 128, seqlen_kv=1000, panel=panel, tick="4097 × 1000"),
        cell("odd-shapes", "s333x7777", 16, 333, 16, 128, seqlen_kv=7777, panel=panel, tick="333 × 7777"),
    ]


def _latency():
    return [cell("latency", f"s{seqlen}-{mode}", 1, seqlen, 8, 128, mode=mode,
                 panel=f"{mode}: batch 1, 8 heads, head_dim 128, by seqlen", tick=str(seqlen))
            for mode in ("eager", "graph") for seqlen in (16, 64, 128, 256, 512)]


SUITES = {
    "forward": _grid("forward", "none"),
    "causal": _grid("causal", "causal"),
    "masks": _masks(),
    "decode": _decode(),
    "gqa": _gqa(),
    "odd-shapes": _odd_shapes(),
    "latency": _latency(),
}
CELLS = {one.name: one for cells in SUITES.values() for one in cells}
