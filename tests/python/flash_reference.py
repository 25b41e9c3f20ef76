"""flash-attention's functions in double precision, with its names of arguments."""

import numpy
from exact_attention import exact_attention


def flash_exact(q, k, v, *, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None, softmax_scale=None,
                chunk=0, sinks=None):
    """`Exact` of (batch, seqlen, heads, head_dim); sinks change it."""
    shift = k.shape[1] - q.shape[1]
    left, right = (-1 if side is None else side for side in window_size)
    right = 0 if causal else right

    def keep(b, h, i, j):
        kept = (j >= i + shift - left) | (left < 0)
        kept = kept & ((j <= i + shift + right) | (right < 0))
        return kept & ((j // chunk == (i + shift) // chunk) | (chunk == 0)) if chunk else kept

    def score(s, b, h, i, j):
        s = softcap * numpy.tanh(s / softcap) if softcap > 0 else s
        if alibi_slopes is None:
            return s
        slopes = numpy.broadcast_to(alibi_slopes, (q.shape[0], q.shape[2]))
        return s - slopes[b, h] * abs(i + shift - j)

    exact = exact_attention(q, k, v, keep=keep, score=score, softmax_scale=softmax_scale)
    if sinks is not None:
        lse = numpy.logaddexp(exact.lse, sinks[None, :, None])
        exact.o = exact.o * numpy.exp(exact.lse - lse).swapaxes(1, 2)[..., None]
        exact.lse = lse
    return exact


def rotate(x, cos, sin, positions, interleaved):
    """Rows (batch, seqlen, heads, head_dim) at positions (batch, seqlen), rounded as they are stored."""
    pairs = cos.shape[-1]
    a, b = slice(0, pairs), slice(pairs, 2 * pairs)
    if interleaved:
        a, b = slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)
    c, s = (table.astype(numpy.float64)[positions][:, :, None] for table in (cos, sin))
    wide = x.astype(numpy.float64)
    turned = wide.copy()
    turned[..., a] = wide[..., a] * c - wide[..., b] * s
    turned[..., b] = wide[..., b] * c + wide[..., a] * s
    return turned.astype(x.dtype)
