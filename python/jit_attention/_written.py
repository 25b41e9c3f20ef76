"""Masks and scores as text, for frameworks whose compiled operations cannot hold Python objects."""

import ast
import functools

from . import mask as _mask
from . import output as _output
from . import score as _score
from .functor import FunctorText


def plain(functor):
    """A mask or score as strings and tuples: compilers guard on these, and repr converts them to text."""
    return None if functor is None else (functor.text, tuple(text.plain for text in functor.texts))


def written(mask, score, *others):
    """One text of a mask, a score and other literals, unique to them."""
    return repr((plain(mask), plain(score), *others))


@functools.lru_cache(maxsize=1024)
def read(text):
    """Parses the text of `written`."""
    mask, score, *others = ast.literal_eval(text)
    return _parsed(_mask.parse, mask), _parsed(_score.parse, score), *others


@functools.lru_cache(maxsize=1024)
def read_output(functor):
    """The output functor from the strings and tuples of `plain`."""
    return _parsed(_output.parse, functor)


def _parsed(parse, functor):
    return functor and parse(functor[0], [FunctorText(**ast.literal_eval(fields)) for fields in functor[1]])
