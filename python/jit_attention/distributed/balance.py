"""Placements for masks."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from .. import _core
from .._keywords import Nothing, hides_unknown, refuse_unknown
from ..block_mask import BlockMask
from ..block_mask import block_mask as make_block_mask
from ..errors import InvalidArgumentError
from ..mask import Mask
from .placement import Placement, classes_of_blocks

Mode = Literal["balanced", "contiguous", "zigzag", "striped", "chunks"]


@hides_unknown
def balance(
    mask: Mask | None = None,
    *,
    seqlen: int,
    ranks: int | None = None,
    group: Any = None,
    documents: Sequence[int] | None = None,
    block_mask: BlockMask | None = None,
    tensors: Mapping[str, Any] | None = None,
    mode: Mode = "balanced",
    granule: int | None = None,
    stripe: int = 1,
    chunks: Sequence[Sequence[tuple[int, int]]] | None = None,
    tolerance: float = 1.02,
    **unknown: Nothing,
) -> Placement:
    """Distributes the queries of a sequence over ranks, by the work that a mask leaves.

    Shards are contiguous at first. Then granules of the slowest rank are swapped for as many of the fastest until no
    rank computes more than `tolerance` times the mean; each swap is the one by which the fewest keys have to be copied.

    Args:
        mask: The mask of the calls. Its kept keys must follow from positions, as with causal masks and windows; for
            other masks give `tensors` or `block_mask`.
        seqlen: Queries of the whole sequence, and as many keys: any number.
        ranks: Number of ranks. None: that of the group.
        group: A process group of ``torch.distributed``, or a device mesh of one dimension.
        documents: Lengths of packed sequences, which sum to seqlen. Each sees itself alone, within the mask.
        block_mask: The block mask of the mask, of square blocks, which become granules. Arrays on a device are copied
            to the host.
        tensors: Arrays that the mask reads, for the whole sequence; its block mask is computed from them on their
            device.
        mode: "balanced"; "contiguous", one run for each rank; "zigzag", two runs for each, from the front and the back;
            "striped", stripes in turn; or "chunks".
        granule: Queries of a granule, a multiple of 16. None: 128, or the side of the block mask's blocks.
        stripe: Granules of a stripe.
        chunks: With mode="chunks", for each rank its positions as (begin, end) of each run, ascending. Runs begin and
            end at multiples of the granule, or at the end.
        tolerance: With mode="balanced", the largest load in terms of the mean.

    Returns:
        The placement. Ranks that get no granule have empty shards.

    Raises:
        InvalidArgumentError: An argument is wrong, or the mask's kept keys do not follow from positions alone.

    Thread safety:
        Any number of threads may call at the same time. It is no collective: equal arguments give equal placements.

    Examples:
        >>> placement = ja.distributed.balance(ja.mask.causal(), seqlen=512, ranks=2, mode="zigzag")
        >>> placement.pieces(0)
        ((0, 0, 128, 384),)
        >>> print(placement.show())
        512 tokens in granules of 128, 2 ranks, zigzag: slowest/mean 1.000
           0 #--#  256 tokens, load 1.000, needs 256 keys of others
           1 -##.  256 tokens, load 1.000, needs 128 keys of others
        <BLANKLINE>
    """
    if unknown:
        refuse_unknown(balance, unknown)
    own_rank = None
    if group is not None:
        from .groups import group_of

        group = group_of(group)
        if ranks is not None and ranks != group.size():
            raise InvalidArgumentError(f"ranks: is {ranks}, and the group has {group.size()}; give one of them",
                                       "arguments", "ranks")
        ranks, own_rank = group.size(), group.rank()
    if ranks is None:
        raise InvalidArgumentError("ranks: is missing; give it or a group", "arguments", "ranks")
    seqlen, ranks = operator.index(seqlen), operator.index(ranks)
    if block_mask is None and mask is not None and mask.tensors:
        block_mask = _table_of(mask, seqlen, tensors, 128 if granule is None else granule)
    classes = None
    if block_mask is not None:
        if documents is not None:
            raise InvalidArgumentError("documents: are given beside a block mask or a mask that reads tensors; put "
                                       "them into the mask, with jit_attention.mask.document()", "arguments",
                                       "documents")
        classes, side = classes_of_blocks(block_mask, seqlen)
        if granule not in (None, side):
            raise InvalidArgumentError(f"granule: is {granule}, and blocks of the block mask have {side} queries; leave "
                                       "it out", "arguments", "granule")
        granule = side
    if (chunks is not None) != (mode == "chunks"):
        raise InvalidArgumentError('chunks: go with mode="chunks", and it with them', "arguments", "chunks")
    lengths = tuple(map(operator.index, documents or ()))
    runs, pieces, needs, remote, loads, imbalance, digest, picture = _core.place(
        mask, seqlen, ranks, 128 if granule is None else granule, mode, stripe, chunks or (), lengths, classes, 1.0,
        tolerance)
    return Placement(seqlen, 128 if granule is None else granule, _tuples(runs), _tuples(pieces), _tuples(needs),
                     tuple(remote), tuple(loads), imbalance, lengths, digest, picture, own_rank)


def _tuples(of_ranks: Any) -> Any:
    """Lists per rank as tuples."""
    return tuple(map(tuple, of_ranks))


def _table_of(mask: Mask, seqlen: int, tensors: Mapping[str, Any] | None, granule: int) -> BlockMask:
    """The block mask of a mask that reads arrays, computed on their device."""
    if not tensors:
        names = ", ".join(sorted(mask.tensors))
        raise InvalidArgumentError(f"mask: {mask} reads {names}; give them as tensors, or give block_mask", "arguments",
                                   "mask")
    array = next(iter(tensors.values()))
    if "torch" in type(array).__module__:
        import torch

        rows: Any = torch.empty((1, seqlen, 1, 64), dtype=torch.bfloat16, device=array.device)
    else:
        import numpy

        rows = numpy.zeros((1, seqlen, 1, 64), numpy.float16)
    return make_block_mask(rows, rows, mask=mask, tensors=tensors, block_size=(granule, granule), scores=False)
