"""Measuring a GroupCell: every rank of the group runs this at the same time, and all get the same results.

Contenders follow each other: those that replace functions of PyTorch or share memory among ranks cannot take turns. Each
is compared with jit-attention on one GPU before it is timed and afterwards. Efficiencies, of calls by themselves and in
bursts, in which the next call is enqueued meanwhile:

    E1    time of one GPU on the whole problem / (ranks · time)
    E2    time of this rank's kernels without an exchange, slowest rank / time; of jit-attention's methods
    E3    FLOP/s of a GPU for kept scores / those of one GPU without a mask, at the same length
"""

import statistics
import time
import traceback

from .cells import Cell
from .contender import Unsupported, first_line
from .group_ours import one_gpu
from .group_shards import TOLERANCE, errors_of
from .records import FAILED, OK, UNSUPPORTED, WRONG, result, timed
from .report import OURS

#: Calls that take longer, in seconds, are not measured in bursts, which would have two calls at most.
LONGEST_IN_BURSTS = 0.01


def _both(rank, call):
    """Samples of a call by itself, of one in a burst, and the host's, all in seconds."""
    alone, hosts = rank.sample(call)
    median = statistics.median(alone)
    return alone, rank.sample_burst(call, median) if median < LONGEST_IN_BURSTS else alone, hosts


class GroupMeasurement:
    """A rank's measurements; baselines of a cell are kept for the next ones."""

    def __init__(self, rank):
        self.rank, self.known = rank, {}

    def measure(self, cell, contenders, seconds, begins=lambda contender: None):
        """The results of `contenders` in `cell`, about `seconds` for each figure, in the order given. begins: called with
        each name before its preparation."""
        self.rank.seconds = seconds
        begins(OURS)  # whose kernels are the baselines
        baseline = one_gpu(cell, self.rank)
        one, full = (self._baseline(key, call) for key, call in (
            ((cell.mask, cell.seqlen_q, cell.heads_q, cell.heads_kv, cell.gradients), baseline.masked),
            (("none", cell.seqlen_q, cell.heads_q, cell.heads_kv, cell.gradients), baseline.full)))
        results = []
        for contender in contenders:
            begins(contender.name)
            results.append(self._of(cell, contender, baseline.expected, one, full))
        return results

    def _baseline(self, key, call):
        """Medians of a call by itself and in bursts."""
        if key not in self.known:
            alone, burst, _ = _both(self.rank, call)
            self.known[key] = statistics.median(alone), statistics.median(burst)
        return self.known[key]

    def _of(self, cell, contender, expected, one, full):
        shards, status, begin = None, OK, time.monotonic()
        try:
            contender.refuse_keys(cell)
            shards = contender.preparing(cell)(cell, self.rank)
            errors = errors_of(self.rank, shards, expected)
        except (Unsupported, Exception) as error:  # peers may raise anything; others continue
            status, reason = (UNSUPPORTED, str(error)) if isinstance(error, Unsupported) else (
                FAILED, f"{type(error).__name__}: {first_line(error)}")
            if contender.name == OURS:
                traceback.print_exc()
        try:
            if self.rank.slowest(status != OK) != [0]:  # all ranks go on together
                reason = reason if status != OK else "another rank failed"
                return result(cell, contender.name, UNSUPPORTED if status == UNSUPPORTED else FAILED, reason)
            if not max(errors) < TOLERANCE:
                return result(cell, contender.name, WRONG, _words(errors))
            prepared = round(time.monotonic() - begin, 2)
            fields = self._timed(cell, shards, one, full)
            after = errors_of(self.rank, shards, expected)
            if not max(after) < TOLERANCE:
                return result(cell, contender.name, WRONG, f"{_words(after)}, after it was timed")
            return timed(cell, contender.name, prepare_s=prepared, error=round(max(errors), 5), **fields)
        finally:
            if shards is not None:
                shards.close()

    def _timed(self, cell, shards, one, full):
        """Fields of a result: samples in microseconds, and efficiencies."""
        alone, burst, hosts = _both(self.rank, shards.call(cell.gradients))
        whole = Cell.kept_pairs(cell) / cell.seqlen_q ** 2
        local = _medians(self.rank, shards.local) if shards.local else None
        efficiencies = {}
        for index, seconds in enumerate(map(statistics.median, (alone, burst))):
            values = dict(E1=one[index] / (self.rank.size * seconds), E3=whole * full[index] / (self.rank.size * seconds))
            if local:
                values["E2"] = local[index] / seconds
            for name, value in values.items():
                efficiencies.setdefault(name, []).append(round(value, 4))
        fields = dict(us=[1e6 * x for x in alone], host_us=[1e6 * x for x in hosts], efficiencies=efficiencies,
                      burst_us=round(1e6 * statistics.median(burst), 3))
        if shards.placement is not None:
            sizes = [shards.placement.remote_bytes(rank, heads_kv=cell.heads_kv, head_dim=cell.head_dim)
                     for rank in range(self.rank.size)]
            fields |= dict(imbalance=round(shards.placement.imbalance, 4), copied_bytes=max(sizes))
        return fields


def _medians(rank, call):
    alone, burst, _ = _both(rank, call)
    return statistics.median(alone), statistics.median(burst)


def _words(errors):
    return f"errors of o and gradients over their largest values: {', '.join(f'{x:.2g}' for x in errors)}"
