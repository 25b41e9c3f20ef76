"""Dense problems: cells with their masks and useful work."""

import dataclasses
import functools
import random
from dataclasses import dataclass

MASKS = ("none", "causal", "window", "prefix", "document", "causal_document")
SCORES = ("none", "softcap", "alibi", "bias")
RUN_MODES = ("cold", "sustained")  # modes of a whole run
MODES = (*RUN_MODES, "eager", "graph", "replay", "together")


@dataclass(frozen=True)
class Cell:
    """One attention problem, bf16, and how it is measured.

    mask: "none"; "causal" (bottom-right aligned, as all positions here); "window" (a query sees its own position
    and `window` keys before it); "prefix" (causal, but the first `prefix` keys are seen by all); "document" (keys of
    the query's own document, of which each batch entry holds `documents`); "causal_document" (both).
    score: "none"; "softcap" (softcap * tanh(score / softcap)); "alibi" (score - slope * distance); "bias"
    (score + bias, of each head, query and key, equal for all batch entries).
    mode: "cold" (time on the GPU of single calls with a cold L2 cache), "sustained" (the same in bursts of calls back
    to back), "replay" (as "cold", of single replays of the captured call), "eager" or "graph" (tiny problems: time on
    the host's clock).
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
        """The unit of the cell's speed: "µs" (less is better) or "TFLOP/s"."""
        return "TFLOP/s" if self.mode in RUN_MODES else "µs"

    def speed(self, us):
        """The speed in `unit` of one call that takes `us` microseconds."""
        return us if self.unit == "µs" else self.flops() / us * 1e-6

    def floor_us(self):
        """None: dense problems have no bound."""
        return None

    def output_shape(self):
        """The shape of a contender's result."""
        return self.batch, self.seqlen_q, self.heads_q, self.head_dim_v

    def document_lengths(self, batch_entry):
        """Lengths of a batch entry's documents: uneven, the same in every run."""
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
        """Useful FLOPs: multiplications and additions of both products, for kept pairs only."""
        return 2 * self.kept_pairs() * self.heads_q * (self.head_dim + self.head_dim_v)

    def bytes(self):
        """Bytes of q, k, v and o in bf16: the least that must be read or written."""
        queries, keys = self.batch * self.seqlen_q * self.heads_q, self.batch * self.seqlen_kv * self.heads_kv
        return 2 * (queries + keys) * (self.head_dim + self.head_dim_v)


@dataclass(frozen=True)
class BackwardCell(Cell):
    """The same problem's gradients of q, k and v, given what forward read and wrote and the gradient of its output.

    deterministic: two calls must be bitwise identical. packed: documents are sequences laid end to end, and whoever
        can take
    their lengths is given these instead of a mask.
    """

    deterministic: bool = False
    packed: bool = False

    def __post_init__(self):
        if self.packed and "document" not in self.mask:
            raise ValueError(f"{self.name}: packed sequences are documents, and the mask is {self.mask}")

    def __str__(self):
        words = [word for word in ("deterministic", "packed") if getattr(self, word)]
        return ", ".join([super().__str__(), *words])

    def flops(self):
        """FLOPs of the gradients' five products, for kept pairs only."""
        return 2 * self.kept_pairs() * self.heads_q * (3 * self.head_dim + 2 * self.head_dim_v)

    def bytes(self):
        """Bytes of q, k, v, o and do, read, and of dq, dk and dv, written."""
        queries, keys = self.batch * self.seqlen_q * self.heads_q, self.batch * self.seqlen_kv * self.heads_kv
        return 2 * (queries * (2 * self.head_dim + 2 * self.head_dim_v) + keys * 2 * (self.head_dim + self.head_dim_v))


@dataclass(frozen=True)
class TrainingCell(BackwardCell):
    """The forward pass followed by the gradients: a layer's work in a training step."""

    def flops(self):
        """FLOPs of all seven products, for kept pairs only."""
        return Cell.flops(self) + super().flops()

    def bytes(self):
        """Least bytes of the forward pass plus those of the gradients, o and the inputs in both."""
        return Cell.bytes(self) + super().bytes()


def backward_of(cell, suite, kind=BackwardCell, **fields):
    """The BackwardCell of a Cell, or one of another `kind`, in another suite and with other fields."""
    return kind(**{**vars(cell), "suite": suite, **fields})


def cell(suite, label, batch, seqlen_q, heads_q, head_dim, seqlen_kv=None, heads_kv=None, head_dim_v=None, **fields):
    """A Cell; seqlen_kv, heads_kv and head_dim_v default to the queries'."""
    return Cell(suite, label, batch, seqlen_q, seqlen_kv or seqlen_q, heads_q, heads_kv or heads_q, head_dim,
                head_dim_v or head_dim, **fields)


def in_mode(cell, mode):
    """The cell in one of RUN_MODES; suites with modes of their own keep theirs."""
    return dataclasses.replace(cell, mode=mode) if cell.mode in RUN_MODES else cell


def titled(suite, mode):
    """"forward-sustained": a suite and one of RUN_MODES, for file names; the suite alone in other modes."""
    return f"{suite}-{mode}" if mode in RUN_MODES else suite
