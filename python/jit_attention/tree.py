"""Trees of sequences that share prefixes, such as a prompt and its sampled answers.

A segment is a run of tokens without a branch. Packed depth first, each token is stored and computed once;
`jit_attention.mask.tree` masks the other paths. The same tokens may be stored in pages, with one request per segment.

    tree = ja.tree([1000, 200, 300], [-1, 0, 0])  # a prompt and two answers
    o = ja.attention(q, k, v, mask=ja.mask.tree(), tensors={"tree_ends": tree.ends[None]})
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ._keywords import Nothing, hides_unknown, refuse_unknown
from .errors import InvalidArgumentError

__all__ = ["Tree", "TreePages", "tree"]

_MOST_ROWS = 2**31 - 1


@dataclass(frozen=True, eq=False)
class TreePages:
    """A tree in pages: the arguments of `jit_attention.attention` with one request per segment.

    A segment's keys are those of its ancestors and its own. Full pages of ancestors are shared; a segment that begins
    inside a page copies that page. Arrays are NumPy's.

    Attributes:
        rows: int64 (pages, page_size): the packed row of each slot of each page, so that ``k[rows]`` has the keys in
            pages. Unused slots at the end of a page repeat a row.
        page_table: int32 (segments, max_pages), of segments in packed order.
        seqused_k: int32 (segments): keys of each segment and its ancestors.
        cu_seqlens_q: int32 (segments + 1): the first packed row of each segment's queries.
        max_seqlen_q: Queries of the longest segment.
    """

    rows: Any
    page_table: Any
    seqused_k: Any
    cu_seqlens_q: Any
    max_seqlen_q: int


@dataclass(frozen=True, eq=False)
class Tree:
    """Where the tokens of a tree stand. Made by `tree`; arrays are NumPy's. Immutable; threads may share it.

    Attributes:
        lengths: Tokens of each segment.
        parents: The segment that each one continues; −1: none.
        order: Segments as they are packed: depth first, children by ascending number.
        starts: The first packed row of each segment.
        ends: int32 (tokens): one past the last row of each token's subtree, the mask's tensor "tree_ends".
        positions: int32 (tokens): each token's position on its path, for rotary embeddings.
        previous: int64 (tokens): the row whose logits predict each token; −1 where a path begins.
        leaves: Segments that no other continues, in packed order.

    Examples:
        >>> tree = ja.tree([3, 2, 1], [-1, 0, 0])
        >>> tree.ends.tolist(), tree.positions.tolist(), tree.previous.tolist()
        ([6, 6, 6, 5, 5, 6], [0, 1, 2, 3, 4, 3], [-1, 0, 1, 2, 3, 2])
        >>> tree.leaves, tree.path(2).tolist()
        ((1, 2), [0, 1, 2, 5])
    """

    lengths: tuple[int, ...]
    parents: tuple[int, ...]
    order: tuple[int, ...]
    starts: tuple[int, ...]
    ends: Any
    positions: Any
    previous: Any
    leaves: tuple[int, ...]

    def rows(self, segment: int) -> Any:
        """Returns the packed rows of a segment's own tokens.

        Args:
            segment: Its number.

        Returns:
            int64 (tokens of the segment).

        Raises:
            InvalidArgumentError: There is no such segment.

        Examples:
            >>> ja.tree([3, 2, 1], [-1, 0, 0]).rows(1).tolist()
            [3, 4]
        """
        import numpy

        self._check(segment)
        start = self.starts[segment]
        return numpy.arange(start, start + self.lengths[segment], dtype=numpy.int64)

    def path(self, segment: int) -> Any:
        """Returns the packed rows of a segment and its ancestors, first tokens first: the sequence that ends with it.

        Args:
            segment: Its number.

        Returns:
            int64 (tokens of the path).

        Raises:
            InvalidArgumentError: There is no such segment.

        Examples:
            >>> ja.tree([3, 2, 1], [-1, 0, 0]).path(2).tolist()
            [0, 1, 2, 5]
        """
        import numpy

        self._check(segment)
        parts = []
        while segment >= 0:
            parts.append(self.rows(segment))
            segment = self.parents[segment]
        return numpy.concatenate(parts[::-1])

    def logprob_rows(self) -> tuple[Any, Any, Any]:
        """Returns which logits predict which tokens, for the logprobs of all sequences that end with a leaf.

        Row `source[i]` of the logits predicts packed token `token[i]`; leaf j has the indices i from `offsets[j]` up
        to `offsets[j + 1]`. Compute the logprob of each row once, by `previous`, and gather.

        Returns:
            source int64, token int64 and offsets int64 (leaves + 1).

        Examples:
            >>> [x.tolist() for x in ja.tree([3, 2, 1], [-1, 0, 0]).logprob_rows()]
            [[0, 1, 2, 3, 0, 1, 2], [1, 2, 3, 4, 1, 2, 5], [0, 4, 7]]
        """
        import numpy

        tokens = [path[self.previous[path] >= 0] for path in map(self.path, self.leaves)]
        token = numpy.concatenate([numpy.empty(0, numpy.int64), *tokens])
        offsets = numpy.cumsum([0, *map(len, tokens)], dtype=numpy.int64)
        return self.previous[token], token, offsets

    def _check(self, segment: int) -> None:
        if not 0 <= segment < len(self.lengths):
            raise _refusal("segment", f"is {segment}, and the tree has {len(self.lengths)}")

    @hides_unknown
    def pages(self, page_size: int, **unknown: Nothing) -> TreePages:
        """Lays the tree's keys into pages, with a request for each segment.

        With `split_keys`, o and LSE over these pages are bitwise identical to those of a rollout over pages, unlike
        those over the packed tokens, because each token's ancestors have their positions of the rollout. Pass them to
        `jit_attention.attention_backward` over the packed tensors, with `jit_attention.mask.tree`.

        Args:
            page_size: Keys of a page.

        Returns:
            The pages and their page table. Queries and o stay packed.

        Raises:
            InvalidArgumentError: The page size is below 1.

        Examples:
            >>> pages = ja.tree([3, 2, 1], [-1, 0, 0]).pages(2)
            >>> pages.page_table.tolist(), pages.seqused_k.tolist()
            ([[0, 1, 0], [0, 2, 3], [0, 4, 0]], [3, 5, 4])
            >>> pages.rows.tolist()
            [[0, 1], [2, 2], [2, 3], [4, 4], [2, 5]]
        """
        if unknown:
            refuse_unknown(Tree.pages, unknown)
        import numpy

        page_size = operator.index(page_size)
        if page_size < 1:
            raise InvalidArgumentError(f"page_size: is {page_size}; it must be at least 1", "arguments", "page_size")
        tables: dict[int, list[int]] = {-1: []}
        rows, used = [], []
        for segment in self.order:
            path = self.path(segment)
            used.append(len(path))
            table = list(tables[self.parents[segment]])
            if self.lengths[segment]:
                del table[(len(path) - self.lengths[segment]) // page_size :]
            for begin in range(len(table) * page_size, len(path), page_size):
                table.append(len(rows))
                page = path[begin : begin + page_size]
                rows.append(numpy.pad(page, (0, page_size - len(page)), mode="edge"))
            tables[segment] = table
        most = max(map(len, tables.values()))
        page_table = [tables[segment] + [0] * (most - len(tables[segment])) for segment in self.order]
        own = [self.lengths[segment] for segment in self.order]
        return TreePages(
            numpy.array(rows, numpy.int64).reshape(-1, page_size),
            numpy.array(page_table, numpy.int32).reshape(len(own), most),
            numpy.array(used, numpy.int32),
            numpy.cumsum([0, *own], dtype=numpy.int32),
            max(own, default=0),
        )


@hides_unknown
def tree(lengths: Sequence[int], parents: Sequence[int], **unknown: Nothing) -> Tree:
    """Packs segments of tokens that continue one another, depth first.

    Args:
        lengths: Tokens of each segment, at least 0.
        parents: For each segment the number of its parent, or −1 if it begins a sequence. In any order; several
            segments may begin sequences.

    Returns:
        The packed layout, with the arrays for mask, positions, logprobs and pages.

    Raises:
        InvalidArgumentError: There are not as many parents as lengths, a number is out of range, segments continue each
            other in a circle, or there are more than 2^31 − 1 tokens.

    Thread safety:
        Any number of threads may call at the same time.

    Examples:
        >>> tree = ja.tree([4, 2, 2, 3], [-1, 0, 0, 2])
        >>> tree.order, tree.ends.tolist()
        ((0, 1, 2, 3), [11, 11, 11, 11, 6, 6, 11, 11, 11, 11, 11])
    """
    if unknown:
        refuse_unknown(tree, unknown)
    import numpy

    own, above = tuple(map(operator.index, lengths)), tuple(map(operator.index, parents))
    if len(own) != len(above):
        raise _refusal("parents", f"has {len(above)} numbers, and lengths {len(own)}; each segment has one of each")
    children: list[list[int]] = [[] for _ in range(len(own) + 1)]  # the last: of none
    for segment, (length, parent) in enumerate(zip(own, above)):
        if length < 0:
            raise _refusal("lengths", f"has {length} for segment {segment}; it must be at least 0")
        if not -1 <= parent < len(own):
            raise _refusal("parents", f"has {parent} for segment {segment}; it must be from −1 to {len(own) - 1}")
        children[parent].append(segment)
    if sum(own) > _MOST_ROWS:
        raise _refusal("lengths", f"have {sum(own)} tokens together; they must have at most 2^31 − 1")

    order: list[int] = []
    open_segments = children[-1][::-1]
    while open_segments:
        order.append(open_segments.pop())
        open_segments += children[order[-1]][::-1]
    if len(order) < len(own):
        lost = min(set(range(len(own))) - set(order))
        raise _refusal("parents", f"lead from segment {lost} in a circle; paths must begin at a segment whose parent is −1")

    starts, last = [0] * len(own), [-1] * (len(own) + 1)  # last[i]: the last row of the path up to segment i
    positions, previous = numpy.empty(sum(own), numpy.int32), numpy.empty(sum(own), numpy.int64)
    before = [0] * (len(own) + 1)
    row = 0
    for segment in order:
        parent, length = above[segment], own[segment]
        starts[segment] = row
        here = slice(row, row + length)
        positions[here] = numpy.arange(before[parent], before[parent] + length)
        previous[here] = numpy.arange(row - 1, row + length - 1)
        if length:
            previous[row] = last[parent]
        row += length
        last[segment] = row - 1 if length else last[parent]
        before[segment] = before[parent] + length
    ends = numpy.empty(row, numpy.int32)
    behind = [starts[segment] + own[segment] for segment in range(len(own))]
    for segment in reversed(order):
        ends[starts[segment] : starts[segment] + own[segment]] = behind[segment]
        if above[segment] >= 0:
            behind[above[segment]] = max(behind[above[segment]], behind[segment])
    leaves = tuple(segment for segment in order if not children[segment])
    return Tree(own, above, tuple(order), tuple(starts), ends, positions, previous, leaves)


def _refusal(name: str, message: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"{name}: {message}", "arguments", name)
