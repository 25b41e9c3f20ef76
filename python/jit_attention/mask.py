"""Masks: the keys that each query sees.

Masks are immutable values. The functions of this module make them; ``&`` (both masks keep the key), ``|`` (either one
does) and ``~`` combine them. ``str(mask)`` is text that `parse` reads. Threads may share masks.

    causal() & sliding_window(1024)
    causal() | prefix(64)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from . import _core, functor
from ._keywords import Nothing, hides_unknown, refuse_unknown
from .errors import InvalidSpecError
from .functor import Functor, FunctorText, joined_texts
from .typing import Alignment

__all__ = [
    "Mask",
    "block_mask",
    "block_scores",
    "causal",
    "causal_per_request",
    "document",
    "draft_tree",
    "none",
    "parse",
    "prefix",
    "prefix_lengths",
    "sliding_window",
    "text",
    "tree",
]


@dataclass(frozen=True)
class Mask(Functor):
    """The keys that each query sees. Immutable, hashable and picklable; equal if `text` and `texts` are.

    Attributes:
        text: The mask as text, such as ``"causal && sliding_window(1024)"``.
        texts: The C++ texts that it names.

    Examples:
        >>> mask = ja.mask.causal() & ~ja.mask.prefix(64)
        >>> str(mask)
        'causal && !prefix(64)'
        >>> mask == ja.mask.parse(str(mask))
        True
    """

    _parse = staticmethod(_core.parse_mask)

    def __and__(self, other: Mask) -> Mask:
        return self._joined("&&", other)

    def __or__(self, other: Mask) -> Mask:
        return self._joined("||", other)

    def __invert__(self) -> Mask:
        return Mask(f"!({self.text})", self.texts)

    def __bool__(self) -> bool:
        raise TypeError("a mask is neither true nor false; combine masks with & | ~ instead of and, or, not")

    def show(self, *, seqlen_q: int, seqlen_kv: int, **others: Any) -> _core.TileMap:
        """Classifies the tiles of scores that this mask keeps; notebooks show the result as a picture.

        Args:
            seqlen_q: Number of queries.
            seqlen_kv: Number of keys.
            others: Other arguments of `jit_attention.tile_map`, such as tile_q, tile_kv and tensors.

        Returns:
            The classes of the tiles.

        Raises:
            InvalidArgumentError: An argument is wrong.

        Examples:
            >>> ja.mask.causal().show(seqlen_q=256, seqlen_kv=256).counts
            {'full': 1, 'partial': 2, 'empty': 1}
        """
        return _core.tile_map(self, seqlen_q=seqlen_q, seqlen_kv=seqlen_kv, **others)

    def _joined(self, operator: str, other: object) -> Mask:
        if not isinstance(other, Mask):
            return NotImplemented
        return Mask(f"({self.text}) {operator} ({other.text})", joined_texts(self.texts, other.texts))


def none() -> Mask:
    """Every query sees every key.

    Returns:
        The mask.

    Examples:
        >>> str(ja.mask.none())
        'none'
    """
    return Mask()


@hides_unknown
def causal(alignment: Alignment = "bottom_right", **unknown: Nothing) -> Mask:
    """A query sees the keys up to its own position.

    Args:
        alignment: The position of query i if seqlen_q and seqlen_kv differ. "bottom_right": key i + seqlen_kv −
            seqlen_q, so that the last query sees all keys. "top_left": key i.

    Returns:
        The mask.

    Raises:
        InvalidSpecError: The alignment is another one.

    Examples:
        >>> str(ja.mask.causal("top_left"))
        'causal(top_left)'
    """
    if unknown:
        refuse_unknown(causal, unknown)
    return Mask(f"causal({_arguments(alignment)})" if alignment != "bottom_right" else "causal")


def causal_per_request() -> Mask:
    """Some batch entries are causal; queries of the others see all keys.

    Each call passes ``tensors={"is_causal": …}``: int32 (batch), not 0 for the entries that are causal.

    Returns:
        The mask.

    Examples:
        >>> ja.mask.causal_per_request().tensors
        {'is_causal': 'int32'}
    """
    return Mask("causal_per_request")


def draft_tree() -> Mask:
    """The queries of a sequence are a draft, often a tree of tokens, that one call verifies (speculative decoding).

    The last seqlen_q keys of a sequence are the draft's own. A query sees all earlier keys, and draft key j if bit
    j % 32 of word j // 32 in the query's row is set.

    Each call passes ``tensors={"draft_tree": …}``: int32 (batch, seqlen_q, words), or (seqlen_q, words) for all batch
    entries, with words ≥ seqlen_q / 32; with ``cu_seqlens_q`` (total_q, words), with words ≥ 1. A sequence that has
    more queries than a row has bits is causal, so that chunks of prefill and drafts fit into one batch.

    Returns:
        The mask.

    Examples:
        >>> ja.mask.draft_tree().tensors
        {'draft_tree': 'int32'}
    """
    return Mask("draft_tree")


@hides_unknown
def sliding_window(
    window_size_left: int, window_size_right: int = 0, alignment: Alignment = "bottom_right", **unknown: Nothing
) -> Mask:
    """A query sees the key at its own position, window_size_left keys before it and window_size_right keys after it.

    These are flash-attention's numbers: a ``sliding_window`` of w in Hugging Face Transformers, which counts the
    query's own key, is ``sliding_window(w - 1)``.

    Args:
        window_size_left: Number of keys before the query's position; −1: all.
        window_size_right: Number of keys after the query's position; −1: all.
        alignment: The position of a query, as in `causal`.

    Returns:
        The mask.

    Raises:
        InvalidSpecError: A number is below −1, or the alignment is another one.

    Examples:
        >>> str(ja.mask.sliding_window(1023))
        'sliding_window(1023)'
    """
    if unknown:
        refuse_unknown(sliding_window, unknown)
    left = functor.wanted_whole("window_size_left", window_size_left)
    right = functor.wanted_whole("window_size_right", window_size_right)
    return Mask(f"sliding_window({_arguments(alignment, left, right)})")


@hides_unknown
def prefix(length: int, **unknown: Nothing) -> Mask:
    """Every query sees the first keys, and no others. It is used in combinations: ``causal() | prefix(64)``.

    Args:
        length: Number of keys.

    Returns:
        The mask.

    Raises:
        InvalidSpecError: The length is negative or too large.

    Examples:
        >>> str(ja.mask.causal() | ja.mask.prefix(64))
        'causal || prefix(64)'
    """
    if unknown:
        refuse_unknown(prefix, unknown)
    return Mask(f"prefix({functor.wanted_whole('length', length)})")


def prefix_lengths() -> Mask:
    """Every query sees the first keys of its batch entry, with a length for each entry.

    Each call passes ``tensors={"prefix_lengths": …}``: int32 (batch).

    Returns:
        The mask.

    Examples:
        >>> ja.mask.prefix_lengths().tensors
        {'prefix_lengths': 'int32'}
    """
    return Mask("prefix_lengths")


def document() -> Mask:
    """A query sees the keys of its own document.

    Each call passes ``tensors={"document_ids_q": …, "document_ids_kv": …}``: int32 (batch, seqlen_q) and
    (batch, seqlen_kv); a batch of 1 holds for all entries. For self-attention pass the same array twice.

    Returns:
        The mask.

    Examples:
        >>> sorted(ja.mask.document().tensors)
        ['document_ids_kv', 'document_ids_q']
    """
    return Mask("document")


def tree() -> Mask:
    """Sequences that share prefixes, such as the answers to a prompt, packed depth first.

    A token precedes its subtree, all tokens that continue it. A query at position p = q + seqlen_kv − seqlen_q sees
    key k if ``k <= p < tree_ends[k]``. `jit_attention.tree` makes the ends.

    Each call passes ``tensors={"tree_ends": …}``: int32 (batch, seqlen_kv), where a batch of 1 serves all entries;
    with ``cu_seqlens_k`` (total_k), counted from the first key of the sequence. Any values are safe, and checked calls
    refuse those that are not nested: a key with an end at or before it is never seen. A sliding window combined with
    this mask counts packed rows, not tokens of a path.

    Returns:
        The mask.

    Examples:
        >>> ja.mask.tree().tensors
        {'tree_ends': 'int32'}
    """
    return Mask("tree")


@hides_unknown
def block_mask(block_q: int, block_kv: int, within: Mask | None = None, **unknown: Nothing) -> Mask:
    """A query sees a key if a table contains their block and another mask keeps the key.

    `jit_attention.block_mask` makes the table, and ``attention(..., block_mask=...)`` passes this mask and the table;
    this function is for specs. Blocks that the table does not contain are skipped. Each call passes
    ``tensors={"block_mask": …}``: int32, the table.

    Args:
        block_q: Queries of a block: a multiple of 16 from 16 to 4096.
        block_kv: Keys of a block: a multiple of 16 from 16 to 4096.
        within: The mask within the blocks. None: all keys of these blocks are seen.

    Returns:
        The mask.

    Raises:
        InvalidSpecError: A size of the block is another one.

    Examples:
        >>> str(ja.mask.block_mask(128, 128, ja.mask.causal()))
        'block_mask(128, 128, causal)'
    """
    if unknown:
        refuse_unknown(block_mask, unknown)
    return _of_blocks("block_mask", block_q, block_kv, within)


@hides_unknown
def block_scores(block_q: int, block_kv: int, within: Mask | None = None, **unknown: Nothing) -> Mask:
    """A block mask with mask bits: partial blocks of the table have one bit per score that says whether it is kept.

    ``jit_attention.block_mask(..., scores=True)`` makes the arrays. Each call passes int32 tensors "block_mask",
    "block_places" and "block_scores".

    Args:
        block_q: Queries of a block: a multiple of 16 from 16 to 4096.
        block_kv: Keys of a block: a multiple of 16 from 16 to 4096.
        within: The mask within partial blocks that have no bits. None: all keys of these blocks are seen.

    Returns:
        The mask.

    Raises:
        InvalidSpecError: A size of the block is another one.

    Examples:
        >>> sorted(ja.mask.block_scores(128, 128).tensors)
        ['block_mask', 'block_places', 'block_scores']
    """
    if unknown:
        refuse_unknown(block_scores, unknown)
    return _of_blocks("block_scores", block_q, block_kv, within)


def _of_blocks(name: str, block_q: int, block_kv: int, within: Mask | None) -> Mask:
    sides = f"{functor.wanted_whole('block_q', block_q)}, {functor.wanted_whole('block_kv', block_kv)}"
    if within is None:
        return Mask(f"{name}({sides})")
    if not isinstance(within, Mask):
        raise TypeError(f"within must be a jit_attention.Mask or None, not a {type(within).__name__}")
    return Mask(f"{name}({sides}, {within.text})", within.texts)


@hides_unknown
def text(
    body: str,
    *,
    name: str,
    classify: str = "",
    constants: Mapping[str, bool | int | float] | None = None,
    tensors: Mapping[str, str] | None = None,
    **unknown: Nothing,
) -> Mask:
    """A mask of your own: the body of a C++ function that returns true for the keys that a query sees.

    `FunctorText` describes the names that the body may use.

    Args:
        body: The body, such as ``"return q >= k;"``.
        name: Name of the mask, in messages and in names of kernels.
        classify: The body of a function that classifies a tile of scores, as in `FunctorText`. Usually empty.
        constants: Names and values that are compiled into the kernel.
        tensors: Names and element types of the arrays that each call passes.

    Returns:
        The mask.

    Raises:
        InvalidSpecError: The text cannot become part of a kernel. Errors of the C++ compiler are raised by the first
            call.

    Examples:
        >>> anchored = ja.mask.text("return segment[b * seqlen_kv + k] == 0 || k < anchors;", name="anchored",
        ...                         constants={"anchors": 4}, tensors={"segment": "int32"})
        >>> str(anchored), anchored.tensors
        ('text(anchored)', {'segment': 'int32'})
    """
    if unknown:
        refuse_unknown(text, unknown)
    return Mask(f"text({name})", (FunctorText(name, body, classify, constants or {}, tensors or {}),))


@hides_unknown
def parse(text: str, texts: Iterable[FunctorText] = (), **unknown: Nothing) -> Mask:
    """Reads a mask from text: names with arguments, ``&``, ``|``, ``~`` (or ``&&``, ``||``, ``!``), and parentheses.

    Names: {names}, and text(name) for each of texts.

    Args:
        text: The mask as text.
        texts: The C++ texts that it names.

    Returns:
        The mask.

    Raises:
        InvalidArgumentError: The text cannot be read; the message points at the place and lists the names.

    Examples:
        >>> str(ja.mask.parse("causal & sliding_window(1023)"))
        'causal && sliding_window(1023)'
    """
    if unknown:
        refuse_unknown(parse, unknown)
    return Mask(functor.wanted_text("text", text), tuple(texts))


if parse.__doc__:  # none with python -OO
    parse.__doc__ = parse.__doc__.format(names=_core.functor_usages()[0])


def _arguments(alignment: str, *numbers: int) -> str:
    if alignment not in ("bottom_right", "top_left"):
        raise InvalidSpecError(
            f'alignment: is {alignment!r}; it must be "bottom_right" or "top_left"', "validate", "alignment"
        )
    return ", ".join([str(number) for number in numbers] + ["top_left"] * (alignment == "top_left"))
