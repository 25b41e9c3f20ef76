"""Scores: functions of softmax_scale · q·k (natural units) that are applied before the softmax.

Scores are immutable values. The functions of this module make them, and ``then`` chains them. ``str(score)`` is text
that `parse` reads. Threads may share scores.

    softcap(30.0).then(alibi())
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from . import _core, functor
from ._keywords import Nothing, hides_unknown, refuse_unknown
from .errors import InvalidSpecError
from .functor import Functor, FunctorText, joined_texts
from .typing import DTypeObject

__all__ = [
    "Score",
    "alibi",
    "bias",
    "none",
    "parse",
    "softcap",
    "text",
]


@dataclass(frozen=True)
class Score(Functor):
    """A function of scores. Immutable, hashable and picklable; equal if `text` and `texts` are.

    Attributes:
        text: The score as text, such as ``"softcap(30), alibi"``.
        texts: The C++ texts that it names.
    """

    _parse = staticmethod(_core.parse_score)

    def then(self, other: Score) -> Score:
        """Chains two scores: this one is applied first.

        Args:
            other: The score that is applied to the result of this one.

        Returns:
            Both, one after the other.

        Examples:
            >>> str(ja.score.softcap(30).then(ja.score.alibi()))
            'softcap(30), alibi'
        """
        if not isinstance(other, Score):
            raise TypeError(f"then() takes a Score, not a {type(other).__name__}")
        return Score(f"{self.text}, {other.text}", joined_texts(self.texts, other.texts))


def none() -> Score:
    """The score itself.

    Returns:
        The score.

    Examples:
        >>> str(ja.score.none())
        'none'
    """
    return Score()


@hides_unknown
def softcap(cap: float, **unknown: Nothing) -> Score:
    """cap · tanh(score / cap).

    Args:
        cap: The bound of scores, positive and finite.

    Returns:
        The score.

    Raises:
        InvalidSpecError: cap is not positive, or infinite.

    Examples:
        >>> str(ja.score.softcap(30))
        'softcap(30)'
    """
    if unknown:
        refuse_unknown(softcap, unknown)
    if isinstance(cap, (str, bool)):
        raise TypeError(f"cap must be a number, not {cap!r}")
    if not sys.float_info.min < float(cap) < math.inf:
        raise InvalidSpecError(f"cap: is {cap}; it must be positive and finite", "validate", "cap")
    return Score(f"softcap({float(cap)!r})")


def alibi() -> Score:
    """score − slope · |q + seqlen_kv − seqlen_q − k|, where q and k are the positions of query and key.

    Each call passes ``tensors={"alibi_slopes": …}``: fp32 (heads_q) or (batch, heads_q).

    Returns:
        The score.

    Examples:
        >>> ja.score.alibi().tensors
        {'alibi_slopes': 'fp32'}
    """
    return Score("alibi")


@hides_unknown
def bias(dtype: Literal["fp32", "bf16", "fp16"] | DTypeObject = "fp32", **unknown: Nothing) -> Score:
    """score + bias[b, h, q, k]. A bias of −inf drops the key.

    Each call passes ``tensors={"bias": …}``: (batch, heads_q, seqlen_q, seqlen_kv), where each of the first three
    sizes may be 1. The last stride is 1.

    Args:
        dtype: The element type of the bias: "fp32", "bf16" or "fp16".

    Returns:
        The score.

    Raises:
        InvalidSpecError: dtype is another one.

    Examples:
        >>> ja.score.bias("bf16").tensors
        {'bias': 'bf16'}
    """
    if unknown:
        refuse_unknown(bias, unknown)
    kind = functor.element_type(dtype)
    if kind not in ("fp32", "bf16", "fp16"):
        raise InvalidSpecError(f'dtype: is {dtype!r}; it must be "fp32", "bf16" or "fp16"', "validate", "dtype")
    return Score(f"bias({kind})")


@hides_unknown
def text(
    body: str,
    *,
    name: str,
    constants: Mapping[str, bool | int | float] | None = None,
    tensors: Mapping[str, str] | None = None,
    derivative: str = "",
    **unknown: Nothing,
) -> Score:
    """A score of your own: the body of a C++ function that returns the new score.

    `FunctorText` describes the names that the body may use. A body that returns −INFINITY drops the key; tiles that
    it drops as a whole are skipped, as with a mask.

    Args:
        body: The body, such as ``"return score + table[h] * (q - k);"``.
        name: Name of the score, in messages and in names of kernels.
        constants: Names and values that are compiled into the kernel.
        tensors: Names and element types of the arrays that each call passes.
        derivative: The body of a function that returns the derivative with respect to ``score``. Usually empty: the
            library differentiates the body.

    Returns:
        The score.

    Raises:
        InvalidSpecError: The text cannot become part of a kernel. Errors of the C++ compiler are raised by the first
            call.

    Examples:
        >>> slopes = ja.score.text("return score + table[h] * (q - k);", name="slopes", tensors={"table": "fp32"})
        >>> slopes.tensors
        {'table': 'fp32'}
        >>> own = ja.score.text("return score + weights[h] * j0f(score);", name="own", tensors={"weights": "fp32"},
        ...                     derivative="d_weights[h] += j0f(score); return 1 - weights[h] * j1f(score);")
        >>> str(own)
        'text(own)'
    """
    if unknown:
        refuse_unknown(text, unknown)
    return Score(f"text({name})", (FunctorText(name, body, "", constants or {}, tensors or {}, derivative),))


@hides_unknown
def parse(text: str, texts: Iterable[FunctorText] = (), **unknown: Nothing) -> Score:
    """Reads a score from text: names with arguments, separated by commas.

    Names: {names}, and text(name) for each of texts.

    Args:
        text: The score as text.
        texts: The C++ texts that it names.

    Returns:
        The score.

    Raises:
        InvalidArgumentError: The text cannot be read; the message points at the place and lists the names.

    Examples:
        >>> ja.score.parse("softcap(30), alibi") == ja.score.softcap(30).then(ja.score.alibi())
        True
    """
    if unknown:
        refuse_unknown(parse, unknown)
    return Score(functor.wanted_text("text", text), tuple(texts))


if parse.__doc__:  # none with python -OO
    parse.__doc__ = parse.__doc__.format(names=_core.functor_usages()[1])
