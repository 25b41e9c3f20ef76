"""The problems that libraries are put to: arrays of NumPy, and what is to be done with them."""

from dataclasses import dataclass, replace

import ml_dtypes
import numpy

BF16, FP16 = numpy.dtype(ml_dtypes.bfloat16), numpy.dtype(numpy.float16)


@dataclass
class Problem:
    """Attention of q, k and v, (batch, seqlen, heads, head_dim), and its gradients where d_o is given.

    With `cu_seqlens_q` or `cu_seqlens_k` q, or k and v, are varlen, (rows, heads, head_dim); with `page_table` k and
    v are pages, (pages, page_size, heads, head_dim), and `seqused_k` says how many keys there are. Positions are
    aligned at the bottom right. A library that has no way to say a field that is set refuses the problem by
    NotOffered. """

    q: numpy.ndarray
    k: numpy.ndarray
    v: numpy.ndarray
    d_o: numpy.ndarray | None = None
    softmax_scale: float | None = None
    causal: bool = False
    window: tuple | None = None  #: keys to the left and to the right of a query, −1: all
    keep: numpy.ndarray | None = None  #: bool (batch or 1, heads or 1, seqlen_q or 1, seqlen_kv)
    bias: numpy.ndarray | None = None  #: added to scores, of the same shape
    blocks: tuple | None = None  #: (bool (rows, columns) of blocks that are seen, the side of a block)
    softcap: float = 0.0
    alibi_slopes: numpy.ndarray | None = None  #: fp32 (heads)
    sinks: numpy.ndarray | None = None  #: fp32 (heads)
    cu_seqlens_q: numpy.ndarray | None = None
    cu_seqlens_k: numpy.ndarray | None = None
    seqused_q: numpy.ndarray | None = None
    seqused_k: numpy.ndarray | None = None
    page_table: numpy.ndarray | None = None
    cache_leftpad: numpy.ndarray | None = None
    k_descale: numpy.ndarray | None = None  #: fp32 (1), (heads_kv) or (batch, heads_kv), where k and v are of fp8
    v_descale: numpy.ndarray | None = None
    head_dim_v: int | None = None  #: v is so many leading columns of k, and the field v is None
    dropout_p: float = 0.0
    rng_state: tuple | None = None  #: seed and offset
    num_splits: int = 0  #: 0: as the library likes
    deterministic: bool = False  #: of gradients: equal inputs give bit-identical ones
    batch_invariant: bool = False  #: the bits of a sequence do not depend on the others
    zero_padding: bool = False  #: rows that are no query's become 0
    unwritten: bool = False  #: whether the result is written over NaN
    d_bias: bool = False  #: whether the gradient of the bias is wanted
    d_sinks: bool = False
    only: tuple | None = None  #: the batch entries that are compared; None: all

    def change(self, **fields):
        return replace(self, **fields)

    @property
    def ratio(self):
        """Query heads that share a KV head."""
        return self.q.shape[-2] // self.k.shape[-2]


@dataclass
class Outcome:
    """Results in double precision, of the shapes of the inputs; None what was not asked for, or not told. lse (batch,
    heads, seqlen_q) or (heads, rows), in natural logarithm."""

    o: numpy.ndarray | None = None
    lse: numpy.ndarray | None = None
    dq: numpy.ndarray | None = None
    dk: numpy.ndarray | None = None
    dv: numpy.ndarray | None = None
    d_bias: numpy.ndarray | None = None
    d_sinks: numpy.ndarray | None = None


def normal(rng, *shape, dtype=BF16, scale=1.0):
    """N(0, scale²), rounded to a type."""
    return (scale * rng.standard_normal(shape, numpy.float32)).astype(dtype)


def dense(
    rng,
    *,
    batch=1,
    seqlen_q=64,
    seqlen_kv=None,
    heads=2,
    heads_kv=None,
    head_dim=64,
    head_dim_v=None,
    dtype=BF16,
    gradients=False,
    **fields,
):
    """A dense problem of normally distributed elements."""
    seqlen_kv, heads_kv, head_dim_v = seqlen_kv or seqlen_q, heads_kv or heads, head_dim_v or head_dim
    d_o = normal(rng, batch, seqlen_q, heads, head_dim_v, dtype=dtype) if gradients else None
    return Problem(
        normal(rng, batch, seqlen_q, heads, head_dim, dtype=dtype),
        normal(rng, batch, seqlen_kv, heads_kv, head_dim, dtype=dtype),
        normal(rng, batch, seqlen_kv, heads_kv, head_dim_v, dtype=dtype),
        d_o,
        **fields,
    )


def int32(values):
    return numpy.array(values, numpy.int32)


def boundaries(lengths):
    return int32(numpy.concatenate([[0], numpy.cumsum(lengths)]))


def varlen(
    rng, lengths_q, lengths_k=None, *, heads=2, heads_kv=None, head_dim=64, dtype=BF16, gradients=False, **fields
):
    """A problem of sequences that lie one behind another."""
    lengths_k, heads_kv = lengths_q if lengths_k is None else lengths_k, heads_kv or heads
    rows_q, rows_k = sum(lengths_q), sum(lengths_k)
    d_o = normal(rng, rows_q, heads, head_dim, dtype=dtype) if gradients else None
    return Problem(
        normal(rng, rows_q, heads, head_dim, dtype=dtype),
        normal(rng, rows_k, heads_kv, head_dim, dtype=dtype),
        normal(rng, rows_k, heads_kv, head_dim, dtype=dtype),
        d_o,
        cu_seqlens_q=boundaries(lengths_q),
        cu_seqlens_k=boundaries(lengths_k),
        **fields,
    )


def paged(
    rng,
    lengths_q,
    lengths_k,
    *,
    page_size=16,
    heads=8,
    heads_kv=2,
    head_dim=64,
    dtype=BF16,
    filler=0.0,
    spare=3,
    unused=0,
    **fields,
):
    """A problem of varlen queries over pages in any order. `filler` lies wherever no sequence has a key; entries of
    the table behind those in use are `unused`."""
    width = max(-(-n // page_size) for n in lengths_k)
    count = len(lengths_k) * width + spare
    table = int32(rng.permutation(count)[: len(lengths_k) * width].reshape(len(lengths_k), width))
    pools = [numpy.full((count, page_size, heads_kv, head_dim), filler, dtype) for _ in "kv"]
    for pool in pools:
        for b, n in enumerate(lengths_k):
            rows = normal(rng, n, heads_kv, head_dim, dtype=dtype)
            for page in range(-(-n // page_size)):
                part = rows[page * page_size : (page + 1) * page_size]
                pool[table[b, page], : len(part)] = part
    for b, n in enumerate(lengths_k):
        table[b, -(-n // page_size) :] = unused
    return Problem(
        normal(rng, sum(lengths_q), heads, head_dim, dtype=dtype),
        *pools,
        cu_seqlens_q=boundaries(lengths_q),
        seqused_k=int32(lengths_k),
        page_table=table,
        **fields,
    )
