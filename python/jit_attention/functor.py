"""Masks and scores written as C++ text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


def being_traced():
    """Whether a compiler follows this code instead of running it. `jit_attention.torch` puts its own answer here."""
    return False


@dataclass(frozen=True)
class FunctorText:
    """The body of a C++ function that decides over a key (mask) or maps a score.

    Names that the text may use: ``q`` and ``k`` (positions of query and key), ``b`` and ``h`` (batch entry and query
    head), ``seqlen_q``, ``seqlen_kv``, ``heads_q``, in scores ``score`` (softmax_scale · q·k), and the names of
    ``constants`` and ``tensors``. A compile error in it is reported at its own line.

    Attributes:
        name: of the functor, in messages and kernel names: letters, digits, ``_``, ``-``, ``.``.
        body: such as ``"return q >= k;"``.
        classify: masks only, may be empty: the body of a function of q_begin, q_end, k_begin, k_end (half-open ranges
            of a tile) that returns TileClass::empty, TileClass::full or TileClass::partial. Without it every tile is
            computed with the mask.
        constants: names and values (bool, int or float) baked into the kernel.
        tensors: names and element types ("bf16", "fp16", "fp32", "int32", "int64", "uint8") of arrays that are given
            to each call; in the text, pointers to their elements.
    """

    name: str
    body: str
    classify: str = ""
    constants: Mapping[str, bool | int | float] = field(default_factory=dict)
    tensors: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self):
        fields = {"name": self.name, "body": self.body, "classify": self.classify, "constants": dict(self.constants),
                  "tensors": dict(self.tensors)}
        object.__setattr__(self, "plain", repr(fields))  # all of it as one string, for those who can carry no objects
        object.__setattr__(self, "constants", MappingProxyType(fields["constants"]))
        object.__setattr__(self, "tensors", MappingProxyType(fields["tensors"]))

    def _identity(self):
        constants = tuple((name, type(value), value) for name, value in self.constants.items())
        return self.name, self.body, self.classify, constants, tuple(self.tensors.items())

    def __eq__(self, other):
        if not isinstance(other, FunctorText):
            return NotImplemented
        return self._identity() == other._identity()

    def __hash__(self):
        return hash(self._identity())

    def __reduce__(self):  # a mapping proxy cannot be pickled
        return FunctorText, (self.name, self.body, self.classify, dict(self.constants), dict(self.tensors))


def joined_texts(*groups):
    """The texts of several masks or scores, each once. Two different ones must not have the same name."""
    known = {}
    for text in (text for group in groups for text in group):
        if known.setdefault(text.name, text) != text:
            from .errors import InvalidSpecError

            raise InvalidSpecError(
                f"two different texts are named {text.name!r}; give each its own name", "validate", "name"
            )
    return tuple(known.values())
