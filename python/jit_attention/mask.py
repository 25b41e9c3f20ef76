"""Which keys a query sees.

Masks are values: build them with the functions of this module, combine them with ``&`` (both keep), ``|`` (either
keeps) and ``~``. ``str(mask)`` is text that `parse` reads back.

    causal() & sliding_window(1024)
    causal() | prefix(64)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from . import _core, functor
from .errors import InvalidSpecError
from .functor import Functor, FunctorText, joined_texts


@dataclass(frozen=True)
class Mask(Functor):
    """Which keys a query sees; `text` such as ``"causal && sliding_window(1024)"``."""

    _parse = staticmethod(_core.parse_mask)

    def __and__(self, other: Mask) -> Mask:
        return self._joined("&&", other)

    def __or__(self, other: Mask) -> Mask:
        return self._joined("||", other)

    def __invert__(self) -> Mask:
        return Mask(f"!({self.text})", self.texts)

    def __bool__(self):
        raise TypeError("a mask is neither true nor false; combine masks with & | ~ instead of and, or, not")

    def show(self, *, seqlen_q: int, seqlen_kv: int, **others) -> _core.TileMap:
        """The tiles that this leaves of so many queries and keys, which notebooks show as a picture.

        others: as `jit_attention.tile_map` has them, such as tile_q, tile_kv and tensors. Raises InvalidArgumentError.
        """
        return _core.tile_map(self, seqlen_q=seqlen_q, seqlen_kv=seqlen_kv, **others)

    def _joined(self, operator, other):
        if not isinstance(other, Mask):
            return NotImplemented
        return Mask(f"({self.text}) {operator} ({other.text})", joined_texts(self.texts, other.texts))


def none() -> Mask:
    """Every query sees every key."""
    return Mask()


def causal(alignment: str = "bottom_right") -> Mask:
    """A query sees the keys up to its own position.

    alignment: where query 0 stands when seqlen_q and seqlen_kv differ: "bottom_right" (the last query stands at the
    last key) or "top_left" (query q stands at key q). Raises InvalidSpecError for another one.
    """
    return Mask(f"causal({_arguments(alignment)})" if alignment != "bottom_right" else "causal")


def causal_per_request() -> Mask:
    """The same for some requests of a batch; queries of others see all keys of theirs.

    int32 array "is_causal" (batch) in each call, not 0 for requests that are causal.
    """
    return Mask("causal_per_request")


def draft_tree() -> Mask:
    """The queries of a request are a draft, tokens that are verified in one call, often a tree of them.

    The last seqlen_q keys of a request are the draft's own. A query sees all keys before them, and of them those whose
    bits are set in its row: bit j % 32 of word j // 32 is that of key j of the draft. int32 array "draft_tree" in each
    call: (batch, seqlen_q, words), or (seqlen_q, words) for all, with at least seqlen_q / 32 words, rounded up; with
    ``cu_seqlens_q`` (total_q, words), with at least 1 word. A request there that has more queries than a row has bits
    is causal: chunks of prefill beside drafts.
    """
    return Mask("draft_tree")


def sliding_window(window_size_left: int, window_size_right: int = 0, alignment: str = "bottom_right") -> Mask:
    """A query sees ``window_size_left`` keys before its own position, itself, and ``window_size_right`` after it.

    −1 leaves a side open. These are flash-attention's counts; a ``sliding_window`` of w in Hugging Face counts the
    query's own key, too, and is ``sliding_window(w - 1)`` here. Raises InvalidSpecError below −1.
    """
    left = functor.wanted_whole("window_size_left", window_size_left)
    right = functor.wanted_whole("window_size_right", window_size_right)
    return Mask(f"sliding_window({_arguments(alignment, left, right)})")


def prefix(length: int) -> Mask:
    """Every query sees the first ``length`` keys and no others; combine it: ``causal() | prefix(64)``."""
    return Mask(f"prefix({functor.wanted_whole('length', length)})")


def prefix_lengths() -> Mask:
    """The same with a length per batch entry: int32 array "prefix_lengths" (batch) in each call."""
    return Mask("prefix_lengths")


def document() -> Mask:
    """A query sees the keys with its own document id.

    int32 arrays "document_ids_q" (batch, seqlen_q) and "document_ids_kv" (batch, seqlen_kv) in each call; a batch of
    1 holds for all. For self-attention give the same array twice.
    """
    return Mask("document")


def block_mask(block_q: int, block_kv: int, within: Mask | None = None) -> Mask:
    """A query sees of the keys that ``within`` keeps those whose blocks, of block_q by block_kv, a table has.

    int32 array "block_mask" in each call, which `jit_attention.block_mask` makes; giving its result as
    ``attention(..., block_mask=...)`` does all of this. Blocks that the table has not are skipped without asking
    ``within``. Raises InvalidSpecError unless both sides are multiples of 16 from 16 to 4096.
    """
    return _of_blocks("block_mask", block_q, block_kv, within)


def block_scores(block_q: int, block_kv: int, within: Mask | None = None) -> Mask:
    """The same, where what is kept of blocks that are seen in part is known: a bit for each of their scores.

    int32 arrays "block_mask", "block_places" and "block_scores" in each call, which ``jit_attention.block_mask(...,
    scores=True)`` makes. ``within`` is asked about blocks that have no bits. Raises InvalidSpecError as `block_mask` does.
    """
    return _of_blocks("block_scores", block_q, block_kv, within)


def _of_blocks(name, block_q, block_kv, within):
    sides = f"{functor.wanted_whole('block_q', block_q)}, {functor.wanted_whole('block_kv', block_kv)}"
    if within is None:
        return Mask(f"{name}({sides})")
    if not isinstance(within, Mask):
        raise TypeError(f"within must be a jit_attention.Mask or None, not a {type(within).__name__}")
    return Mask(f"{name}({sides}, {within.text})", within.texts)


def text(
    body: str,
    *,
    name: str,
    classify: str = "",
    constants: Mapping[str, bool | int | float] | None = None,
    tensors: Mapping[str, str] | None = None,
) -> Mask:
    """A mask of your own: the body of a C++ function that returns true for what is kept.

        text("return segment[b * seqlen_kv + k] == 0 || k < anchors;", name="anchored",
             constants={"anchors": 4}, tensors={"segment": "int32"})

    `FunctorText` says what the text may use. Raises InvalidSpecError for what cannot become part of a kernel.
    """
    return Mask(f"text({name})", (FunctorText(name, body, classify, constants or {}, tensors or {}),))


def parse(text: str, texts: Iterable[FunctorText] = ()) -> Mask:
    """Reads a mask: names with arguments, ``&&``, ``||``, ``!``, parentheses.

    Names: {names}, and text(name) for each of ``texts``.
    Raises InvalidArgumentError that points at the place and lists the names.
    """
    return Mask(functor.wanted_text("text", text), tuple(texts))


parse.__doc__ = parse.__doc__.format(names=_core.functor_usages()[0])


def _arguments(alignment, *numbers):
    if alignment not in ("bottom_right", "top_left"):
        raise InvalidSpecError(
            f'alignment: is {alignment!r}; it must be "bottom_right" or "top_left"', "validate", "alignment"
        )
    return ", ".join([str(number) for number in numbers] + ["top_left"] * (alignment == "top_left"))
