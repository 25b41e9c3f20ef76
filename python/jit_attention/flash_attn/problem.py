"""What arguments of flash-attention mean as masks, scores and what these read: said once, for all functions."""

import functools
import operator

from .. import functor
from .. import mask as _mask
from .. import score as _score
from .refusals import refuse


def problem(*, softmax_scale, causal, window_size, softcap, alibi_slopes=None, attention_chunk=0, learnable_sink=None):
    """Keywords of `jit_attention.attention`.

    A query stands at key q + seqlen_k − seqlen_q. The softcap comes before the slopes of ALiBi.
    """
    left, right = window_size
    left, right = _whole("window_size", left, -1), _whole("window_size", right, -1)
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


def _whole(name, value, lowest):
    """`value` as an int from `lowest` on; None is `lowest`."""
    if value is None:
        return lowest
    try:
        number = operator.index(value)
    except TypeError:
        refuse(name, f"has {value!r}; it must be whole numbers")
    if number < lowest:
        refuse(name, f"has {number}; it must be {lowest} or more" + (", and -1 leaves a side open" if lowest else ""))
    return number


def _mask_of(causal, left, right, chunk):
    right = 0 if causal else right
    mask = None
    if right == 0 and left < 0:
        mask = _mask.causal()
    elif left >= 0 or right >= 0:
        mask = _mask.sliding_window(left, right)
    if chunk > 0:
        mask = _same_chunk(chunk) if mask is None else mask & _same_chunk(chunk)
    return mask


def _same_chunk(chunk):
    """A query sees the keys of the chunk that it stands in itself."""
    body = "const int at = q + seqlen_kv - seqlen_q; return at >= 0 && k / chunk == at / chunk;"
    return _mask.text(body, name="attention_chunk", constants={"chunk": chunk})


def _score_of(softcap, has_slopes):
    scores = [_score.softcap(softcap)] if softcap else []
    scores += [_score.alibi()] if has_slopes else []
    return functools.reduce(_score.Score.then, scores) if scores else None


# Each is built once. A compiler that follows this code keeps what it found by itself, and warns of caches.
_known_mask_of, _known_score_of = (functools.lru_cache(maxsize=1024)(build) for build in (_mask_of, _score_of))
