"""Sparse suites: masks as texts beside built-in ones, and block masks."""

import functools
import random
from dataclasses import dataclass

from .cells import Cell, cell

SPARSE_MASKS = ("causal_window", "dilated", "longformer", "bigbird", "blocks")
BUILT_IN = ("causal", "window", "prefix", "causal_window", "document")  # sparse masks with an equivalent built-in
LEFT_WINDOWS = ("window", "causal_window")  # combinations of a causal mask and a left window


@dataclass(frozen=True)
class SparseCell(Cell):
    """A dense problem with a mask that leaves few keys: one of a Cell's, or of SPARSE_MASKS.

    "causal_window": causal, and `window` keys to both sides. "dilated": causal, and every `stride`th key back to
    `window`. "longformer": `window` keys to both sides; the first `global_tokens` are seen by all and see all (Beltagy
    et al., "Longformer"). "bigbird": the same, and the keys of random blocks (Zaheer et al., "Big Bird"). "blocks":
    random blocks alone, and in them every key.

    Of each row of blocks, of `block` queries and as many keys, `random_blocks` are chosen, by each head for itself
    where `per_head`, the same ones in all batch entries.
    """

    stride: int = 4
    global_tokens: int = 64
    block: int = 128
    random_blocks: int = 0
    per_head: bool = False

    def __post_init__(self):
        if self.random_blocks and (self.seqlen_q % self.block or self.seqlen_kv % self.block):
            raise ValueError(f"{self.name}: {self.seqlen_q} × {self.seqlen_kv} are no whole blocks of {self.block}")
        if self.random_blocks > self.seqlen_kv // self.block:
            raise ValueError(f"{self.name}: a row has no {self.random_blocks} blocks of {self.block} keys")
        if self.per_head and self.mask != "blocks":
            raise ValueError(f"{self.name}: heads choose blocks of their own in mask blocks only")

    def __str__(self):
        return ", ".join([super().__str__(), *["heads by themselves"] * self.per_head])

    @property
    def has_built_in(self):
        """Whether a built-in mask is equivalent."""
        return self.mask in BUILT_IN

    @property
    def bounds_tell(self):
        """Whether bounds of q and k determine the visible tiles of any size: the mask reads no array."""
        return self.mask not in ("document", "bigbird", "blocks")

    def block_columns(self, head, row):
        """The sorted random blocks of a row of blocks: the same in every run."""
        seed = f"{self.mask} {self.seqlen_kv} {self.random_blocks} {head if self.per_head else 0} {row}"
        return sorted(random.Random(seed).sample(range(self.seqlen_kv // self.block), self.random_blocks))

    def keep(self, q, k, document_q=None, document_k=None, block=None):
        """See Cell.keep. block: whether the blocks of q and k are among the random ones, for masks that use them."""
        position = q + (self.seqlen_kv - self.seqlen_q)
        if self.mask == "blocks":
            return block
        if self.mask == "causal_window":
            return (k <= position) & (position - k <= self.window) & (k - position <= self.window)
        if self.mask == "dilated":
            return (k <= position) & (position - k <= self.window) & ((position - k) % self.stride == 0)
        if self.mask in ("longformer", "bigbird"):
            near = (position - k <= self.window) & (k - position <= self.window)
            kept = near | (k < self.global_tokens) | (position < self.global_tokens)
            return kept | block if self.mask == "bigbird" else kept
        return super().keep(q, k, document_q, document_k)

    def seen_ranges(self, q):
        """Half-open ranges of keys that query `q` sees, of "dilated" in steps of `stride`. They may overlap and reach
        beyond the keys. For masks of SPARSE_MASKS."""
        position = q + self.seqlen_kv - self.seqlen_q
        if self.mask == "causal_window":
            return [(position - self.window, position + 1)]
        if self.mask == "dilated":
            return [(position % self.stride, position + 1)] if position <= self.window else [
                (position - self.window // self.stride * self.stride, position + 1)]
        ranges = [(column * self.block, (column + 1) * self.block)
                  for column in self.block_columns(0, q // self.block)] if self.random_blocks else []
        if self.mask == "blocks":
            return ranges
        if position < self.global_tokens:
            return [(0, self.seqlen_kv)]
        return [(0, self.global_tokens), (position - self.window, position + self.window + 1), *ranges]

    @functools.cache
    def kept_pairs(self):
        """Kept pairs of query and key over the batch, for one head: equal for all."""
        if self.mask not in SPARSE_MASKS:
            return super().kept_pairs()
        step = self.stride if self.mask == "dilated" else 1
        pairs = 0
        for q in range(self.seqlen_q):
            end = 0
            for begin, past in sorted(self.seen_ranges(q)):
                begin, past = max(begin, end), min(past, self.seqlen_kv)
                pairs += max(-(-(past - begin) // step), 0)
                end = max(end, past)
        return self.batch * pairs


def sparse_cell(suite, label, *sizes, **fields):
    """A SparseCell, given as cells.cell is."""
    own = {name: fields.pop(name) for name in list(fields) if name not in Cell.__dataclass_fields__
           and name not in ("heads_kv", "head_dim_v", "seqlen_kv")}
    return SparseCell(**vars(cell(suite, label, *sizes, **fields)), **own)


def _sparse():
    problems = (
        ("causal", dict(mask="causal")),
        ("window1024", dict(mask="window")),
        ("prefix1024", dict(mask="prefix")),
        ("causal-window1024", dict(mask="causal_window")),
        ("documents", dict(mask="document")),
        ("dilated", dict(mask="dilated", window=2048)),
        ("longformer", dict(mask="longformer", window=256)),
        ("bigbird", dict(mask="bigbird", window=256, random_blocks=3)),
        ("blocks", dict(mask="blocks", random_blocks=6)),
        ("blocks-per-head", dict(mask="blocks", random_blocks=6, per_head=True)),
    )
    return [sparse_cell("sparse", label, 4, 8192, 16, 128, tick=label.replace("-", "\n"),
                        panel="batch 4, 16 heads, 8192 × 8192, head_dim 128", **fields) for label, fields in problems]


SPARSE_SUITES = {"sparse": _sparse()}
