"""Attention in double precision, and what attention in 16 bits gets wrong: the yardstick of the tests."""

from dataclasses import dataclass

import ml_dtypes
import numpy

DTYPES = {"bf16": numpy.dtype(ml_dtypes.bfloat16), "fp16": numpy.dtype(numpy.float16)}


@dataclass
class Exact:
    """o (batch, seqlen_q, heads_q, head_dim_v) and lse (batch, heads_q, seqlen_q) of some inputs."""

    o: numpy.ndarray
    lse: numpy.ndarray
    #: largest error of the same computation with P and o in 16 bits, sums in fp32
    plain_error: float
    #: half a unit in the last place of the largest output
    rounding: float

    def check(self, o, lse=None):
        """Errors of at most twice what plain attention in 16 bits has, and the rounding of one output."""
        assert o.shape == self.o.shape
        assert not numpy.isnan(o).any()
        error = numpy.abs(o - self.o).max(initial=0)
        allowed = 2 * self.plain_error + self.rounding
        assert error <= allowed, f"error {error}, plain attention has {self.plain_error}"
        if lse is None:
            return
        assert lse.shape == self.lse.shape
        empty = numpy.isneginf(self.lse)
        assert numpy.array_equal(numpy.isneginf(lse), empty)
        assert numpy.abs(numpy.where(empty, 0, lse) - numpy.where(empty, 0, self.lse)).max(initial=0) < 1e-3


def exact_attention(q, k, v, *, keep=None, score=None, softmax_scale=None, p_dtype=None):
    """Inputs as (batch, seqlen, heads, head_dim); `keep(b, h, q, k)` and `score(s, b, h, q, k)` on index arrays.

    Plain attention has P in `p_dtype`, else in q's.
    """
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    wide = [x.astype(numpy.float64).transpose(0, 2, 1, 3) for x in (q, k, v)]
    ratio = wide[0].shape[1] // wide[1].shape[1]
    qs, ks, vs = wide[0], numpy.repeat(wide[1], ratio, 1), numpy.repeat(wide[2], ratio, 1)
    scores = scale * (qs @ ks.transpose(0, 1, 3, 2))
    indices = numpy.ogrid[tuple(slice(size) for size in scores.shape)]
    if score is not None:
        scores = score(scores, *indices)
    if keep is not None:
        scores = numpy.where(numpy.broadcast_to(keep(*indices), scores.shape), scores, -numpy.inf)
    largest = scores.max(-1, keepdims=True, initial=-numpy.inf)
    finite = numpy.where(numpy.isneginf(largest), 0, largest)
    weights = numpy.exp(scores - finite)
    total = weights.sum(-1, keepdims=True)
    with numpy.errstate(divide="ignore"):
        lse = (numpy.log(total) + finite)[..., 0]
    divisor = numpy.where(total == 0, 1, total)
    o = (weights / divisor) @ vs
    rounded = weights.astype(p_dtype or q.dtype).astype(numpy.float64)
    plain = ((rounded @ vs) / divisor).astype(numpy.float32).astype(q.dtype).astype(numpy.float64)
    rounding = float(ml_dtypes.finfo(q.dtype).eps) / 2 * numpy.abs(o).max(initial=0)
    return Exact(o.transpose(0, 2, 1, 3), lse, numpy.abs(plain - o).max(initial=0), rounding)


def random_qkv(
    rng, *, batch=1, seqlen_q=64, seqlen_kv=64, heads_q=2, heads_kv=None, head_dim=64, head_dim_v=None, dtype="fp16"
):
    """q, k and v with normally distributed elements."""
    kind = DTYPES[dtype]
    heads_kv = heads_q if heads_kv is None else heads_kv
    shapes = (
        (batch, seqlen_q, heads_q, head_dim),
        (batch, seqlen_kv, heads_kv, head_dim),
        (batch, seqlen_kv, heads_kv, head_dim if head_dim_v is None else head_dim_v),
    )
    return [rng.standard_normal(shape).astype(kind) for shape in shapes]
