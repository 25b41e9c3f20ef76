"""What happens to a score (softmax_scale · q·k, in natural units) before the softmax.

Scores are values: build them with the functions of this module, chain them with ``then``. ``str(score)`` is text that
`parse` reads back.

    softcap(30.0).then(alibi())
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from . import _core, functor
from .errors import InvalidSpecError
from .functor import FunctorText, joined_texts


@dataclass(frozen=True)
class Score:
    """A change of scores. Immutable, hashable, can be pickled; equal when text and texts are.

    Attributes:
        text: the score in words that `parse` knows, such as ``"softcap(30), alibi"``.
        texts: the texts of the user that it names.
    """

    text: str = "none"
    texts: tuple[FunctorText, ...] = ()

    def __post_init__(self):
        if not functor.being_traced():  # else it is only text, and checked when it is used
            object.__setattr__(self, "text", self._native.text)  # as the library writes it

    @functools.cached_property
    def _native(self):
        return _core.parse_score(self.text, self.texts)

    @property
    def tensors(self) -> dict[str, str]:
        """Names and element types of the arrays that a call must be given."""
        return dict(self._native.tensors)

    def then(self, other: Score) -> Score:
        """First this, then ``other``."""
        if not isinstance(other, Score):
            raise TypeError(f"then() takes a Score, not a {type(other).__name__}")
        return Score(f"{self.text}, {other.text}", joined_texts(self.texts, other.texts))

    def __str__(self):
        return self.text

    def __reduce__(self):
        return Score, (self.text, self.texts)


def none() -> Score:
    """The score as it is."""
    return Score()


def softcap(cap: float) -> Score:
    """cap · tanh(score / cap). Raises InvalidSpecError unless cap is positive and finite."""
    if isinstance(cap, (str, bool)):
        raise TypeError(f"cap must be a number, not {cap!r}")
    if not sys.float_info.min < float(cap) < math.inf:
        raise InvalidSpecError(f"cap: is {cap}; it must be positive and finite", "validate", "cap")
    return Score(f"softcap({float(cap)!r})")


def alibi() -> Score:
    """score − slope · |q + seqlen_kv − seqlen_q − k|.

    fp32 array "alibi_slopes" (heads_q) or (batch, heads_q) in each call.
    """
    return Score("alibi")


def bias(dtype: str = "fp32") -> Score:
    """score + bias[b, h, q, k].

    Array "bias" (batch, heads_q, seqlen_q, seqlen_kv) of this dtype ("fp32", "bf16" or "fp16") in each call; its last
    stride is 1, each of its first three sizes may be 1. −inf drops a key. Raises InvalidSpecError for another dtype.
    """
    kind = functor.element_type(dtype)
    if kind not in ("fp32", "bf16", "fp16"):
        raise InvalidSpecError(f'dtype: is {dtype!r}; it must be "fp32", "bf16" or "fp16"', "validate", "dtype")
    return Score(f"bias({kind})")


def text(
    body: str,
    *,
    name: str,
    constants: Mapping[str, bool | int | float] | None = None,
    tensors: Mapping[str, str] | None = None,
) -> Score:
    """A score of your own: the body of a C++ function that returns the new score.

        text("return score + table[h] * (q - k);", name="slopes", tensors={"table": "fp32"})

    `FunctorText` says what the text may use. Raises InvalidSpecError for what cannot become part of a kernel.
    """
    return Score(f"text({name})", (FunctorText(name, body, "", constants or {}, tensors or {}),))


def parse(text: str, texts: Iterable[FunctorText] = ()) -> Score:
    """Reads a chain: names with arguments, separated by commas.

    Names: none, softcap(cap), alibi, bias, bias(dtype), and text(name) for each of ``texts``. Raises
    InvalidArgumentError that points at the place and lists the names.
    """
    return Score(functor.wanted_text("text", text), tuple(texts))
