"""The type of block masks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .. import _core
from .._frameworks import copy_on_host
from .._keywords import Nothing, hides_unknown, refuse_unknown
from ..mask import Mask
from ..typing import Array, Stream
from . import calls
from .arguments import wanted_place
from .from_lists import made_of_lists, made_of_rows, made_of_torchs_lists
from .making import mask_over


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
        fields = made_of_lists(
            {"counts": counts, "indices": indices, "full_counts": full_counts, "full_indices": full_indices},
            seqlen_q=seqlen_q,
            seqlen_k=seqlen_k,
            block_size=block_size,
            mask=mask,
            batch=batch,
            heads_q=heads_q,
            tensors=tensors,
            scores=scores,
            stream=stream,
        )
        return cls(**fields)

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
        fields = made_of_rows(
            indptr,
            indices,
            seqlen_q=seqlen_q,
            seqlen_k=seqlen_k,
            block_size=block_size,
            mask=mask,
            batch=batch,
            heads_q=heads_q,
            like=like,
            tensors=tensors,
            scores=scores,
            stream=stream,
        )
        return cls(**fields)

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
            mask: The mask that equals its ``mask_mod``, a Python function that the library cannot read. Required if
                there are partial blocks; without it the call waits for the device to check that there are none.
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
            >>> from torch.nn.attention.flex_attention import create_block_mask
            >>> flex = create_block_mask(lambda b, h, q, k: q >= k, None, None, 256, 256, device="cpu")
            >>> table = ja.BlockMask.from_torch(flex, ja.mask.causal("top_left"))
            >>> table.show().counts
            {'full': 1, 'partial': 2, 'empty': 1}
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
        fields = made_of_torchs_lists(
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
        return cls(**fields)

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
            mask_over(*self.block_size, self.within, False),
            seqlen_q=self.seqlen_q,
            seqlen_kv=self.seqlen_k,
            batch=entry + 1 if self.batch is None else self.batch,
            heads_q=head + 1 if self.heads is None else self.heads,
            entry=entry,
            head=head,
            tensors={name: copy_on_host(array) for name, array in ({"block_mask": self.table} | self.read).items()},
            **others,
        )

    _for_call = calls.for_call
    _for_gradients = calls.for_gradients
    _for_prepared = calls.for_prepared
    _check = calls.check_sizes
    _spec_over = calls.spec_over
