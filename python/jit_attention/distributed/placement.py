"""The placement type: which rank computes which queries, and which other ranks' keys it needs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .._frameworks import copy_on_host
from ..errors import InvalidArgumentError


@dataclass(frozen=True, eq=False)
class Placement:
    """Which rank computes which queries of a sequence, and holds the keys at the same positions.

    Made by `balance`. A rank's shard has its rows by ascending position. Equal arguments give equal placements on every
    rank. Immutable, picklable; equal if all sizes, positions and needs are. Threads may share it.

    Attributes:
        seqlen: Queries, and as many keys.
        granule: Queries of a granule, of which shards are made; the last one may be shorter.
        runs: For each rank its positions, as (begin, end) of each run.
        kernel_pieces: For each rank the same as (row, position, run, stride), as `pieces` returns it.
        needs: For each rank the granules of keys that its queries need, own included, as (begin, end) of each run.
        remote: For each rank the number of keys that it needs of others.
        loads: For each rank the scores that its kernels compute.
        imbalance: The largest load in terms of the mean.
        documents: Lengths of the packed sequences that it was made for; empty: there is one.
        digest: 32 digits that differ if sizes, positions or needs do.
        own_rank: The rank of this process, if the placement was made with a group; methods take it where none is given.

    Examples:
        >>> placement = ja.distributed.balance(ja.mask.causal(), seqlen=1024, ranks=2)
        >>> placement.rows(0), placement.imbalance <= 1.02
        (512, True)
        >>> placement.shard(np.arange(1024), 0, rank=0).shape
        (512,)
    """

    seqlen: int
    granule: int
    runs: tuple[tuple[tuple[int, int], ...], ...]
    kernel_pieces: tuple[tuple[tuple[int, int, int, int], ...], ...] = field(repr=False)
    needs: tuple[tuple[tuple[int, int], ...], ...] = field(repr=False)
    remote: tuple[int, ...] = field(repr=False)
    loads: tuple[float, ...] = field(repr=False)
    imbalance: float
    documents: tuple[int, ...] = field(repr=False)
    digest: str
    picture: str = field(repr=False)
    own_rank: int | None = field(default=None, repr=False)
    written: Any = field(default=None, init=False, repr=False)  # the argument for PyTorch operators

    def __post_init__(self) -> None:
        if sys.modules.get("torch") is not None:  # else it is written at the first call, which a compiler could not do
            from .written import written

            object.__setattr__(self, "written", written(self))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Placement):
            return NotImplemented
        return (self.digest, self.documents) == (other.digest, other.documents)

    def __hash__(self) -> int:
        return hash(self.digest)

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return len(self.runs)

    def rows(self, rank: int | None = None) -> int:
        """Returns the number of queries of a rank, equal to its number of keys."""
        return sum(end - begin for begin, end in self.runs[self._rank(rank)])

    def remote_bytes(self, rank: int | None = None, *, heads_kv: int, head_dim: int, head_dim_v: int | None = None,
                     itemsize: int = 2) -> int:
        """Returns how many bytes of keys and values a rank copies from others.

        Args:
            rank: The rank. None: that of this process.
            heads_kv: KV heads.
            head_dim: Elements of a key.
            head_dim_v: Elements of a value. None: as many.
            itemsize: Bytes of an element.
        """
        elements = heads_kv * (head_dim + (head_dim if head_dim_v is None else head_dim_v))
        return self.remote[self._rank(rank)] * elements * itemsize

    def positions(self, rank: int | None = None, *, device: Any = None) -> Any:
        """Returns the position of each row of a rank's shard, for rotary embeddings.

        Args:
            rank: The rank. None: that of this process.
            device: A device of PyTorch. None: the result is NumPy's.

        Returns:
            int64 (rows).
        """
        runs = self.runs[self._rank(rank)]
        if device is not None:
            import torch

            parts = [torch.arange(begin, end, device=device) for begin, end in runs]
            return torch.cat(parts) if parts else torch.empty(0, dtype=torch.int64, device=device)
        import numpy

        return numpy.concatenate([numpy.arange(*run, dtype=numpy.int64) for run in runs] or [numpy.empty(0, "int64")])

    def pieces(self, rank: int | None = None) -> tuple[tuple[int, int, int, int], ...]:
        """Returns a rank's positions as kernels read them, `(row, position, run, stride)` for each piece.

        Row `row + i` stands at `position + (i // run) * stride + i % run`; a piece ends where the next one begins.
        """
        return self.kernel_pieces[self._rank(rank)]

    def shard(self, tensor: Any, dim: int, rank: int | None = None) -> Any:
        """Returns a rank's rows of a tensor of the whole sequence, dense.

        Args:
            tensor: PyTorch's or NumPy's, of `seqlen` along `dim`. PyTorch's have gradients.
            dim: The dimension of positions.
            rank: The rank. None: that of this process.

        Raises:
            InvalidArgumentError: The dimension has another size.
        """
        if tensor.shape[dim] != self.seqlen:
            raise InvalidArgumentError(f"tensor: has {tensor.shape[dim]} along dimension {dim}, and the placement is of "
                                       f"{self.seqlen} positions; give the whole sequence", "arguments", "tensor")
        parts = [_slice(tensor, dim, begin, end) for begin, end in self.runs[self._rank(rank)]]
        return _joined(parts or [_slice(tensor, dim, 0, 0)], dim)

    def unshard(self, shards: Sequence[Any], dim: int) -> Any:
        """Returns the whole of the shards of all ranks: the inverse of `shard`.

        Args:
            shards: The shard of each rank, in order.
            dim: The dimension of positions.

        Raises:
            InvalidArgumentError: A shard has another number of rows than its rank.
        """
        if len(shards) != self.ranks:
            raise InvalidArgumentError(f"shards: are {len(shards)}, and the placement is of {self.ranks} ranks",
                                       "arguments", "shards")
        parts = []
        for rank, shard in enumerate(shards):
            if shard.shape[dim] != self.rows(rank):
                raise InvalidArgumentError(f"shards: that of rank {rank} has {shard.shape[dim]} along dimension {dim}; "
                                           f"it must have {self.rows(rank)}", "arguments", "shards")
            row = 0
            for begin, end in self.runs[rank]:
                parts.append((begin, _slice(shard, dim, row, row + end - begin)))
                row += end - begin
        return _joined([part for _, part in sorted(parts, key=lambda pair: pair[0])], dim)

    def show(self) -> str:
        """Returns a picture as text, one line for each rank.

        ``#`` are own positions, ``-`` keys of others that the rank needs, ``.`` those that it does not, and ``+`` stands
        for own ones and others together.
        """
        return self.picture

    def _rank(self, rank: int | None) -> int:
        rank = self.own_rank if rank is None else rank
        if rank is None or not 0 <= rank < self.ranks:
            raise InvalidArgumentError(f"rank: is {rank}; it must be from 0 to {self.ranks - 1}, and may be left out "
                                       "only if balance was given a group", "arguments", "rank")
        return rank


def _slice(tensor: Any, dim: int, begin: int, end: int) -> Any:
    index = [slice(None)] * len(tensor.shape)
    index[dim] = slice(begin, end)
    return tensor[tuple(index)]


def _joined(parts: Sequence[Any], dim: int) -> Any:
    if "torch" in type(parts[0]).__module__:
        import torch

        return torch.cat(list(parts), dim)
    import numpy

    return numpy.concatenate(parts, dim)


def classes_of_blocks(block_mask: Any, seqlen: int) -> tuple[bytes, int]:
    """A block mask as a byte per block (0 empty, 1 partial, 2 full), row-major; and the blocks' side.

    A block is full, or empty, if it is for all batch entries and heads.
    """
    import numpy

    side, other = block_mask.block_size
    if side != other:
        raise InvalidArgumentError(f"block_mask: has blocks of {side} queries and {other} keys; they must be squares",
                                   "arguments", "block_mask")
    if (block_mask.seqlen_q, block_mask.seqlen_k) != (seqlen, seqlen):
        raise InvalidArgumentError(f"block_mask: is of {block_mask.seqlen_q} queries and {block_mask.seqlen_k} keys; "
                                   f"it must be of {seqlen} each", "arguments", "block_mask")
    rows = -(-seqlen // side)
    table = numpy.asarray(copy_on_host(block_mask.table)).view(numpy.uint32)
    words = table[..., : table.shape[-1] // 2 * 2].reshape(*table.shape[:-1], -1, 2)
    bits = (words[..., None] >> numpy.arange(32, dtype=numpy.uint32)) & 1  # (batch, heads, rows, words, 2, 32)
    seen, full = (bits[..., i, :].reshape(*table.shape[:-1], -1)[..., :rows].astype(bool) for i in (0, 1))
    classes = numpy.where((seen & full).all((0, 1)), 2, seen.any((0, 1)).astype("uint8"))
    return classes[:rows].astype("uint8").tobytes(), side
