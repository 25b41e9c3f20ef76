"""Block masks of blocks that the caller lists: fields of a BlockMask from lists, from block-sparse rows, from PyTorch."""

from __future__ import annotations

from ..errors import InvalidArgumentError
from ..functor import wanted_whole
from .arguments import check_halves, own_tables, wanted_block_size, wanted_mask, wanted_rank
from .host_lists import checked_rows
from .making import made


def made_of_lists(lists, *, seqlen_q, seqlen_k, block_size, mask, batch, heads_q, **others):
    """Fields of the BlockMask of `lists`: counts, indices, full_counts and full_indices, by name."""
    block_size = wanted_block_size(block_size)
    seqlen_q, seqlen_k = wanted_whole("seqlen_q", seqlen_q, 0), wanted_whole("seqlen_k", seqlen_k, 0)
    given = {name: x for name, x in lists.items() if name.endswith("counts") and x is not None}
    if not given:
        raise InvalidArgumentError("counts: is missing, and full_counts is, too", "validate", "counts")
    for names in (("counts", "indices"), ("full_counts", "full_indices")):
        check_halves(names, *map(lists.get, names), -(-seqlen_k // block_size[1]))
    within = wanted_mask(mask)
    listed = [max(int(x.shape[i]) for x in given.values()) for i in (0, 1)]
    batch, heads = own_tables(within, listed, batch, heads_q)
    like_name, like = next(iter(given.items()))
    return made(like, like_name, mask=within, block_size=block_size, batch=batch, heads=heads, seqlen_q=seqlen_q,
                seqlen_k=seqlen_k, **others, **lists)


def made_of_rows(indptr, indices, *, seqlen_q, seqlen_k, block_size, mask, batch, heads_q, like, **others):
    """Fields of the BlockMask of block-sparse rows."""
    block_size = wanted_block_size(block_size)
    seqlen_q, seqlen_k = wanted_whole("seqlen_q", seqlen_q, 0), wanted_whole("seqlen_k", seqlen_k, 0)
    within = wanted_mask(mask)
    columns = -(-seqlen_k // block_size[1])
    indptr, indices = checked_rows(indptr, indices, -(-seqlen_q // block_size[0]), columns, like)
    if len(indptr.shape) == 1:
        indptr = indptr[None, None]
    wanted_rank("indptr", indptr, 3)
    wanted_rank("indices", indices, 1)
    batch, heads = own_tables(within, [int(size) for size in indptr.shape[:2]], batch, heads_q)
    return made(indptr, "indptr", mask=within, block_size=block_size, batch=batch, heads=heads, seqlen_q=seqlen_q,
                seqlen_k=seqlen_k, indptr=indptr, indices=indices, **others)


def made_of_torchs_lists(lists, mask, **others):
    """Fields of the BlockMask of PyTorch's lists, named as those of `made_of_lists`, whose mask_mod is `mask`."""
    if mask is None:
        full = lists["full_counts"] is not None
        if full and bool((lists["counts"] > 0).any()):
            raise InvalidArgumentError(
                "mask: is missing, and some blocks are seen in part, as mask_mod says: give the mask that says "
                "the same, or jit_attention.mask.none() to see all of these blocks",
                "validate",
                "mask",
            )
        if not full:
            raise InvalidArgumentError(
                "mask: is missing, and the BlockMask does not tell which of its blocks are full: give the mask "
                "that says the same as mask_mod, or jit_attention.mask.none() to see all of these blocks",
                "validate",
                "mask",
            )
    return made_of_lists(lists, mask=mask, **others)
