"""A case: a failure that was published, and a check that a library has to pass."""

import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy

KINDS = ("gradients", "masks", "lengths", "sizes", "repeated", "scores", "dropout", "fp8", "concurrent", "arguments")
SOURCE = re.compile(r"[\w.-]+/[\w.-]+#\d+")


@dataclass(frozen=True)
class Case:
    """name: what it is asked for by; sources: "owner/repository#number", where it was published; where: the library
    that failed; failed: one sentence on it; asserts: what the check wants; check(library, run) raises
    AssertionError, or NotOffered where a library has no way to be asked."""

    name: str
    kind: str
    sources: tuple
    where: str
    failed: str
    asserts: str
    check: Callable


@dataclass
class Run:
    """A random generator, and whether this is a GPU, where sizes are larger."""

    rng: numpy.random.Generator
    gpu: bool

    def pick(self, emulated, gpu):
        return gpu if self.gpu else emulated


_cases = []


def case(sources, where, failed, asserts):
    """Makes a Case of a function check_NAME(library, run). sources: one or more, separated by spaces."""

    def make(check):
        kind = check.__module__.rsplit(".", 1)[-1]
        name = check.__name__.removeprefix("check_").replace("_", "-")
        _cases.append(Case(name, kind, tuple(sources.split()), where, failed, asserts, check))
        return check

    return make


def all_cases():
    """All of them, by kind and in the order of the files."""
    for kind in KINDS:
        importlib.import_module(f"{__package__}.{kind}")
    return sorted(_cases, key=lambda one: KINDS.index(one.kind))
