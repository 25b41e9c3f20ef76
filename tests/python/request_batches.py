"""Batches of requests of different lengths: varlen and paged arrays, and what each request must come out with."""

from dataclasses import dataclass, field

import jit_attention as ja
import ml_dtypes
import numpy
from exact_attention import exact_attention

BF16 = numpy.dtype(ml_dtypes.bfloat16)


def int32(values):
    return numpy.array(values, numpy.int32)


def boundaries(lengths):
    return int32(numpy.concatenate([[0], numpy.cumsum(lengths)]))


@dataclass
class Requests:
    """Queries, keys and values of some requests, one by one."""

    q: list
    k: list
    v: list
    lengths_q: list = field(init=False)
    lengths_k: list = field(init=False)

    def __post_init__(self):
        self.lengths_q = [len(x) for x in self.q]
        self.lengths_k = [len(x) for x in self.k]

    def check(self, o, lse=None, *, keep=None, score=None, p_dtype=None):
        """Errors of varlen results. Arguments as in exact_attention, but with the request as batch entry."""
        begin = 0
        for b, (q, k, v) in enumerate(zip(self.q, self.k, self.v)):
            end = begin + len(q)
            own_keep = keep and (lambda _, h, i, j, b=b, q=q, k=k: keep(b, h, i, j, len(q), len(k)))
            own_score = score and (lambda s, _, h, i, j, b=b, q=q, k=k: score(s, b, h, i, j, len(q), len(k)))
            exact = exact_attention(q[None], k[None], v[None], keep=own_keep, score=own_score, p_dtype=p_dtype)
            exact.check(o[None, begin:end], None if lse is None else lse[None, :, begin:end])
            begin = end


def requests(rng, lengths_q, lengths_k, *, heads_kv=2, ratio=4, head_dim=64, head_dim_v=None, dtype=BF16):
    def rows(count, heads, width):
        return rng.standard_normal((count, heads, width)).astype(dtype)

    return Requests(
        [rows(n, heads_kv * ratio, head_dim) for n in lengths_q],
        [rows(n, heads_kv, head_dim) for n in lengths_k],
        [rows(n, heads_kv, head_dim_v or head_dim) for n in lengths_k],
    )


def paged(rng, batch, page_size, *, spare=3, layout="NHD"):
    """Pages in any order, NaN wherever no request has a row, and a table whose unused entries are no pages."""
    most = max(1, max(-(-n // page_size) for n in batch.lengths_k))
    count = len(batch.k) * most + spare
    table = int32(rng.permutation(count)[: len(batch.k) * most].reshape(len(batch.k), most))
    pools = []
    for rows in (batch.k, batch.v):
        heads, width = rows[0].shape[1:]
        if layout == "HND":
            pool = numpy.full((count, heads, page_size, width), numpy.nan, rows[0].dtype).transpose(0, 2, 1, 3)
        else:
            pool = numpy.full((count, page_size, heads, width), numpy.nan, rows[0].dtype)
        for b, own in enumerate(rows):
            for i, row in enumerate(own):
                pool[table[b, i // page_size], i % page_size] = row
        pools.append(pool)
    for b, n in enumerate(batch.lengths_k):
        table[b, -(-n // page_size) :] = [-1, 1 << 30][b % 2]
    return {"k": pools[0], "v": pools[1], "page_table": table, "seqused_k": int32(batch.lengths_k)}


def causal(b, h, i, j, seqlen_q, seqlen_k):
    return j <= i + seqlen_k - seqlen_q


def call(place, q, arrays, **options):
    arrays = {name: place(array) for name, array in arrays.items()}
    return ja.attention(place(q), arrays.pop("k"), arrays.pop("v"), **arrays, **options)
