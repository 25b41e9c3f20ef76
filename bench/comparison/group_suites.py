"""Attention of one sequence whose rows are spread over several GPUs."""

import dataclasses
import functools
import math
import random
from dataclasses import dataclass

from .cells import Cell

TOGETHER = "together"  # the mode of these cells
MEDIAN_DOCUMENT = 4000
GRANULE = 128
CASES = {"causal": "causal", "full": "none", "window": "window", "documents": "causal_document"}


@dataclass(frozen=True)
class GroupCell(Cell):
    """A sequence over `ranks` GPUs, each with the same number of rows. Times are of the slowest rank, of calls that all begin at one
    time, the host's work included; speeds are useful FLOP/s of one GPU.

    gradients: forward and gradients, else forward alone. deterministic: jit-attention's gradients repeat bitwise.
    granule: rows that placements keep together. Documents have log-normal lengths of at most a quarter of the sequence.
    """

    ranks: int = 2
    gradients: bool = False
    deterministic: bool = False
    granule: int = GRANULE

    def __str__(self):
        words = [f"{self.ranks} GPUs", "forward and gradients" if self.gradients else "forward"]
        return ", ".join([super().__str__(), *words, *["deterministic"] * self.deterministic])

    @property
    def unit(self):
        return "TFLOP/s a GPU"

    def speed(self, us):
        return self.flops() / self.ranks / us * 1e-6

    def flops(self):
        """Useful FLOPs of all GPUs: two products forward, five of gradients."""
        forward = super().flops()
        return forward + 2 * self.kept_pairs() * self.heads_q * (3 * self.head_dim + 2 * self.head_dim_v) * self.gradients

    def document_lengths(self, batch_entry=0):
        return list(_lengths(self.seqlen_q))

    @property
    def documents_of_call(self):
        """Lengths of packed sequences; None: it is one sequence."""
        return self.document_lengths() if self.mask == "causal_document" else None


@functools.cache
def _lengths(seqlen, seed=1):
    rng, lengths = random.Random(seed), []
    while (left := seqlen - sum(lengths)) > 0:
        drawn = int(rng.lognormvariate(math.log(min(MEDIAN_DOCUMENT, seqlen / 8)), 1.3))
        lengths.append(min(left, max(16, min(drawn, seqlen // 4))))
    return tuple(lengths)


def group_cell(case, seqlen, gradients=False, heads_q=32, heads_kv=8, head_dim=128, ranks=2, suite="distributed", **fields):
    """The cell of one of CASES."""
    heads = f"-h{heads_q}/{heads_kv}" if (heads_q, heads_kv) != (32, 8) else ""
    what = "forward and gradients" if gradients else "forward"
    panel = f"{what}, {ranks} GPUs, {case}, by seqlen"
    return GroupCell(suite, f"{case}-s{seqlen}{heads}{'-gradients' * gradients}", 1, seqlen, seqlen, heads_q, heads_kv, head_dim,
                     head_dim, mask=CASES[case], window=min(4096, max(16, seqlen // 4)) - 1, mode=TOGETHER, panel=panel,
                     tick=f"{seqlen // 1024}k" + f"\n{heads_q}/{heads_kv}" * bool(heads), ranks=ranks, gradients=gradients,
                     **fields)


def _cells():
    forward = (("causal", 8192), ("causal", 16384), ("causal", 32768), ("causal", 65536), ("documents", 16384),
               ("documents", 65536), ("window", 65536), ("full", 16384))
    gradients = (("causal", 8192), ("causal", 16384), ("causal", 65536), ("documents", 65536))
    return [*(group_cell(*one) for one in forward), group_cell("causal", 32768, heads_kv=32),
            *(group_cell(*one, gradients=True) for one in gradients)]


def over_ranks(cell, ranks):
    """The cell over another number of GPUs; others as they are."""
    if not isinstance(cell, GroupCell):
        return cell
    return dataclasses.replace(cell, ranks=ranks, panel=cell.panel.replace(f"{cell.ranks} GPUs", f"{ranks} GPUs"))


def tiny(cell):
    """The problem in a size for emulated devices, by which a program is tried: a FlexAttention block for each rank."""
    seqlen = 128 * cell.ranks
    return dataclasses.replace(cell, seqlen_q=seqlen, seqlen_kv=seqlen, heads_q=2 * cell.ranks, heads_kv=cell.ranks, head_dim=32,
                               head_dim_v=32, window=seqlen // 4, granule=16)


GROUP_SUITES = {"distributed": _cells()}
