"""Keys and values of 8 and 4 bits as caches hold them, and what they stand for: rows of bytes, scales and zero points."""

from dataclasses import dataclass

import jit_attention as ja
import ml_dtypes
import numpy
from request_batches import BF16, Requests, boundaries, int32

E4M3 = numpy.dtype(ml_dtypes.float8_e4m3fn)
E2M1 = numpy.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])

#: Columns that share a scale of a byte.
BLOCKS = {"nvfp4": 16, "mxfp4": 32}
NAMES = ["int8", "int4", "nvfp4", "mxfp4"]
DESCALE = {"int8": "token", "int4": "token", "nvfp4": "head", "mxfp4": "head"}


@dataclass
class Stored:
    """Rows (n, heads, bytes); fp32 scales, (n, heads) with tokens, (heads) else; bytes of blocks (n, heads, blocks) or
    None; and the numbers in double precision."""

    rows: numpy.ndarray
    scales: numpy.ndarray
    blocks: numpy.ndarray | None
    numbers: numpy.ndarray


def halves(codes):
    """Two codes of 4 bits in a byte, the first in the low half."""
    return (codes[..., ::2] | codes[..., 1::2] << 4).astype(numpy.uint8)


def nearest_e2m1(x):
    """Codes of the nearest numbers, of two as near ones of that with an even code."""
    middles = numpy.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])
    magnitude = numpy.abs(x)[..., None]
    above = (magnitude > middles) | ((magnitude == middles) & (numpy.arange(7) % 2 == 1))
    return (above.sum(-1) | numpy.where(numpy.signbit(x), 8, 0)).astype(numpy.uint8)


def stored(name, x, scale_of_head=None, by_head=False):
    """Rounds (n, heads, width) numbers, with the scales that `append` finds; those of heads are given."""
    x = x.astype(numpy.float32)
    if by_head:
        rows = numpy.clip(numpy.rint(x / scale_of_head[:, None]), -128, 127).astype(numpy.int8)
        return Stored(rows, scale_of_head, None, rows * scale_of_head[:, None].astype(float))
    if name == "int8":
        largest = numpy.abs(x).max(-1)
        scales = numpy.where(largest < 2.0**-100, 1, largest / numpy.float32(127)).astype(numpy.float32)
        rows = numpy.clip(numpy.rint(x * (1 / scales)[..., None]), -127, 127).astype(numpy.int8)
        return Stored(rows, scales, None, rows * scales[..., None].astype(float))
    if name == "int4":
        least, most = x.min(-1), x.max(-1)
        scales = numpy.maximum((most - least) / numpy.float32(15), numpy.float32(1e-6))
        zeros = numpy.clip(numpy.rint(-least / scales), 0, 15)
        codes = numpy.clip(numpy.rint(x * (1 / scales)[..., None] + zeros[..., None]), 0, 15).astype(numpy.uint8)
        bits = scales.astype(numpy.float32).view(numpy.int32) & -16
        numbers = (codes - zeros[..., None].astype(float)) * bits.view(numpy.float32)[..., None].astype(float)
        return Stored(halves(codes), (bits | zeros.astype(numpy.int32)).view(numpy.float32), None, numbers)
    block = BLOCKS[name]
    heads = numpy.float32(1) if scale_of_head is None else scale_of_head
    heads = numpy.broadcast_to(heads, x.shape[1:2]).astype(numpy.float32)
    parts = x.reshape(*x.shape[:2], x.shape[2] // block, block) / heads[:, None, None]
    largest = numpy.abs(parts).max(-1)
    if name == "nvfp4":
        bytes_ = (largest / 6).astype(E4M3).view(numpy.uint8)
        of_blocks = bytes_.view(E4M3).astype(float)
    else:  # floor(log2) - 2, as the specification has it
        exponents = numpy.floor(numpy.log2(numpy.maximum(largest, 2.0**-60))) - 2
        bytes_ = numpy.clip(exponents + 127, 106, 135).astype(numpy.uint8)
        of_blocks = 2.0 ** (bytes_.astype(int) - 127)
    codes = nearest_e2m1(parts / numpy.where(of_blocks == 0, 1, of_blocks)[..., None])
    numbers = (E2M1[codes] * of_blocks[..., None]).reshape(x.shape) * heads[:, None].astype(float)
    return Stored(halves(codes.reshape(x.shape)), heads, bytes_, numbers)


def by_halves_of_scales(name, part):
    """Numbers times scales of tokens as bf16 makes them: of the upper half of a scale, and of the rest of it."""
    bits = part.scales.view(numpy.uint32) & numpy.uint32(0xFFFFFFF0 if name == "int4" else 0xFFFFFFFF)
    scales = bits.view(numpy.float32)
    upper = (bits & numpy.uint32(0xFFFF0000)).view(numpy.float32)
    rest = (scales - upper).astype(BF16).astype(float)
    whole = numpy.rint(part.numbers / scales[..., None].astype(float))
    return whole * upper[..., None].astype(float) + (whole * rest[..., None]).astype(BF16).astype(float)


def held_nvfp4(rows, blocks, x, scales):
    """The numbers that rows of bytes, (n, heads, width / 2), and scales of blocks stand for: those of x, but for a few codes,
    whose quotients are rounded otherwise."""
    right = stored("nvfp4", x.astype(numpy.float32), scales)
    assert numpy.array_equal(blocks, right.blocks)
    steps = numpy.stack([numpy.abs((rows >> s & 15).astype(int) - (right.rows >> s & 15)) for s in (0, 4)])
    assert steps.max(initial=0) <= 1 and (steps.size == 0 or steps.mean() < 0.005)
    codes = numpy.stack([rows & 15, rows >> 4], -1).reshape(x.shape)
    of_columns = blocks.view(E4M3).astype(float).repeat(BLOCKS["nvfp4"], -1)
    return E2M1[codes] * of_columns * right.scales[:, None].astype(float)


@dataclass
class Cached:
    """Requests whose keys and values are stored, one by one."""

    name: str
    q: list
    parts: dict  #: of "k" and "v": of each request Stored

    @property
    def lengths_k(self):
        return [len(part.rows) for part in self.parts["k"]]

    def check(self, o, lse=None, rounded=False, by_halves=False, **options):
        """`rounded`: keys and values became numbers of q's type; `by_halves`: bf16 by halves of scales of tokens."""
        has_tokens = self.parts["k"][0].scales.ndim == 2
        if has_tokens and not by_halves:  # the products of P are of bf16 then
            options["p_dtype"] = BF16
        numbers = {name: [part.numbers for part in parts] for name, parts in self.parts.items()}
        if rounded:
            own = self.q[0].dtype
            if by_halves and has_tokens and own == BF16:
                parts = self.parts
                numbers = {name: [by_halves_of_scales(self.name, x) for x in parts[name]] for name in parts}
            for name, parts in numbers.items():  # scales of heads are applied in fp32
                scales = numpy.ones(parts[0].shape[1]) if has_tokens else self.parts[name][0].scales
                numbers[name] = [(x / scales[:, None]).astype(own).astype(float) * scales[:, None] for x in parts]
        Requests(self.q, numbers["k"], numbers["v"]).check(o, lse, **options)


def cached(
    rng, lengths_q, lengths_k, name, *, heads_kv=2, ratio=4, head_dim=64, head_dim_v=None, dtype=BF16, by_head=False
):
    """Random ones. `by_head`: int8 with scales of heads."""
    scale = rng.uniform(0.5, 2, heads_kv).astype(numpy.float32) / (32 if by_head else 1)
    parts = {
        each: [stored(name, rng.standard_normal((n, heads_kv, width)), scale, by_head) for n in lengths_k]
        for each, width in (("k", head_dim), ("v", head_dim_v or head_dim))
    }
    q = [rng.standard_normal((n, heads_kv * ratio, head_dim)).astype(dtype) for n in lengths_q]
    return Cached(name, q, parts)


def pages(rng, batch, page_size, *, inline=False, spare=3):
    """Arrays of a call over pages in any order, random bytes and NaN wherever no request has a row or a scale. With
    `inline`, scales of a head lie behind its elements; those of tokens, and K beside V, as in vLLM's caches: by rows or
    by heads (K, its scale, V, its scale)."""
    most = max(1, max(-(-n // page_size) for n in batch.lengths_k))
    count = len(batch.q) * most + spare
    table = int32(rng.permutation(count)[: len(batch.q) * most].reshape(len(batch.q), most))
    arrays = {"page_table": table, "seqused_k": int32(batch.lengths_k)}
    beside_each_other = inline and batch.parts["k"][0].scales.ndim == 2
    if beside_each_other:
        heads = batch.parts["k"][0].rows.shape[1]
        content = sum(parts[0].rows.shape[2] + 4 for parts in batch.parts.values())
        by_heads = bool(rng.integers(2))
        order = (heads, page_size) if by_heads else (page_size, heads)
        memory = rng.integers(0, 256, (count, *order, content), numpy.uint8)
        memory = memory.swapaxes(1, 2) if by_heads else memory
    begin = 0
    for name, parts in batch.parts.items():
        first = parts[0]
        heads, width = first.rows.shape[1:]
        blocks = 0 if first.blocks is None else first.blocks.shape[2]
        has_tokens = first.scales.ndim == 2
        beside = blocks or 4 * has_tokens
        pool = rng.integers(0, 256, (count, page_size, heads, width + (beside if inline else 0)), numpy.uint8)
        if beside_each_other:
            pool = memory[..., begin : begin + width + 4]
            begin += width + 4
        arrays[name] = pool[..., :width]
        if has_tokens:
            scales = numpy.full((count, page_size, heads), numpy.nan, numpy.float32)
            if inline:
                scales = pool[..., width:].view(numpy.float32)[..., 0]
                scales[...] = numpy.nan
            arrays[f"{name}_descale"] = scales
        else:
            arrays[f"{name}_descale"] = first.scales
        if blocks:
            arrays[f"{name}_block_scales"] = (
                pool[..., width:] if inline else numpy.full((count, page_size, heads, blocks), 0x7F, numpy.uint8)
            )
        for b, part in enumerate(parts):
            for i in range(len(part.rows)):
                at = table[b, i // page_size], i % page_size
                arrays[name][at] = part.rows[i].view(numpy.uint8)
                if has_tokens:
                    arrays[f"{name}_descale"][at] = part.scales[i]
                if blocks:
                    arrays[f"{name}_block_scales"][at] = part.blocks[i]
    for b, n in enumerate(batch.lengths_k):
        table[b, -(-n // page_size) :] = [-1, 1 << 30][b % 2]
    return arrays


def varlen(batch):
    """Arrays of a call over keys one request behind another."""
    arrays = {"cu_seqlens_k": boundaries(batch.lengths_k)}
    for name, parts in batch.parts.items():
        arrays[name] = numpy.concatenate([part.rows for part in parts]).view(numpy.uint8)
        own = parts[0].scales.ndim == 2
        arrays[f"{name}_descale"] = numpy.concatenate([part.scales for part in parts]) if own else parts[0].scales
        if parts[0].blocks is not None:
            arrays[f"{name}_block_scales"] = numpy.concatenate([part.blocks for part in parts])
    return arrays


def call(place, batch, arrays, attend=None, **options):
    """Attention of varlen queries; by a prepared call, if there is one."""
    arrays = {key: place(array) for key, array in arrays.items()}
    if attend is None:
        attend, options = ja.attention, {"kv_dtype": batch.name, **options}
    return attend(
        place(numpy.concatenate(batch.q)),
        arrays.pop("k"),
        arrays.pop("v"),
        cu_seqlens_q=place(boundaries([len(q) for q in batch.q])),
        **arrays,
        **options,
    )
