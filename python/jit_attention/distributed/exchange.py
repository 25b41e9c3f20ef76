"""Row exchanges between ranks: keys and values to the ranks that need them, gradients back."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from .groups import Ranks, start_rows
from .placement import Placement

#: Up to this many runs are copied one by one, at memory speed; more are copied by index.
_FEW_RUNS = 16


class Places:
    """Some rows of a tensor, in ascending order."""

    def __init__(self, rows: torch.Tensor, device: torch.device) -> None:
        self.count = rows.numel()
        breaks = (rows.diff() != 1).nonzero()[:, 0] + 1
        starts = [0, *breaks.tolist()][: self.count]
        ends = [*starts[1:], self.count][: len(starts)]
        firsts = rows[starts].tolist() if starts else []
        self.runs = [(first, end - start, start) for first, start, end in zip(firsts, starts, ends)]
        self.index = rows.to(device)

    def take(self, source: torch.Tensor) -> torch.Tensor:
        """These rows of a tensor, contiguous; a view if they are one run."""
        if len(self.runs) == 1:
            first, length, _ = self.runs[0]
            return source[first:first + length]
        return source.index_select(0, self.index)

    def put(self, target: torch.Tensor, rows: torch.Tensor, begin: int = 0) -> None:
        """Writes `rows`, from the row `begin`, to these rows."""
        if len(self.runs) > _FEW_RUNS:
            target.index_copy_(0, self.index, rows.narrow(0, begin, self.count))
            return
        for first, length, start in self.runs:
            target.narrow(0, first, length).copy_(rows.narrow(0, begin + start, length))

    def add(self, target: torch.Tensor, rows: torch.Tensor) -> None:
        """Adds `rows` to these rows; each index is unique, so that bits do not depend on thread order."""
        if len(self.runs) > _FEW_RUNS:
            target[self.index] += rows
            return
        for first, length, start in self.runs:
            target[first:first + length] += rows[start:start + length]

    def fill(self, target: torch.Tensor, value: float) -> None:
        """Fills these rows with a number."""
        if len(self.runs) > _FEW_RUNS:
            target.index_fill_(0, self.index, value)
            return
        for first, length, _ in self.runs:
            target[first:first + length].fill_(value)


@dataclass(frozen=True)
class Route:
    """Rows that a rank sends and receives, and their indices."""

    rows: int
    sent: list[Places]  # by rank: rows of the shard
    received: list[Places]  # by rank: rows of the sequence
    own: Places
    absent: Places  # positions that this rank neither has nor needs
    travels: bool  # whether any rank exchanges rows
    sent_counts: list[int]  # rows by receiver
    received_counts: list[int]  # rows by sender
    #: With two ranks: the shard's rows in pieces, and the other rank's returned rows.
    segments: list[tuple[int, int, int, int | None]] = field(default_factory=list)


def positions_of_runs(runs: tuple[tuple[int, int], ...]) -> torch.Tensor:
    """The positions of a shard, int64 (rows)."""
    return torch.cat([torch.arange(begin, end) for begin, end in runs] or [torch.empty(0, dtype=torch.int64)])


@functools.lru_cache(maxsize=64)
def route_of(placement: Placement, rank: int, device: torch.device) -> Route:
    """The route of a rank. Index tensors are on the device."""
    count = -(-placement.seqlen // placement.granule)
    needed = torch.zeros((placement.ranks, count), dtype=torch.bool)
    for of_rank, ranges in enumerate(placement.needs):
        for begin, end in ranges:
            needed[of_rank, begin:end] = True
    positions = [positions_of_runs(runs) for runs in placement.runs]
    own = positions[rank]
    granules = [of_rank // placement.granule for of_rank in positions]
    sent, received = [], []
    nothing = torch.empty(0, dtype=torch.int64)
    is_absent = torch.ones(placement.seqlen, dtype=torch.bool)
    is_absent[own] = False
    for other in range(placement.ranks):
        is_own = other == rank
        rows = nothing if is_own else needed[other, granules[rank]].nonzero()[:, 0]
        places = nothing if is_own else positions[other][needed[rank, granules[other]]]
        is_absent[places] = False
        sent.append(Places(rows, device))
        received.append(Places(places, device))
    own_places = Places(own, device)
    segments = _segments(own_places, sent[1 - rank]) if placement.ranks == 2 else []
    return Route(own.numel(), sent, received, own_places, Places(is_absent.nonzero()[:, 0], device),
                 sum(placement.remote) > 0, [places.count for places in sent], [places.count for places in received],
                 segments)


def _behind_each_other(parts: list[torch.Tensor]) -> torch.Tensor:
    """Concatenated parts, without a copy if there is only one."""
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def gather_rows(control: Ranks, route: Route, shard: torch.Tensor, seqlen: int, timeout: float) -> torch.Tensor:
    """Rows (seqlen, …) of the sequence, from each rank's shard (rows, …); rows that are not needed are 0."""
    whole = shard.new_empty((seqlen, *shard.shape[1:]))
    started = None
    if route.travels:
        parts = [places.take(shard) for places in route.sent if places.count]
        given = _behind_each_other(parts or [shard[:0]])
        started = start_rows(control, given, route.sent_counts, route.received_counts)
    route.own.put(whole, shard)
    route.absent.fill(whole, 0)
    if started is not None:
        rows, work = started
        control.wait(work, timeout, shard.is_cuda)
        first = 0
        for places in route.received:
            if places.count:
                places.put(whole, rows, first)
                first += places.count
    return whole


def _segments(own: Places, sent: Places) -> list[tuple[int, int, int, int | None]]:
    """A shard's rows in pieces: first row, count, position of the first row, and its index in the slot of the rank that
    some were sent to."""
    segments: list[tuple[int, int, int, int | None]] = []
    for position, length, row in own.runs:
        at, end = row, row + length
        for first, count, slot in sent.runs:
            begin, stop = max(at, first), min(end, first + count)
            if begin >= stop:
                continue
            if begin > at:
                segments.append((at, begin - at, position + at - row, None))
            segments.append((begin, stop - begin, position + begin - row, slot + begin - first))
            at = stop
        if at < end:
            segments.append((at, end - at, position + at - row, None))
    return segments


def return_rows(control: Ranks, route: Route, whole: torch.Tensor, results: list[tuple[slice, torch.Tensor]],
                timeout: float, meanwhile: Callable[[], None] = lambda: None) -> None:
    """The inverse for gradients: sums all ranks' gradients of this rank's rows, in fp32 and in rank order. `results`
    are some columns of these rows, rounded to their type. Calls `meanwhile` while rows travel."""
    slots: tuple[torch.Tensor, ...] = ()
    if route.travels:
        parts = [places.take(whole).float() for places in route.received if places.count]
        rows, work = start_rows(control, _behind_each_other(parts or [whole[:0].float()]), route.received_counts,
                                route.sent_counts)
        meanwhile()
        control.wait(work, timeout, whole.is_cuda)
        slots = rows.split_with_sizes(route.sent_counts)
    else:
        meanwhile()
    if 0 < len(route.segments) <= _FEW_RUNS:  # two ranks: one pass over the rows, with the bits of any order
        for row, length, position, at in route.segments:
            for columns, result in results:
                own, target = whole[position:position + length, :, columns], result[row:row + length]
                if at is None or not slots:
                    target.copy_(own)
                else:
                    torch.add(own, slots[1 - control.rank][at:at + length, :, columns], out=target)
        return
    total = whole.new_zeros((route.rows, *whole.shape[1:]), dtype=torch.float32)
    for rank in range(control.size):
        if rank == control.rank:
            total += route.own.take(whole)
        elif slots:
            route.sent[rank].add(total, slots[rank])
    for columns, result in results:
        result.copy_(total[:, :, columns])
