"""Block masks: the blocks of scores that a mask keeps, computed once on the device for any number of calls.

    bm = block_mask(q, k, mask=segments, tensors={"segment": ids})
    o, lse = attention(q, k, v, block_mask=bm, return_lse=True)
    dq, dk, dv = attention_backward(do, q, k, v, o, lse, block_mask=bm)

They serve masks whose empty tiles cannot be derived from positions alone, and blocks that the caller chooses.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import _core
from . import _block_lists as _lists
from . import mask as _masks
from ._block_mask_arguments import (
    LENGTHS,
    NAMES_OF_THE_LIBRARY,
    check_halves,
    check_not_varlen,
    most_rows,
    own_tables,
    own_tables_wanted,
    renamed,
    wanted_block_size,
    wanted_mask,
    wanted_place,
    wanted_rank,
)
from ._frameworks import are_numpys, copy_on_host
from ._keywords import Nothing, hides_unknown, refuse_unknown
from ._mask_words import differs_by_entry, differs_by_head, goes_by_lengths
from .errors import InvalidArgumentError
from .functor import wanted_whole
from .mask import Mask
from .typing import Array, Layout, Stream

#: Of the bits of scores that are kept unasked, over all batch entries and heads.
_MOST_UNASKED_BYTES = 64 << 20


@dataclass(frozen=True, eq=False)
class BlockMask:
    """A table with two bits for each block of queries and keys, and the mask within the blocks.

    Made by `block_mask`, `BlockMask.from_lists`, `BlockMask.from_bsr` and `BlockMask.from_torch`. Immutable; threads
    may share it.

    Attributes:
        table: int32 (batch or 1, heads or 1, block_rows, block_words), in q's framework: two words for 32 blocks of
            keys, and a last word for the order in which rows are scheduled.
        block_size: Queries and keys of a block.
        seqlen_q: Number of queries of the calls that may use it; for varlen queries the longest sequence.
        seqlen_k: The same for keys.
        batch: Batch size of these calls. None: any, because all batch entries share the table.
        heads: Number of query heads of these calls. None: any.
        within: The mask within the blocks.
        mask: The mask of these calls: ``block_mask(block_q, block_kv, within)``, or, with mask bits,
            ``block_scores(block_q, block_kv)``.
        tensors: The arrays that `mask` reads, by name, including the table.
        scores: Whether partial blocks have mask bits: all of them (True), this many of each table, or none (False).
        read: The arrays that `within` was evaluated with, by name. Gradients evaluate it with them again.
        lengths: Names of the arrays of lengths that the table was made with, and copies of those that are NumPy's
            (None for others). Calls must pass the same lengths. A table that was made without lengths serves calls
            with seqused_q, seqused_k and cache_leftpad, if `within` does not depend on lengths.

    Examples:
        >>> q = k = np.ones((1, 256, 2, 64), ml_dtypes.bfloat16)
        >>> table = ja.block_mask(q, k, mask=ja.mask.causal())
        >>> table.block_size, table.show().counts
        ((128, 128), {'full': 1, 'partial': 2, 'empty': 1})
        >>> o = ja.attention(q, k, k, block_mask=table)
    """

    table: Any = field(repr=False)
    block_size: tuple[int, int]
    seqlen_q: int
    seqlen_k: int
    batch: int | None
    heads: int | None
    within: Mask
    mask: Mask
    tensors: dict[str, Any] = field(repr=False)
    scores: bool | int = False
    read: dict[str, Any] = field(default_factory=dict, repr=False)
    lengths: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def varlen_q(self) -> bool:
        """Whether the queries of calls are varlen."""
        return "cu_seqlens_q" in self.lengths

    @property
    def varlen_k(self) -> bool:
        """Whether the keys of calls are varlen."""
        return "cu_seqlens_k" in self.lengths

    @classmethod
    @hides_unknown
    def from_lists(
        cls,
        counts: Array | None,
        indices: Array | None,
        *,
        seqlen_q: int,
        seqlen_k: int,
        full_counts: Array | None = None,
        full_indices: Array | None = None,
        block_size: tuple[int, int] = (128, 128),
        mask: Mask | None = None,
        tensors: Mapping[str, Any] | None = None,
        batch: int | None = None,
        heads_q: int | None = None,
        scores: bool | int | None = None,
        stream: Stream | None = None,
        **unknown: Nothing,
    ) -> BlockMask:
        """Makes a block mask from lists: for each row of blocks, the blocks of keys that it sees.

        Args:
            counts: int32 (batch or 1, heads or 1, rows). Number of blocks in the row for which the mask is evaluated.
                A size of 1 serves all batch entries or heads. None: there are only full blocks.
            indices: int32 (batch or 1, heads or 1, rows, capacity). These blocks, ascending; entries beyond counts
                are ignored.
            seqlen_q: Number of queries.
            seqlen_k: Number of keys.
            full_counts: int32 (batch or 1, heads or 1, rows). Number of full blocks in the row, all of whose keys are
                seen whatever the mask says.
            full_indices: int32 (batch or 1, heads or 1, rows, capacity). These blocks.
            block_size: Queries and keys of a block: multiples of 16 from 16 to 4096.
            mask: The mask within the blocks of indices. None: all keys are seen.
            tensors: The arrays that the mask reads, by name.
            batch: Batch size of calls, if the lists serve all entries but the mask differs between them. None: that
                of the lists.
            heads_q: The same for query heads.
            scores: As in `block_mask`.
            stream: As in `attention`.

        Returns:
            The block mask.

        Raises:
            InvalidArgumentError: An argument is wrong. In CPU memory also: a count exceeds the capacity, or a block
                is out of range, out of order or listed twice. Arrays on a device are not checked: there counts are
                clamped, the order does not matter, blocks that are listed twice count once, and others are ignored.
            InvalidSpecError: The library does not serve the mask.
            TypeError: An argument is no array.

        Examples:
            >>> counts = np.array([[[1, 2]]], np.int32)               # row 0 sees one block, row 1 two
            >>> indices = np.array([[[[0, 0], [0, 1]]]], np.int32)
            >>> table = ja.BlockMask.from_lists(counts, indices, seqlen_q=256, seqlen_k=256, mask=ja.mask.causal())
            >>> table.show().counts
            {'full': 1, 'partial': 2, 'empty': 1}
        """
        if unknown:
            refuse_unknown(BlockMask.from_lists, unknown)
        block_size = wanted_block_size(block_size)
        seqlen_q, seqlen_k = wanted_whole("seqlen_q", seqlen_q, 0), wanted_whole("seqlen_k", seqlen_k, 0)
        lists = {"counts": counts, "indices": indices, "full_counts": full_counts, "full_indices": full_indices}
        given = {name: x for name, x in lists.items() if name.endswith("counts") and x is not None}
        if not given:
            raise InvalidArgumentError("counts: is missing, and full_counts is, too", "validate", "counts")
        for names in (("counts", "indices"), ("full_counts", "full_indices")):
            check_halves(names, *map(lists.get, names), -(-seqlen_k // block_size[1]))
        within = wanted_mask(mask)
        listed = [max(int(x.shape[i]) for x in given.values()) for i in (0, 1)]
        batch, heads = own_tables(within, listed, batch, heads_q)
        like_name, like = next(iter(given.items()))
        return _made(
            like,
            like_name,
            mask=within,
            block_size=block_size,
            batch=batch,
            heads=heads,
            seqlen_q=seqlen_q,
            seqlen_k=seqlen_k,
            tensors=tensors,
            scores=scores,
            stream=stream,
            **lists,
        )

    @classmethod
    @hides_unknown
    def from_bsr(
        cls,
        indptr: Array | Sequence[int],
        indices: Array | Sequence[int],
        *,
        seqlen_q: int,
        seqlen_k: int,
        block_size: tuple[int, int] = (128, 128),
        mask: Mask | None = None,
        tensors: Mapping[str, Any] | None = None,
        batch: int | None = None,
        heads_q: int | None = None,
        like: Array | None = None,
        scores: bool | int | None = None,
        stream: Stream | None = None,
        **unknown: Nothing,
    ) -> BlockMask:
        """Makes a block mask from block-sparse rows, as those of SciPy's ``bsr_array`` and FlashInfer.

        Row i of blocks sees the blocks ``indices[indptr[i]:indptr[i + 1]]``.

        Args:
            indptr: int32 (rows + 1), or (batch or 1, heads or 1, rows + 1), where 1 serves all batch entries or
                heads.
            indices: int32 (blocks of all rows). The blocks of keys, ascending within a row. Both arrays are in CPU
                memory, where lists and other integer types are accepted, too, or where calls compute.
            seqlen_q: Number of queries.
            seqlen_k: Number of keys.
            block_size: Queries and keys of a block: multiples of 16 from 16 to 4096.
            mask: The mask within the blocks. None: all keys are seen.
            tensors: The arrays that the mask reads, by name.
            batch: As in `from_lists`.
            heads_q: As in `from_lists`.
            like: An array where calls compute, if indptr and indices are in CPU memory and calls are on a GPU.
            scores: As in `block_mask`.
            stream: As in `attention`.

        Returns:
            The block mask.

        Raises:
            InvalidArgumentError: An argument is wrong. In CPU memory also: a row ends before it begins, or a block is
                out of range, out of order or listed twice. Arrays on a device are not checked: there such a row has
                no blocks, and blocks are read as in `from_lists`.
            InvalidSpecError: The library does not serve the mask.

        Examples:
            >>> table = ja.BlockMask.from_bsr([0, 1, 3], [0, 0, 1], seqlen_q=256, seqlen_k=256)
            >>> table.show().counts["empty"]
            1
        """
        if unknown:
            refuse_unknown(BlockMask.from_bsr, unknown)
        block_size = wanted_block_size(block_size)
        seqlen_q, seqlen_k = wanted_whole("seqlen_q", seqlen_q, 0), wanted_whole("seqlen_k", seqlen_k, 0)
        within = wanted_mask(mask)
        columns = -(-seqlen_k // block_size[1])
        indptr, indices = _lists.checked_rows(indptr, indices, -(-seqlen_q // block_size[0]), columns, like)
        if len(indptr.shape) == 1:
            indptr = indptr[None, None]
        wanted_rank("indptr", indptr, 3)
        wanted_rank("indices", indices, 1)
        batch, heads = own_tables(within, [int(size) for size in indptr.shape[:2]], batch, heads_q)
        return _made(
            indptr,
            "indptr",
            mask=within,
            block_size=block_size,
            batch=batch,
            heads=heads,
            seqlen_q=seqlen_q,
            seqlen_k=seqlen_k,
            tensors=tensors,
            indptr=indptr,
            indices=indices,
            scores=scores,
            stream=stream,
        )

    @classmethod
    @hides_unknown
    def from_torch(
        cls,
        block_mask: Any,
        mask: Mask | None = None,
        tensors: Mapping[str, Any] | None = None,
        *,
        batch: int | None = None,
        heads_q: int | None = None,
        scores: bool | int | None = None,
        stream: Stream | None = None,
        **unknown: Nothing,
    ) -> BlockMask:
        """Makes a block mask from a ``torch.nn.attention.flex_attention.BlockMask``, whose lists are read as they are.

        Args:
            block_mask: PyTorch's block mask. A batch or number of heads of 1 serves all, as in PyTorch.
            mask: The mask that says the same as its ``mask_mod``, which is a Python function and cannot be read.
                Required if there are partial blocks; without it the call waits for the device to find out.
            tensors: The arrays that the mask reads, by name.
            batch: As in `from_lists`.
            heads_q: As in `from_lists`.
            scores: As in `block_mask`.
            stream: As in `attention`.

        Returns:
            The block mask.

        Raises:
            InvalidArgumentError: An argument is wrong, or there are partial blocks without a mask.
            InvalidSpecError: The library does not serve the mask.
            TypeError: block_mask is something else.

        Examples:
            >>> from torch.nn.attention.flex_attention import create_block_mask  # doctest: +SKIP
            >>> flex = create_block_mask(lambda b, h, q, k: q >= k, None, None, 1024, 1024)  # doctest: +SKIP
            >>> table = ja.BlockMask.from_torch(flex, ja.mask.causal("top_left"))  # doctest: +SKIP
        """
        if unknown:
            refuse_unknown(BlockMask.from_torch, unknown)
        if not hasattr(block_mask, "kv_num_blocks"):
            own = "jit_attention.BlockMask, which calls take as it is"
            kind = own if isinstance(block_mask, BlockMask) else type(block_mask).__name__
            raise TypeError(f"block_mask must be a torch.nn.attention.flex_attention.BlockMask, not a {kind}")
        lists = {
            "counts": block_mask.kv_num_blocks,
            "indices": block_mask.kv_indices,
            "full_counts": block_mask.full_kv_num_blocks,
            "full_indices": block_mask.full_kv_indices,
        }
        seqlen_q, seqlen_k = block_mask.seq_lengths
        return cls._from_torchs_lists(
            lists,
            mask,
            seqlen_q=seqlen_q,
            seqlen_k=seqlen_k,
            block_size=tuple(block_mask.BLOCK_SIZE),
            tensors=tensors,
            batch=batch,
            heads_q=heads_q,
            scores=scores,
            stream=stream,
        )

    @classmethod
    def _from_torchs_lists(cls, lists, mask, **others):
        """Of lists as `from_lists` names them, whose mask_mod is `mask`."""
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
        return cls.from_lists(**lists, mask=mask, **others)

    def show(self, *, entry: int = 0, head: int = 0, **others: Any) -> _core.TileMap:
        """Classifies the tiles of scores that this block mask keeps; notebooks show the result as a picture.

        Arrays on a device are copied to the host.

        Args:
            entry: The batch entry, counted from 0.
            head: The query head, counted from 0.
            others: Other arguments of `jit_attention.tile_map`, such as tile_q and tile_kv.

        Returns:
            The classes of the tiles.

        Raises:
            InvalidArgumentError: An argument is wrong, or there is no such batch entry or head.

        Examples:
            >>> table = ja.BlockMask.from_bsr([0, 1, 3], [0, 0, 1], seqlen_q=256, seqlen_k=256)
            >>> table.show().classes
            [['full', 'empty'], ['full', 'full']]
        """
        wanted_place("entry", entry, self.batch)
        wanted_place("head", head, self.heads)
        return _core.tile_map(
            _mask_over(*self.block_size, self.within, False),
            seqlen_q=self.seqlen_q,
            seqlen_kv=self.seqlen_k,
            batch=entry + 1 if self.batch is None else self.batch,
            heads_q=head + 1 if self.heads is None else self.heads,
            entry=entry,
            head=head,
            tensors={name: copy_on_host(array) for name, array in ({"block_mask": self.table} | self.read).items()},
            **others,
        )

    def _for_call(self, mask, score, tensors):
        """Mask and tensors of a call that was given these ones, and a score, beside this."""
        self._check_beside(mask, tensors)
        return self.mask, self._together(self.tensors, score, tensors)

    def _for_gradients(self, mask, score, tensors):
        """The same of a call for gradients. Its kernels look each bit up in memory, which takes longer than to ask
        `within`: they ask it wherever they can."""
        over, together = self._for_call(mask, score, tensors)
        if self.scores is not False and self.within.tensors.keys() <= self.read.keys():
            asked = self._together({"block_mask": self.table, **self.read}, score, tensors)
            if len(asked) <= _core.most_tensors:
                return _mask_over(*self.block_size, self.within, False), asked
        return over, together

    def _for_prepared(self, spec, tensors):
        """The same of a kernel that was prepared for `spec`."""
        if spec.mask != self.mask:
            raise InvalidArgumentError(
                f"block_mask: is of mask {self.mask}, and the kernel was prepared for {wanted_mask(spec.mask)}; "
                "prepare it with block_mask",
                "validate",
                "block_mask",
            )
        return self._for_call(spec.mask, spec.score, tensors)

    def _check_beside(self, mask, tensors):
        """Refuses a call's mask and tensors where they are others than those of this."""
        if mask is not None and mask not in (self.mask, self.within):
            raise InvalidArgumentError(
                f"block_mask: was made of mask {self.within}, and the call's mask is {mask}; make it of that one, or "
                "leave mask out",
                "validate",
                "block_mask",
            )
        for name, array in (tensors or {}).items():
            if self.read.get(name, self.tensors.get(name, array)) is not array:
                raise InvalidArgumentError(
                    f"{name}: is not the array that the block mask was made with; leave it out", "validate", name
                )

    def _together(self, own, score, tensors):
        """The tensors `own` of a mask, and of a call's those that are no mask's, or that the score reads, too."""
        known, of_score = self.tensors.keys() | self.read.keys(), getattr(score, "tensors", ())
        given = (tensors or {}).items()
        return own | {name: array for name, array in given if name not in known or name in of_score}

    def _spec_over(self, spec):
        """`spec` with the mask over the table."""
        self._check_beside(spec.mask, None)
        return dataclasses.replace(spec, mask=self.mask)

    def _check(self, seqlen_q, seqlen_k, batch, heads, lengths):
        """Refuses calls of other sizes. A length below 0: sequences are varlen. `lengths`: names and arrays of the
        call, those of LENGTHS among them."""
        for name in LENGTHS:
            if name in self.lengths and name not in lengths:
                _refuse(f"was made with {name}, and the call is without", f"give it, or make one without {name}")
            if name in lengths and name not in self.lengths:
                if name.startswith("cu_seqlens") or goes_by_lengths(self.within):
                    _refuse(f"was made without {name}, and the call is with", f"make one with the same {name}")
        for name, length, own in (("seqlen_q", seqlen_q, self.seqlen_q), ("seqlen_k", seqlen_k, self.seqlen_k)):
            if 0 <= length != own:
                _refuse(f"was made for {name} {own}, and the call has {length}")
        for name, own, called in (("batch", self.batch, batch), ("heads_q", self.heads, heads)):
            if own is not None and own != called:
                _refuse(f"was made for {name} {own}, and the call has {called}")
        for name, made in self.lengths.items():
            _check_same(name, made, lengths[name])


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
            the mask; gradients evaluate it. True: all blocks of a table, 1/8 byte per score. A number: the first so
            many partial blocks of a table, row by row. None: True if the mask reads arrays, calls run on Hopper
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
    return _made(
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


@functools.lru_cache(maxsize=256, typed=True)
def _mask_over(block_q, block_kv, within, scores):
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


def _made(
    like, like_name, *, mask, block_size, batch, heads, seqlen_q, seqlen_k, tensors, scores, heads_q=0, **arrays
):
    """A BlockMask; `batch` and `heads` are None where one table is for all. Errors call `like` by `like_name`."""
    block_q, block_kv = block_size = wanted_block_size(block_size)
    blocks = _blocks_with_scores(block_size, seqlen_q, seqlen_k, arrays.get("indices"))
    if scores is None:
        tables = (1 if batch is None else batch) * (1 if heads is None else heads)
        scores = _pay(mask, like, like_name, tables * blocks * block_q * block_kv // 8)
    room = blocks * scores if isinstance(scores, bool) else wanted_whole("scores", scores, 1)
    over = _mask_over(block_q, block_kv, mask, scores)
    given = dict(tensors or {})
    try:
        made = _core.make_block_mask(
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
    return BlockMask(
        table=made[0],
        block_size=block_size,
        seqlen_q=seqlen_q,
        seqlen_k=seqlen_k,
        batch=batch,
        heads=heads,
        within=mask,
        mask=over,
        tensors=({} if scores is True else given) | dict(zip(("block_mask", "block_places", "block_scores"), made)),
        scores=scores,
        read=given,
        lengths={
            name: array.copy() if are_numpys(array) else None
            for name in LENGTHS
            if (array := arrays.get(name)) is not None
        },
    )


def _check_same(name, made, called):
    """Refuses lengths that hold something else than when the table was made, where both are NumPy's."""
    if made is None or not are_numpys(called) or made.shape != called.shape:  # another shape is refused by its name
        return
    other = _lists.first_of(made != called)
    if other is not None:
        place = _lists.place_of(other)
        _refuse(f"was made with {made[other]} at {place} of {name}, and the call has {called[other]} there")


def _refuse(reason, remedy="make one of that call's arrays"):
    raise InvalidArgumentError(f"block_mask: {reason}; {remedy}", "validate", "block_mask")
