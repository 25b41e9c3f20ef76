"""What happens to a score (softmax_scale · q·k, in natural units) before the softmax.

Scores are values: build them with the functions of this module, chain them with ``then``. ``str(score)`` is text that
`parse` reads back.

    softcap(30.0).then(alibi())
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from . import _core, functor
from .errors import InvalidSpecError
from .functor import Functor, FunctorText, joined_texts


@dataclass(frozen=True)
class Score(Functor):
    """A change of scores; `text` such as ``"softcap(30), alibi"``."""

    _parse = staticmethod(_core.parse_score)

    def then(self, other: Score) -> Score:
        """First this, then ``other``."""
        if not isinstance(other, Score):
            raise TypeError(f"then() takes a Score, not a {type(other).__name__}")
        return Score(f"{self.text}, {other.text}", joined_texts(self.texts, other.texts))


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
    derivative: str = "",
) -> Score:
    """A score of your own: the body of a C++ function that returns the new score.

        text("return score + table[h] * (q - k);", name="slopes", tensors={"table": "fp32"})
        text("return k <= q ? 2 * score : -INFINITY;", name="causal")  # skips tiles as a mask does
        text("return score + weights[h] * j0f(score);", name="own", tensors={"weights": "fp32"},
             derivative="d_weights[h] += j0f(score); return 1 - weights[h] * j1f(score);")

    `FunctorText` says what the text may use. Raises InvalidSpecError for what cannot become part of a kernel.
    """
    return Score(f"text({name})", (FunctorText(name, body, "", constants or {}, tensors or {}, derivative),))


def parse(text: str, texts: Iterable[FunctorText] = ()) -> Score:
    """Reads a chain: names with arguments, separated by commas.

    Names: {names}, and text(name) for each of ``texts``.
    Raises InvalidArgumentError that points at the place and lists the names.
    """
    return Score(functor.wanted_text("text", text), tuple(texts))


parse.__doc__ = parse.__doc__.format(names=_core.functor_usages()[1])
