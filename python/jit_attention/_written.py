"""Masks and scores as text, for frameworks whose compiled operations carry no Python objects."""

import ast
import functools

from . import mask as _mask
from . import score as _score
from .functor import FunctorText


def plain(functor):
    """A mask or score as strings and tuples: a compiler watches these for changes, and repr makes them text."""
    return None if functor is None else (functor.text, tuple(text.plain for text in functor.texts))


def written(mask, score, *others):
    """One text of a mask, a score and other literals, equal for equal ones."""
    return repr((plain(mask), plain(score), *others))


@functools.lru_cache(maxsize=1024)
def read(text):
    """What `written` wrote down."""
    mask, score, *others = ast.literal_eval(text)

    def parsed(parse, functor):
        return functor and parse(functor[0], [FunctorText(**ast.literal_eval(fields)) for fields in functor[1]])

    return parsed(_mask.parse, mask), parsed(_score.parse, score), *others
