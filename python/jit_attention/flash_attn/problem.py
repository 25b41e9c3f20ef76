"""Translation of flash-attention's arguments to masks, scores and their tensors, for all functions."""

import functools
import operator

from .. import functor
from .. import mask as _mask
from .. import score as _score
from .refusals import refuse


def problem(*, softmax_scale, causal, window_size, softcap, alibi_slopes=None, attention_chunk=0, learnable_sink=None,
            window_may_shift=False):
    """Keywords of `jit_attention.attention`.

    A query's position is q + seqlen_k − seqlen_q. The softcap precedes ALiBi. With `window_may_shift`, None leaves a
    window's side open and negative sides shift it; else −1 leaves it open.
    """
    left, right = (_shift if window_may_shift else _side)(*_pair(window_size))
    chunk = _whole("attention_chunk", attention_chunk, 0)
    if softcap is None or softcap <= 0:
        softcap = 0.0
    sinks = learnable_sink
    if sinks is not None and not str(sinks.dtype).endswith("float32"):
        sinks = sinks.float() if hasattr(sinks, "float") else sinks.astype("float32")
    return dict(
        softmax_scale=softmax_scale,
        mask=(_mask_of if functor.being_traced() else _known_mask_of)(bool(causal), left, right, chunk),
        score=(_score_of if functor.being_traced() else _known_score_of)(softcap, alibi_slopes is not None),
        tensors=None if alibi_slopes is None else {"alibi_slopes": alibi_slopes},
        sinks=sinks,
    )


def _pair(window_size):
    if not isinstance(window_size, (tuple, list)) or len(window_size) != 2:
        refuse("window_size", f"is {window_size!r}; it must be (left, right)")
    return window_size


def _side(left, right):
    """Sides of a window, with None instead of −1 for open ones."""
    sides = _whole("window_size", left, -1), _whole("window_size", right, -1)
    return tuple(None if side == -1 else side for side in sides)


def _shift(left, right):
    """Sides of a window that may exclude the query's own position; an empty window counts as none."""
    left, right = (None if side is None else _whole("window_size", side, None) for side in (left, right))
    return (None, None) if left is not None and right is not None and left + right < 0 else (left, right)


def _whole(name, value, lowest):
    """`value` as an integer of at least `lowest`; None is `lowest`."""
    if value is None:
        return lowest
    try:
        number = operator.index(value)
    except TypeError:
        refuse(name, f"has {value!r}; it must be whole numbers")
    if lowest is not None and number < lowest:
        refuse(name, f"has {number}; it must be {lowest} or more" + (", and -1 leaves a side open" if lowest else ""))
    return number


def _mask_of(causal, left, right, chunk):
    right = 0 if causal else right
    mask = None
    if right == 0 and left is None:
        mask = _mask.causal()
    elif min(0 if left is None else left, 0 if right is None else right) < 0:
        mask = _shifted_window(left, right)
    elif left is not None or right is not None:
        mask = _mask.sliding_window(*(-1 if side is None else side for side in (left, right)))
    if chunk > 0:
        mask = _same_chunk(chunk) if mask is None else mask & _same_chunk(chunk)
    return mask


def _shifted_window(left, right):
    """A mask of keys from `left` before a query's position to `right` after it, one of them negative."""
    sides = ["k >= at - before"] * (left is not None) + ["k <= at + behind"] * (right is not None)
    constants = {name: side for name, side in (("before", left), ("behind", right)) if side is not None}
    body = f"const int at = q + seqlen_kv - seqlen_q; return {' && '.join(sides)};"
    return _mask.text(body, name="shifted_window", constants=constants)


def _same_chunk(chunk):
    """A mask of the keys in a query's own chunk."""
    body = "const int at = q + seqlen_kv - seqlen_q; return at >= 0 && k / chunk == at / chunk;"
    return _mask.text(body, name="attention_chunk", constants={"chunk": chunk})


def _score_of(softcap, has_slopes):
    scores = [_score.softcap(softcap)] if softcap else []
    scores += [_score.alibi()] if has_slopes else []
    return functools.reduce(_score.Score.then, scores) if scores else None


# Each is built once. A compiler that traces this code caches by itself, and warns of lru_cache.
_known_mask_of, _known_score_of = (functools.lru_cache(maxsize=1024)(build) for build in (_mask_of, _score_of))
