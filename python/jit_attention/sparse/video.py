"""Attention of blocks of queries to blocks of keys that were chosen, as sparse video models have it."""

from __future__ import annotations

import functools
from typing import Any

from .. import mask as _masks
from ..block_mask import BlockMask
from ..block_mask.making import made
from ..errors import InvalidArgumentError
from ..typing import Array, ArrayT
from .gradients import differentiable_attention
from .lists import _numbers


def video(
    q: ArrayT,
    k: Array,
    v: Array,
    indices: Array,
    counts: Array | None = None,
    *,
    block: int = 64,
    valid_rows: Array | None = None,
    **options: Any,
) -> Any:
    """Computes attention of each block of queries to the blocks of keys on its list, for each head.

    Args:
        q: Queries (batch, seqlen, heads_q, head_dim).
        k: Keys (batch, seqlen, heads_kv, head_dim).
        v: Values, likewise.
        indices: int32 (batch or 1, heads_q or 1, blocks of queries, entries): the blocks of keys that a block of queries
            sees. Any order; duplicates count once; −1 and other entries that name no block are skipped.
        counts: int32 (batch or 1, heads_q or 1, blocks of queries): how many of the entries count. None: all.
        block: Queries and keys of a block, a multiple of 16; 64 is fastest.
        valid_rows: int32 (blocks of keys): the keys of each block that exist, its first ones. None: all.
        **options: Other arguments of `attention`; for PyTorch tensors that require grad, of
            `jit_attention.torch.attention`, such as deterministic.

    Returns:
        o (batch, seqlen, heads_q, head_dim), and LSE if asked. Rows of queries that do not exist are computed like others.
        PyTorch's autograd has gradients of q, k and v, which read the same block mask; keys that do not exist have 0.

    Raises:
        InvalidArgumentError: An argument is wrong. Contents of lists on a device are not checked.

    Thread safety:
        Threads may call at the same time.

    Examples:
        >>> q = np.ones((1, 128, 1, 64), ml_dtypes.bfloat16)
        >>> ja.sparse.video(q, q, q, np.array([[[[0], [1]]]], np.int32), valid_rows=np.array([64, 3], np.int32)).shape
        (1, 128, 1, 64)
    """
    listed = video_mask(q, k, indices, counts, block=block, valid_rows=valid_rows)
    given = {name: value for name, value in options.items() if value is not None}
    return differentiable_attention(q, k, v)(q, k, v, block_mask=listed, **given)


def video_mask(
    q: Array,
    k: Array,
    indices: Array,
    counts: Array | None = None,
    *,
    block: int = 64,
    valid_rows: Array | None = None,
) -> BlockMask:
    """Makes the block mask of the lists of `video`, for `attention(…, block_mask=)`: once where several calls have the same
    lists.

    Args:
        q: As in `video`; its shape alone is read.
        k: Likewise.
        indices: As in `video`.
        counts: As in `video`.
        block: As in `video`.
        valid_rows: As in `video`. The mask keeps the array.

    Returns:
        The block mask.

    Raises:
        InvalidArgumentError: As in `video`.

    Thread safety:
        Threads may call at the same time.

    Examples:
        >>> q = np.ones((1, 128, 1, 64), ml_dtypes.bfloat16)
        >>> listed = ja.sparse.video_mask(q, q, np.array([[[[0], [1]]]], np.int32))
        >>> ja.attention(q, q, q, block_mask=listed).shape
        (1, 128, 1, 64)
    """
    for name, array, rank in (("q", q, 4), ("k", k, 4), ("indices", indices, 4)):
        if len(array.shape) != rank:
            raise InvalidArgumentError(f"{name}: has {len(array.shape)} dimensions; it must have {rank}", "launch", name)
    blocks = -(-int(k.shape[1]) // block) if block > 0 else 0
    if valid_rows is not None and tuple(valid_rows.shape) != (blocks,):
        raise InvalidArgumentError(f"valid_rows: has the shape {tuple(valid_rows.shape)}; it must be ({blocks},), a number for "
                                   "each block of keys", "launch", "valid_rows")
    if counts is None:
        counts = _numbers(q, int(indices.shape[3]), (1, 1, int(indices.shape[2])))
    batch, heads = (max(int(indices.shape[i]), int(counts.shape[i])) for i in (0, 1))
    lists = {"counts": counts, "indices": indices}
    if valid_rows is None:  # nothing is left to be asked
        lists = {"full_" + name: array for name, array in lists.items()}
    return BlockMask(**made(
        indices, "indices", mask=_masks.none() if valid_rows is None else _valid_keys(block), block_size=(block, block),
        batch=None if batch == 1 else batch, heads=None if heads == 1 else heads, seqlen_q=int(q.shape[1]),
        seqlen_k=int(k.shape[1]), tensors={} if valid_rows is None else {"valid_rows": valid_rows}, scores=False, **lists))


@functools.lru_cache(maxsize=16)
def _valid_keys(block: int) -> Any:
    return _masks.text("return k % rows < valid_rows[k / rows];", name="valid_keys", constants={"rows": block},
                       tensors={"valid_rows": "int32"})
