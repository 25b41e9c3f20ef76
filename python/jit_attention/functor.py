"""What masks and scores have in common, and those that the user writes as C++ text."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from .errors import InvalidSpecError


def being_traced():
    """Whether a compiler follows this code instead of running it. `jit_attention.torch` puts its own answer here."""
    return False


@dataclass(frozen=True)
class FunctorText:
    """The body of a C++ function that decides over a key (mask) or maps a score.

    Names that the text may use: ``q`` and ``k`` (positions of query and key), ``b`` and ``h`` (batch entry and query
    head), ``seqlen_q``, ``seqlen_kv``, ``heads_q``, in scores ``score`` (softmax_scale · q·k), and the names of
    ``constants`` and ``tensors``. A compile error in it is reported at its own line; so is a path without ``return``.

    Attributes:
        name: of the functor, in messages and kernel names: letters, digits, ``_``, ``-``, ``.``.
        body: such as ``"return q >= k;"``; of at most 64 KiB, as the bodies below.
        classify: masks only, may be empty: the body of a function of q_begin, q_end, k_begin, k_end (half-open ranges
            of a tile) that returns TileClass::empty, TileClass::full or TileClass::partial. Without it tiles are
            skipped as far as bounds of q and k tell from the body (docs/masks.md).
        derivative: scores only, may be empty: the body of a function that returns the derivative of what ``body``
            returns with respect to ``score``. Gradients then take it for granted. Of a tensor ``table`` of fp32, bf16
            or fp16 it says ``d_table[i] += x;``, where x is the derivative with respect to element i; tensors of which
            it says nothing get no gradients. Without it ``body`` is differentiated, and declares with ``auto`` what
            depends on ``score`` and on tensors whose gradients are wanted.
        constants: names and values (bool, int or float) baked into the kernel.
        tensors: names and element types ("bf16", "fp16", "fp32", "int32", "int64", "uint8") of arrays that are given
            to each call, dense; in the text, pointers to their elements.
    """

    name: str
    body: str
    classify: str = ""
    constants: Mapping[str, bool | int | float] = field(default_factory=dict)
    tensors: Mapping[str, str] = field(default_factory=dict)
    derivative: str = ""

    def __post_init__(self):
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

    def _identity(self):
        constants = tuple((name, type(value), value) for name, value in self.constants.items())
        return self.name, self.body, self.classify, self.derivative, constants, tuple(self.tensors.items())

    def __eq__(self, other):
        if not isinstance(other, FunctorText):
            return NotImplemented
        return self._identity() == other._identity()

    def __hash__(self):
        return hash(self._identity())

    def __reduce__(self):  # a mapping proxy cannot be pickled
        fields = self.name, self.body, self.classify, dict(self.constants), dict(self.tensors), self.derivative
        return FunctorText, fields


@dataclass(frozen=True)
class Functor:
    """A mask or a score. Immutable, hashable, can be pickled; equal when text and texts are.

    Attributes:
        text: what it is, in words that `parse` of its module knows.
        texts: the texts of the user that it names.
    """

    text: str = "none"
    texts: tuple[FunctorText, ...] = ()

    _parse = None  # the extension's function, of each kind

    def __post_init__(self):
        if not being_traced():  # else it is only text, and checked when it is used
            object.__setattr__(self, "text", self._native.text)  # as the library writes it

    @functools.cached_property
    def _native(self):
        return self._parse(self.text, self.texts)

    @property
    def tensors(self) -> dict[str, str]:
        """Names and element types of the arrays that a call must be given."""
        return dict(self._native.tensors)

    def __str__(self):
        return self.text

    def __reduce__(self):
        return type(self), (self.text, self.texts)


def wanted_text(name, value):
    """`value` when it is a str."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {value!r}")
    return value


def wanted_whole(name, value, lowest=-(2**31)):
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


def element_type(kind):
    """The library's name of an element type, given as "bf16", "bfloat16", torch.bfloat16 and the like."""
    name = (
        kind if isinstance(kind, str) else getattr(kind, "name", None) or getattr(kind, "__name__", None) or str(kind)
    )
    name = name.removeprefix("torch.")
    return _LONG_NAMES.get(name, name)


def joined_texts(*groups):
    """The texts of several masks or scores, each once. Two different ones must not have the same name."""
    known = {}
    for text in (text for group in groups for text in group):
        if known.setdefault(text.name, text) != text:
            raise InvalidSpecError(
                f"two different texts are named {text.name!r}; give each its own name", "validate", "name"
            )
    return tuple(known.values())
