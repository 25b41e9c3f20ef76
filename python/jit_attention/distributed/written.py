"""Placements as integer tensors, which PyTorch operators take and `torch.compile` treats as opaque."""

from __future__ import annotations

import torch

from .placement import Placement

#: Placements by digest, with the fields that calls need; a forgotten one is read from its tensor.
_known: dict[bytes, Placement] = {}
_MOST_KNOWN = 64


def written(placement: Placement) -> torch.Tensor:
    """int64, in CPU memory."""
    numbers = [placement.seqlen, placement.granule, placement.ranks, *map(int, (placement.digest[:15], placement.digest[15:30]),
                                                                          (16, 16)), len(placement.documents)]
    numbers += placement.documents
    for rank in range(placement.ranks):
        for ranges in (placement.runs[rank], placement.needs[rank], placement.kernel_pieces[rank]):
            numbers.append(len(ranges))
            numbers += [number for each in ranges for number in each]
        numbers.append(placement.remote[rank])
    return torch.tensor(numbers, dtype=torch.int64)


def read(tensor: torch.Tensor) -> Placement:
    """The placement in a tensor of `written`, with the fields that calls need."""
    content = tensor.numpy().tobytes()
    placement = _known.get(content)
    if placement is None:
        placement = _read(tensor.tolist())
        while len(_known) >= _MOST_KNOWN:
            _known.pop(next(iter(_known)))
        _known[content] = placement
    return placement


def _read(numbers: list[int]) -> Placement:
    left = iter(numbers)

    def some(count: int) -> tuple[int, ...]:
        return tuple(next(left) for _ in range(count))

    seqlen, granule, ranks, high, low, count = some(6)
    documents = some(count)
    by_rank: list[tuple[tuple[tuple[int, ...], ...], ...]] = []
    remote = []
    for _ in range(ranks):
        by_rank.append(tuple(tuple(some(width) for _ in range(next(left))) for width in (2, 2, 4)))
        remote.append(next(left))
    runs, needs, pieces = (tuple(of_rank[i] for of_rank in by_rank) for i in range(3))
    return Placement(seqlen, granule, runs, pieces, needs, tuple(remote), (), 1.0, documents,  # type: ignore[arg-type]
                     f"{high:015x}{low:015x}", "")
