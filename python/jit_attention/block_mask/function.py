"""The block mask of a mask, for arrays of given sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._keywords import Nothing, hides_unknown, refuse_unknown
from .._mask_words import differs_by_entry, differs_by_head
from ..errors import InvalidArgumentError
from ..mask import Mask
from ..typing import Array, Layout, Stream
from .arguments import check_not_varlen, most_rows, own_tables_wanted, wanted_mask, wanted_rank
from .making import made
from .table import BlockMask


@hides_unknown
def block_mask(
    q: Array,
    k: Array,
    *,
    mask: Mask | None = None,
    tensors: Mapping[str, Any] | None = None,
    block_size: tuple[int, int] = (128, 128),
    per_batch: bool | None = None,
    per_head: bool | None = None,
    blocks: Array | None = None,
    scores: bool | int | None = None,
    layout: Layout = "BSHD",
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    cu_seqlens_q: Array | None = None,
    cu_seqlens_k: Array | None = None,
    seqused_q: Array | None = None,
    seqused_k: Array | None = None,
    cache_leftpad: Array | None = None,
    page_table: Array | None = None,
    stream: Stream | None = None,
    **unknown: Nothing,
) -> BlockMask:
    """Computes on the device which blocks of scores a mask keeps, for calls of attention with arrays of these sizes.

    Args:
        q: Queries, as in `attention`; only their sizes matter.
        k: Keys, as in `attention`; only their sizes matter.
        mask: The keys that each query sees. None: all keys of the blocks that `blocks` keeps.
        tensors: The arrays that the mask reads, by name. The block mask keeps them. Make another one when their
            contents change.
        block_size: Queries and keys of a block: multiples of 16 from 16 to 4096. Multiples of the kernels' tile sizes
            are fastest.
        per_batch: Whether each batch entry has a table. None: if the mask, the blocks or the lengths differ between
            entries, as far as the mask's text shows. False is refused in that case.
        per_head: The same for query heads.
        blocks: bool or uint8 (batch or 1, heads_q or 1, rows, columns). The blocks that may be seen at all. None:
            all.
        scores: Whether partial blocks get mask bits, one per score, which forward calls read instead of evaluating
            the mask; gradients evaluate it. True: all blocks of a table, 1/8 byte per score. A number: that many
            partial blocks of a table, row by row. None: True if the mask reads arrays, calls run on Hopper
            (where this is faster), and the bits take at most 64 MiB.
        layout: "BSHD" or "BHSD": the layout of q and k.
        max_seqlen_q: With cu_seqlens_q: number of queries of the longest sequence. None: rows of q. A number that is
            too small is refused if the lengths are NumPy arrays; otherwise the queries beyond it see nothing.
        max_seqlen_k: With cu_seqlens_k: the same for keys. No query sees the keys beyond it.
        cu_seqlens_q: As in `attention`.
        cu_seqlens_k: As in `attention`.
        seqused_q: As in `attention`.
        seqused_k: As in `attention`.
        cache_leftpad: As in `attention`.
        page_table: As in `attention`.
        stream: As in `attention`.

    Returns:
        The block mask, for ``attention(..., block_mask=...)``.

    Raises:
        InvalidArgumentError: An array or another argument is wrong.
        InvalidSpecError: The library does not serve the mask.
        TypeError: An argument is no array, or has a wrong name.
        Error: Compiling, loading or launching failed; `jit_attention.errors` lists the classes.

    Thread safety:
        Any number of threads may call at the same time.

    Examples:
        >>> q = k = np.ones((1, 256, 2, 64), ml_dtypes.bfloat16)
        >>> segments = ja.mask.text("return segment[q] == segment[k];", name="segments", tensors={"segment": "int32"})
        >>> ids = np.repeat(np.arange(2, dtype=np.int32), 128)  # two segments of 128 tokens
        >>> table = ja.block_mask(q, k, mask=segments, tensors={"segment": ids})
        >>> table.show().counts
        {'full': 2, 'partial': 0, 'empty': 2}
        >>> o = ja.attention(q, k, k, block_mask=table)
    """
    if unknown:
        refuse_unknown(block_mask, unknown)
    if layout not in ("BSHD", "BHSD"):
        raise InvalidArgumentError(f'layout: is {layout!r}; it must be "BSHD" or "BHSD"', "validate", "layout")
    wanted_rank("q", q, 4 if cu_seqlens_q is None else 3)
    wanted_rank("k", k, 4 if cu_seqlens_k is None else 3)
    wanted_rank("cu_seqlens_q", cu_seqlens_q, 1)
    wanted_rank("cu_seqlens_k", cu_seqlens_k, 1)
    wanted_rank("page_table", page_table, 2)
    wanted_rank("blocks", blocks, 4)
    length = 1 if layout == "BSHD" else 2
    sizes = {"total_q": 0, "total_k": 0}
    if cu_seqlens_q is None:
        batch, heads_q, seqlen_q = int(q.shape[0]), int(q.shape[3 - length]), int(q.shape[length])
        check_not_varlen("max_seqlen_q", max_seqlen_q, seqlen_q)
    else:
        batch, heads_q, sizes["total_q"] = int(cu_seqlens_q.shape[0]) - 1, int(q.shape[1]), int(q.shape[0])
        seqlen_q = most_rows("max_seqlen_q", max_seqlen_q, sizes["total_q"], cu_seqlens_q, seqused_q)
    if cu_seqlens_k is None:
        seqlen_k = int(k.shape[length]) * (1 if page_table is None else int(page_table.shape[1]))
        check_not_varlen("max_seqlen_k", max_seqlen_k, seqlen_k)
    else:
        sizes["total_k"] = int(k.shape[0])
        seqlen_k = most_rows("max_seqlen_k", max_seqlen_k, sizes["total_k"], cu_seqlens_k, seqused_k, cache_leftpad)
    lengths = {
        "cu_seqlens_q": cu_seqlens_q,
        "cu_seqlens_k": cu_seqlens_k,
        "seqused_q": seqused_q,
        "seqused_k": seqused_k,
        "cache_leftpad": cache_leftpad,
    }
    within = wanted_mask(mask)
    maps = (1, 1) if blocks is None else tuple(map(int, blocks.shape[:2]))
    per_batch = own_tables_wanted(
        "per_batch",
        per_batch,
        {
            "sequences have lengths of their own": any(array is not None for array in lengths.values()),
            "blocks differ between batch entries": maps[0] != 1,
            f"the mask {within} goes by batch entries": differs_by_entry(within),
        },
    )
    per_head = own_tables_wanted(
        "per_head",
        per_head,
        {
            "blocks differ between query heads": maps[1] != 1,
            f"the mask {within} goes by query heads": differs_by_head(within),
        },
    )
    fields = made(
        q,
        "q",
        mask=within,
        block_size=block_size,
        batch=batch if per_batch else None,
        heads=heads_q if per_head else None,
        heads_q=heads_q,
        seqlen_q=seqlen_q,
        seqlen_k=seqlen_k,
        tensors=tensors,
        blocks=blocks,
        scores=scores,
        stream=stream,
        **sizes,
        **lengths,
    )
    return BlockMask(**fields)
