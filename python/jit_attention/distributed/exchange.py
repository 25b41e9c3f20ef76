"""Which rows travel between ranks: keys and values to those that need them, their gradients back."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch

from .groups import Control, exchange_rows
from .placement import Placement


@dataclass(frozen=True)
class Route:
    """Rows that a rank sends and gets, by ranks, and where they stand in the sequence."""

    rows: int
    sent: list[int]
    received: list[int]
    sent_rows: torch.Tensor  # of the shard, those to rank 0 first
    received_positions: torch.Tensor  # of the sequence, those of rank 0 first
    own_positions: torch.Tensor
    absent_positions: torch.Tensor  # those that neither this rank has nor its queries need
    all_travel_nowhere: bool  # on every rank


def _positions(runs: tuple[tuple[int, int], ...]) -> torch.Tensor:
    return torch.cat([torch.arange(begin, end) for begin, end in runs] or [torch.empty(0, dtype=torch.int64)])


@functools.lru_cache(maxsize=64)
def route_of(placement: Placement, rank: int, device: torch.device) -> Route:
    """The route of a rank. Index tensors are on the device."""
    count = -(-placement.seqlen // placement.granule)
    needed = torch.zeros((placement.ranks, count), dtype=torch.bool)
    for of_rank, ranges in enumerate(placement.needs):
        for begin, end in ranges:
            needed[of_rank, begin:end] = True
    positions = [_positions(runs) for runs in placement.runs]
    own = positions[rank]
    granules = [of_rank // placement.granule for of_rank in positions]
    sent, received, sent_rows, received_positions = [], [], [], []
    for other in range(placement.ranks):
        if other == rank:
            rows = places = torch.empty(0, dtype=torch.int64)
        else:
            rows = needed[other, granules[rank]].nonzero()[:, 0]
            places = positions[other][needed[rank, granules[other]]]
        sent.append(rows.numel())
        received.append(places.numel())
        sent_rows.append(rows)
        received_positions.append(places)
    is_absent = torch.ones(placement.seqlen, dtype=torch.bool)
    is_absent[own] = False
    is_absent[torch.cat(received_positions)] = False
    return Route(own.numel(), sent, received, torch.cat(sent_rows).to(device), torch.cat(received_positions).to(device),
                 own.to(device), is_absent.nonzero()[:, 0].to(device), sum(placement.remote) == 0)


def gather_rows(control: Control, route: Route, shard: torch.Tensor, seqlen: int, timeout: float) -> torch.Tensor:
    """The rows (seqlen, …) of the sequence, from each rank's shard (rows, …); those that are not needed are 0."""
    whole = shard.new_empty((seqlen, *shard.shape[1:]))
    whole[route.own_positions] = shard
    whole[route.absent_positions] = 0
    if not route.all_travel_nowhere:
        received = exchange_rows(control, shard[route.sent_rows], route.sent, route.received, timeout)
        whole[route.received_positions] = received
    return whole


def return_rows(control: Control, route: Route, whole: torch.Tensor, timeout: float) -> torch.Tensor:
    """The inverse for gradients: the sum (rows, …) of what all ranks have of this rank's rows, in fp32 and in the order of
    ranks, whichever comes first."""
    total = whole.new_zeros((route.rows, *whole.shape[1:]), dtype=torch.float32)
    parts = [None] * control.size
    if not route.all_travel_nowhere:
        slots = exchange_rows(control, whole[route.received_positions].float(), route.received, route.sent, timeout)
        parts = list(zip(route.sent_rows.split(route.sent), slots.split(route.sent)))
    for rank in range(control.size):
        if rank == control.rank:
            total += whole[route.own_positions].float()
        elif parts[rank] is not None:
            rows, slot = parts[rank]
            total[rows] += slot  # each row once
    return total
