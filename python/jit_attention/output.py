"""Output functors: functions of o, in fp32 before it is rounded, that kernels apply where they write it.

They are immutable values. The functions of this module make them, and ``then`` chains them. ``str(output)`` is text that
`parse` reads. Threads may share them.

    sigmoid_gate().then(residual())
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from . import _core, functor
from ._keywords import Nothing, hides_unknown, refuse_unknown
from .errors import InvalidSpecError
from .functor import Functor, FunctorText, joined_texts
from .typing import DTypeObject

__all__ = [
    "OutputFunctor",
    "none",
    "parse",
    "residual",
    "row_gate",
    "scale",
    "sigmoid_gate",
    "text",
]

_Float = Literal["fp32", "bf16", "fp16"] | DTypeObject


@dataclass(frozen=True)
class OutputFunctor(Functor):
    """A function of o. Immutable, hashable and picklable; equal if `text` and `texts` are.

    Attributes:
        text: The output functor as text, such as ``"sigmoid_gate, residual"``.
        texts: The C++ texts that it names.
    """

    _parse = staticmethod(_core.parse_output)

    def then(self, other: OutputFunctor) -> OutputFunctor:
        """Chains two output functors: this one is applied first.

        Args:
            other: The one that is applied to the result of this one.

        Returns:
            Both, one after the other.

        Examples:
            >>> str(ja.output.sigmoid_gate().then(ja.output.residual()))
            'sigmoid_gate, residual'
        """
        if not isinstance(other, OutputFunctor):
            raise TypeError(f"then() takes an OutputFunctor, not a {type(other).__name__}")
        return OutputFunctor(f"{self.text}, {other.text}", joined_texts(self.texts, other.texts))


def none() -> OutputFunctor:
    """The output itself.

    Returns:
        The output functor.

    Examples:
        >>> str(ja.output.none())
        'none'
    """
    return OutputFunctor()


def _of(name: str, dtype: _Float) -> OutputFunctor:
    kind = functor.element_type(dtype)
    if kind not in ("fp32", "bf16", "fp16"):
        raise InvalidSpecError(f'dtype: is {dtype!r}; it must be "fp32", "bf16" or "fp16"', "validate", "dtype")
    return OutputFunctor(f"{name}({kind})")


@hides_unknown
def sigmoid_gate(dtype: _Float = "bf16", **unknown: Nothing) -> OutputFunctor:
    """value · σ(gate), a gate for each element of o.

    Each call passes ``tensors={"gate": …}``: of o's shape, where each size but the last may be 1, and the last stride is 1.

    Args:
        dtype: The element type of the gate: "bf16", "fp16" or "fp32".

    Returns:
        The output functor.

    Raises:
        InvalidSpecError: dtype is another one.

    Examples:
        >>> ja.output.sigmoid_gate().tensors
        {'gate': 'bf16 as_o'}
    """
    if unknown:
        refuse_unknown(sigmoid_gate, unknown)
    return _of("sigmoid_gate", dtype)


@hides_unknown
def row_gate(dtype: _Float = "bf16", **unknown: Nothing) -> OutputFunctor:
    """value · σ(gate), a gate for each token and head.

    Each call passes ``tensors={"gate": …}``: (batch, seqlen_q, heads_q), for varlen queries (total_q, heads_q), where each
    size may be 1.

    Args:
        dtype: The element type of the gate: "bf16", "fp16" or "fp32".

    Returns:
        The output functor.

    Raises:
        InvalidSpecError: dtype is another one.

    Examples:
        >>> ja.output.row_gate("fp32").tensors
        {'gate': 'fp32 as_row'}
    """
    if unknown:
        refuse_unknown(row_gate, unknown)
    return _of("row_gate", dtype)


@hides_unknown
def scale(dtype: _Float = "fp32", **unknown: Nothing) -> OutputFunctor:
    """value · scale, a scale for each token and head, or by sizes of 1 for each head.

    Each call passes ``tensors={"scale": …}``, of the shape that `row_gate` has.

    Args:
        dtype: The element type of the scale: "bf16", "fp16" or "fp32".

    Returns:
        The output functor.

    Raises:
        InvalidSpecError: dtype is another one.

    Examples:
        >>> ja.output.scale().tensors
        {'scale': 'fp32 as_row'}
    """
    if unknown:
        refuse_unknown(scale, unknown)
    return _of("scale", dtype)


@hides_unknown
def residual(dtype: _Float = "bf16", **unknown: Nothing) -> OutputFunctor:
    """value + residual. A row without keys becomes its residual.

    Each call passes ``tensors={"residual": …}``, of the shape that `sigmoid_gate` has.

    Args:
        dtype: The element type of the residual: "bf16", "fp16" or "fp32".

    Returns:
        The output functor.

    Raises:
        InvalidSpecError: dtype is another one.

    Examples:
        >>> ja.output.residual().tensors
        {'residual': 'bf16 as_o'}
    """
    if unknown:
        refuse_unknown(residual, unknown)
    return _of("residual", dtype)


@hides_unknown
def text(
    body: str,
    *,
    name: str,
    constants: Mapping[str, bool | int | float] | None = None,
    tensors: Mapping[str, str] | None = None,
    **unknown: Nothing,
) -> OutputFunctor:
    """One of your own: the body of a C++ function that returns the new output.

    The body may use ``value`` (an element of o in fp32, 0 in a row without keys), ``q`` and ``d`` (its row in the
    sequence and its column), ``b``, ``h``, ``heads_q``, ``seqlen_q``, ``sigmoid(x)`` and the names of `constants` and
    `tensors`. For gradients declare with ``auto`` every variable that depends on ``value`` or a tensor.

    Args:
        body: The body, such as ``"return value * log1pf(expf(gate));"``.
        name: Name of the output functor, in messages and in names of kernels.
        constants: Names and values that are compiled into the kernel.
        tensors: Names and kinds of the arrays that each call passes: "bf16 as_o", a number for each element of o;
            "bf16 as_row", one for each token and head; "bf16", a pointer to a dense array, which has no gradient.

    Returns:
        The output functor.

    Raises:
        InvalidSpecError: The text cannot become part of a kernel. Errors of the C++ compiler are raised by the first
            call.

    Examples:
        >>> softplus = ja.output.text("return value * log1pf(expf(gate));", name="softplus", tensors={"gate": "fp32 as_row"})
        >>> str(softplus)
        'text(softplus)'
    """
    if unknown:
        refuse_unknown(text, unknown)
    return OutputFunctor(f"text({name})", (FunctorText(name, body, "", constants or {}, tensors or {}),))


@hides_unknown
def parse(text: str, texts: Iterable[FunctorText] = (), **unknown: Nothing) -> OutputFunctor:
    """Reads an output functor from text: names with arguments, separated by commas.

    Names: {names}, and text(name) for each of texts.

    Args:
        text: The output functor as text.
        texts: The C++ texts that it names.

    Returns:
        The output functor.

    Raises:
        InvalidArgumentError: The text cannot be read; the message points at the place and lists the names.

    Examples:
        >>> ja.output.parse("sigmoid_gate, residual") == ja.output.sigmoid_gate().then(ja.output.residual())
        True
    """
    if unknown:
        refuse_unknown(parse, unknown)
    return OutputFunctor(functor.wanted_text("text", text), tuple(texts))


if parse.__doc__:  # none with python -OO
    parse.__doc__ = parse.__doc__.format(names=_core.functor_usages()[2])
