"""The table of a block mask, and the mask of calls that read it."""

from __future__ import annotations

import functools

from .. import _core
from .. import mask as _masks
from .._frameworks import are_numpys
from ..errors import InvalidArgumentError
from ..functor import wanted_whole
from .arguments import LENGTHS, NAMES_OF_THE_LIBRARY, renamed, wanted_block_size

#: The most bytes of mask bits, over all batch entries and heads, that are made unasked.
_MOST_UNASKED_BYTES = 64 << 20


@functools.lru_cache(maxsize=256, typed=True)
def mask_over(block_q, block_kv, within, scores):
    """The mask of calls. Reading its texts takes longer than all else of making a table, so it is kept."""
    if scores is False:
        return _masks.block_mask(block_q, block_kv, within)
    return _masks.block_scores(block_q, block_kv, None if scores is True else within)


def _blocks_with_scores(block_size, seqlen_q, seqlen_k, indices):
    """How many blocks of a table may be seen in part. `indices` lists those that are, where it is given."""
    rows, columns = (-(-length // side) for length, side in zip((seqlen_q, seqlen_k), block_size))
    if indices is not None and len(indices.shape) == 4:
        columns = min(columns, int(indices.shape[3]))
    return max(1, rows * columns)


def _pay(within, like, like_name, score_bytes):
    """Whether bits of scores are kept unasked: Hopper's forward has them beside its keys, other kernels look them up in
    memory as a text looks up what it reads."""
    return (
        bool(within.tensors)
        and score_bytes <= _MOST_UNASKED_BYTES
        and _core.device_of(like, like_name).arch == "sm_90a"
    )


def made(
    like, like_name, *, mask, block_size, batch, heads, seqlen_q, seqlen_k, tensors, scores, heads_q=0, **arrays
):
    """The fields of a BlockMask. `batch` and `heads` are None if one table is for all; errors call `like` by `like_name`."""
    block_q, block_kv = block_size = wanted_block_size(block_size)
    blocks = _blocks_with_scores(block_size, seqlen_q, seqlen_k, arrays.get("indices"))
    if scores is None:
        tables = (1 if batch is None else batch) * (1 if heads is None else heads)
        scores = _pay(mask, like, like_name, tables * blocks * block_q * block_kv // 8)
    room = blocks * scores if isinstance(scores, bool) else wanted_whole("scores", scores, 1)
    over = mask_over(block_q, block_kv, mask, scores)
    given = dict(tensors or {})
    try:
        outputs = _core.make_block_mask(
            like,
            like_name=like_name,
            mask=mask,
            block_q=block_q,
            block_kv=block_kv,
            batch=1 if batch is None else batch,
            heads=1 if heads is None else heads,
            heads_q=heads_q,
            seqlen_q=seqlen_q,
            seqlen_k=seqlen_k,
            tensors=given,
            room=room,
            **arrays,
        )
    except InvalidArgumentError as error:
        if error.field not in NAMES_OF_THE_LIBRARY.keys() - given.keys():
            raise
        raise renamed(error) from None
    return dict(
        table=outputs[0],
        block_size=block_size,
        seqlen_q=seqlen_q,
        seqlen_k=seqlen_k,
        batch=batch,
        heads=heads,
        within=mask,
        mask=over,
        tensors=({} if scores is True else given) | dict(zip(("block_mask", "block_places", "block_scores"), outputs)),
        scores=scores,
        read=given,
        lengths={
            name: array.copy() if are_numpys(array) else None
            for name in LENGTHS
            if (array := arrays.get(name)) is not None
        },
    )
