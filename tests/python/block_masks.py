"""Masks that differ by entry and by head, and what tables of blocks say: what the tests of block masks share."""

import jit_attention as ja
import numpy

SEGMENTS = ja.mask.text(
    "return segment[b * seqlen_kv + k] == segment[b * seqlen_kv + q] || k < 3;",
    name="segments",
    tensors={"segment": "int32"},
)
BY_HEAD = ja.mask.text("return h % 2 == 0 ? k <= q : k >= q;", name="by_head")


def gradients(q, k, v, do, keep):
    """dq, dk and dv in double precision, of arrays (batch, seqlen, heads, head_dim)."""
    ratio = q.shape[2] // k.shape[2]
    wide = [x.astype(numpy.float64).transpose(0, 2, 1, 3) for x in (q, k, v, do)]
    qs, ks, vs, dos = wide[0], numpy.repeat(wide[1], ratio, 1), numpy.repeat(wide[2], ratio, 1), wide[3]
    scale = q.shape[-1] ** -0.5
    scores = scale * qs @ ks.transpose(0, 1, 3, 2)
    kept = numpy.broadcast_to(keep(*numpy.ogrid[tuple(slice(size) for size in scores.shape)]), scores.shape)
    weights = numpy.where(kept, numpy.exp(scores - scores.max(-1, keepdims=True)), 0)
    total = weights.sum(-1, keepdims=True)
    p = weights / numpy.where(total == 0, 1, total)
    dp = dos @ vs.transpose(0, 1, 3, 2)
    ds = p * (dp - (p * dp).sum(-1, keepdims=True))
    folded = [
        x.reshape(x.shape[0], -1, ratio, *x.shape[2:]).sum(2)
        for x in (scale * ds.transpose(0, 1, 3, 2) @ qs, p.transpose(0, 1, 3, 2) @ dos)
    ]
    return [x.transpose(0, 2, 1, 3) for x in (scale * ds @ ks, *folded)]


def blocks_of(table, columns):
    """A table's content: whether some scores of each block are seen, and whether all are."""
    words = numpy.asarray(table).astype(numpy.int32).view(numpy.uint32)[..., :-1]  # the last one: rows by work
    bits = (words[..., None] >> numpy.arange(32, dtype=numpy.uint32)) & 1
    return [bits[..., first::2, :].reshape(*words.shape[:3], -1)[..., :columns] for first in (0, 1)]


def random_segments(rng, batch, length):
    return numpy.sort(rng.integers(0, 5, (batch, length)), -1).astype(numpy.int32)
