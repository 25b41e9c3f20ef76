"""Keys and values of fp8 with their scales, as caches hold them, and what they stand for."""

from dataclasses import dataclass

import jit_attention as ja
import ml_dtypes
import numpy
from request_batches import BF16, Requests, boundaries, int32

FP8 = {"fp8_e4m3": numpy.dtype(ml_dtypes.float8_e4m3fn), "fp8_e5m2": numpy.dtype(ml_dtypes.float8_e5m2)}

#: What there is a scale for, and the shape of the scales of a batch.
KINDS = {
    "none": None,
    "tensor": lambda batch, heads: (1,),
    "head": lambda batch, heads: (heads,),
    "request": lambda batch, heads: (batch, 1),
    "request_head": lambda batch, heads: (batch, heads),
    "token": None,
}


@dataclass
class Cached:
    """Requests whose keys and values are stored: codes and scales of each, one by one."""

    q: list
    codes: dict  #: of "k" and "v": of each request fp8 (keys, heads, head_dim)
    scales: dict  #: the same: fp32 (keys, heads)
    shared: dict  #: of "k" and "v": the array of scales where not each key has its own; else None

    @property
    def lengths_k(self):
        return [len(codes) for codes in self.codes["k"]]

    def requests(self):
        """The cache with keys and values as numbers."""

        def wide(name):
            return [
                codes.astype(numpy.float64) * scales[..., None]
                for codes, scales in zip(self.codes[name], self.scales[name])
            ]

        return Requests(self.q, wide("k"), wide("v"))

    def check(self, o, lse=None, **options):
        if self.shared["k"] is None and self.shared["v"] is None:  # the products of P are of bf16 then
            options["p_dtype"] = BF16
        self.requests().check(o, lse, **options)


def cached(rng, lengths_q, lengths_k, name, kind, *, heads_kv=2, ratio=4, head_dim=64, head_dim_v=None, dtype=BF16):
    """Random ones. Elements have a standard deviation of 1 once they are multiplied by their scales."""
    fp8, batch = FP8[name], len(lengths_k)
    codes, scales, shared = {}, {}, {}
    for each, width in (("k", head_dim), ("v", head_dim_v or head_dim)):
        shared[each] = None
        if kind == "token":
            own = [rng.uniform(0.02, 0.1, (n, heads_kv)).astype(numpy.float32) for n in lengths_k]
        else:
            shape = KINDS[kind](batch, heads_kv) if kind != "none" else (1,)
            values = numpy.ones(1, numpy.float32) if kind == "none" else rng.uniform(0.02, 0.1, shape).astype("f4")
            shared[each] = values
            whole = numpy.broadcast_to(values, (batch, heads_kv))
            own = [numpy.broadcast_to(whole[b], (n, heads_kv)) for b, n in enumerate(lengths_k)]
        scales[each] = own
        codes[each] = [
            (rng.standard_normal((n, heads_kv, width)) / scale[..., None]).astype(fp8)
            for n, scale in zip(lengths_k, own)
        ]
    q = [rng.standard_normal((n, heads_kv * ratio, head_dim)).astype(dtype) for n in lengths_q]
    return Cached(q, codes, scales, shared)


def poison(rng, shape):
    """Bytes that are all NaN in e4m3 and in e5m2."""
    return rng.choice(numpy.array([0x7F, 0xFF], numpy.uint8), shape)


def pages(rng, batch, page_size, *, inline=False, spare=3):
    """Arrays of a call over pages in any order, with NaN wherever no request has a row or a scale.

    With `inline`, a head's scale lies behind its elements, and K beside V.
    """
    most = max(1, max(-(-n // page_size) for n in batch.lengths_k))
    count = len(batch.q) * most + spare
    table = int32(rng.permutation(count)[: len(batch.q) * most].reshape(len(batch.q), most))
    fp8 = batch.codes["k"][0].dtype
    heads = batch.codes["k"][0].shape[1]
    widths = {name: batch.codes[name][0].shape[2] for name in "kv"}
    has_own = batch.shared["k"] is None
    arrays = {"page_table": table, "seqused_k": int32(batch.lengths_k)}
    if inline:
        row = sum(widths.values()) + 8
        pool = poison(rng, (count, page_size, heads, row))
        floats = pool.view(numpy.float32)  # NaN: four bytes of 0x7f or 0xff
        begin = 0
        for name in "kv":
            arrays[name] = pool[..., begin : begin + widths[name]].view(fp8)
            begin += widths[name]
            arrays[f"{name}_descale"] = floats[..., begin // 4]
            begin += 4
    else:
        for name in "kv":
            arrays[name] = poison(rng, (count, page_size, heads, widths[name])).view(fp8)
            if has_own:
                arrays[f"{name}_descale"] = numpy.full((count, page_size, heads), numpy.nan, numpy.float32)
    for name in "kv":
        for b, codes in enumerate(batch.codes[name]):
            for i, row in enumerate(codes):
                at = table[b, i // page_size], i % page_size
                arrays[name][at] = row
                if has_own:
                    arrays[f"{name}_descale"][at] = batch.scales[name][b][i]
        if not has_own:
            arrays[f"{name}_descale"] = batch.shared[name]
    for b, n in enumerate(batch.lengths_k):
        table[b, -(-n // page_size) :] = [-1, 1 << 30][b % 2]
    return arrays


def varlen(batch):
    """Arrays of a call over keys one request behind another."""
    arrays = {"cu_seqlens_k": boundaries(batch.lengths_k)}
    for name in "kv":
        arrays[name] = numpy.concatenate(batch.codes[name])
        arrays[f"{name}_descale"] = (
            numpy.concatenate(batch.scales[name]) if batch.shared[name] is None else batch.shared[name]
        )
    return arrays


def dense(rng, batch, room):
    """Arrays of a call over keys that have room for more, with NaN there."""
    arrays = {"seqused_k": int32(batch.lengths_k)}
    for name in "kv":
        _, heads, width = batch.codes[name][0].shape
        arrays[name] = poison(rng, (len(batch.q), room, heads, width)).view(batch.codes[name][0].dtype)
        scales = numpy.full((len(batch.q), room, heads), numpy.nan, numpy.float32)
        for b, codes in enumerate(batch.codes[name]):
            arrays[name][b, : len(codes)] = codes
            scales[b, : len(codes)] = batch.scales[name][b]
        arrays[f"{name}_descale"] = scales if batch.shared[name] is None else batch.shared[name]
    return arrays


def call(place, batch, arrays, **options):
    """Attention of varlen queries. Caches are given as bytes: NumPy's fp8 cannot be carried to other frameworks."""
    name = next(name for name, kind in FP8.items() if kind == arrays["k"].dtype)
    arrays = {
        key: place(array.view(numpy.uint8) if array.dtype == FP8[name] else array) for key, array in arrays.items()
    }
    return ja.attention(
        place(numpy.concatenate(batch.q)),
        arrays.pop("k"),
        arrays.pop("v"),
        cu_seqlens_q=place(boundaries([len(q) for q in batch.q])),
        kv_dtype=name,
        **arrays,
        **options,
    )
