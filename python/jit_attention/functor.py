"""The common base of masks and scores, and those that the user writes as C++ text."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar

from .errors import InvalidSpecError


def being_traced() -> bool:
    """Whether a compiler follows this code instead of running it. `jit_attention.torch` puts its own answer here."""
    return False


@dataclass(frozen=True)
class FunctorText:
    """The body of a C++ function that decides whether a key is seen (mask), or that maps a score.

    The body may use ``q`` and ``k`` (positions of query and key), ``b`` and ``h`` (batch entry and query head),
    ``seqlen_q``, ``seqlen_kv``, ``heads_q``, in scores ``score`` (softmax_scale · q·k), and the names of `constants`
    and `tensors`. Compile errors are reported with their line of the body. Immutable and hashable.

    Attributes:
        name: Name of the text, in messages and in names of kernels: letters, digits, ``_``, ``-``, ``.``.
        body: The body, such as ``"return q >= k;"``. Each body has at most 64 KiB.
        classify: For masks; usually empty. The body of a function of q_begin, q_end, k_begin and k_end (half-open
            ranges of a tile) that returns TileClass::empty, TileClass::full or TileClass::partial. If it is empty,
            the library derives from bounds of q and k which tiles can be skipped.
        constants: Names and values (bool, int or float) that are compiled into the kernel.
        tensors: Names and element types ("bf16", "fp16", "fp32", "int32", "int64", "uint8") of dense arrays that each
            call passes; in the body they are pointers to the elements.
        derivative: For scores; usually empty. The body of a function that returns the derivative of the new score
            with respect to ``score``. For the gradient of a floating-point tensor ``table`` it executes
            ``d_table[i] += x;``, where x is the derivative with respect to element i; other tensors get no gradient.
            If it is empty, the library differentiates `body`: declare with ``auto`` every variable that depends on
            ``score`` or on a tensor whose gradient is wanted.

    Raises:
        InvalidSpecError: A field cannot become part of a kernel.

    Examples:
        >>> text = ja.FunctorText("anchored", "return k < anchors;", constants={"anchors": 4})
        >>> str(ja.mask.parse("causal | text(anchored)", [text]))
        'causal || text(anchored)'
    """

    name: str
    body: str
    classify: str = ""
    constants: Mapping[str, bool | int | float] = field(default_factory=dict)
    tensors: Mapping[str, str] = field(default_factory=dict)
    derivative: str = ""

    def __post_init__(self) -> None:
        for name in ("name", "body", "classify", "derivative"):
            wanted_text(name, getattr(self, name))
        for name in (*self.constants, *self.tensors):
            wanted_text("a name of constants and tensors", name)
        fields = {
            "name": self.name,
            "body": self.body,
            "classify": self.classify,
            "derivative": self.derivative,
            "constants": dict(self.constants),
            "tensors": {name: element_type(kind) for name, kind in self.tensors.items()},
        }
        object.__setattr__(self, "plain", repr(fields))  # all of it as one string, for those who can carry no objects
        object.__setattr__(self, "constants", MappingProxyType(fields["constants"]))
        object.__setattr__(self, "tensors", MappingProxyType(fields["tensors"]))

    def _identity(self) -> tuple[Any, ...]:
        constants = tuple((name, type(value), value) for name, value in self.constants.items())
        return self.name, self.body, self.classify, self.derivative, constants, tuple(self.tensors.items())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FunctorText):
            return NotImplemented
        return self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __reduce__(self) -> tuple[Any, ...]:  # a mapping proxy cannot be pickled
        fields = self.name, self.body, self.classify, dict(self.constants), dict(self.tensors), self.derivative
        return FunctorText, fields


@dataclass(frozen=True)
class Functor:
    """A mask or a score. Immutable, hashable and picklable; equal if `text` and `texts` are.

    Attributes:
        text: The functor as text, which `parse` of its module reads.
        texts: The C++ texts that it names.
    """

    text: str = "none"
    texts: tuple[FunctorText, ...] = ()

    _parse: ClassVar[Any] = None  # the extension's function, of each kind

    def __post_init__(self) -> None:
        if not being_traced():  # else it is only text, and checked when it is used
            object.__setattr__(self, "text", self._native.text)  # as the library writes it

    @functools.cached_property
    def _native(self) -> Any:
        return self._parse(self.text, self.texts)

    @property
    def tensors(self) -> dict[str, str]:
        """Names and element types of the arrays that each call passes as ``tensors=``."""
        return dict(self._native.tensors)

    def __str__(self) -> str:
        return self.text

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.text, self.texts)


def wanted_text(name: str, value: object) -> str:
    """`value` when it is a str."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {value!r}")
    return value


def wanted_whole(name: str, value: Any, lowest: int = -(2**31)) -> int:
    """`value` as an int of 32 bits."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an int, not {value!r}") from None
    if isinstance(value, bool):
        raise TypeError(f"{name} must be an int, not {value!r}")
    if not lowest <= number < 2**31:
        raise InvalidSpecError(f"{name}: is {number}; it must be from {lowest} to {2**31 - 1}", "validate", name)
    return number


_LONG_NAMES = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float32": "fp32",
    "bool": "uint8",
    "float8_e4m3fn": "fp8_e4m3",
    "float8_e5m2": "fp8_e5m2",
}


def element_type(kind: Any) -> str:
    """The library's name of an element type, given as "bf16", "bfloat16", torch.bfloat16 and the like."""
    name = (
        kind if isinstance(kind, str) else getattr(kind, "name", None) or getattr(kind, "__name__", None) or str(kind)
    )
    name = name.removeprefix("torch.")
    return _LONG_NAMES.get(name, name)


def joined_texts(*groups: tuple[FunctorText, ...]) -> tuple[FunctorText, ...]:
    """The texts of several masks or scores, each once. Two different ones must not have the same name."""
    known: dict[str, FunctorText] = {}
    for text in (text for group in groups for text in group):
        if known.setdefault(text.name, text) != text:
            raise InvalidSpecError(
                f"two different texts are named {text.name!r}; give each its own name", "validate", "name"
            )
    return tuple(known.values())
