"""FlashAttention-4's backward kernels of sm_100 on the emulator, which run on silicon: right, the same bits of dK and
dV for all seeds, and without findings but one that is explained. And changes of their text, which are found."""

import re
from dataclasses import dataclass
from math import gcd

import jit_attention as ja
import ml_dtypes
import numpy
import pytest
from others_kernels import flash_attention_4_sm100
from others_kernels.cutlass_parameters import SHARED_BYTES, by_rows, divisor, sizes, strided, tensor_map, tile_locks
from seeded import some

emulator = ja.emulator
i32, f32, bf16 = numpy.int32, numpy.float32, ml_dtypes.bfloat16
TILE = 128
SEEDS = 5

# Rows and keys of each sequence, KV heads.
ONE, SHORT, RAGGED = ([(128, 128)], 1), ([(1, 1)] * 2, 1), ([(200, 300)], 1)
SEVERAL, UNEVEN = ([(256, 384)], 2), ([(129, 255)] * 2, 1)
LONG = ([(900, 513)], 1)
DIAGONAL, LATER, MANY = ([(257, 257)], 1), ([(100, 333)], 2), ([(130, 70), (1, 200), (128, 129)], 1)
PROBLEMS = {
    "backward_64": [SEVERAL, UNEVEN, SHORT],
    "backward_96": [SEVERAL, RAGGED, LONG],
    "backward_128": [ONE, SEVERAL, RAGGED, SHORT, LONG],
    "backward_causal_64": [DIAGONAL, LATER],
    "backward_causal_128": [SEVERAL, DIAGONAL, LATER],
    "backward_gqa_64": [UNEVEN],
    "backward_gqa_128": [SEVERAL, RAGGED],
    "backward_varlen_128": [MANY, RAGGED],
    "backward_varlen_causal_gqa_64": [MANY],
    "backward_deterministic_128": [SEVERAL, DIAGONAL],
    "backward_causal_deterministic_64": [DIAGONAL],
    "backward_gqa_deterministic_128": [UNEVEN],
    "backward_pair_128": [ONE, SEVERAL, RAGGED, UNEVEN, LONG],
    "backward_causal_pair_128": [DIAGONAL],
    "backward_gqa_pair_128": [RAGGED],
    "backward_deterministic_pair_128": [SEVERAL],
    "backward_varlen_pair_128": [MANY],
    "backward_pair_192_128": [SEVERAL, RAGGED],
    "backward_causal_pair_192_128": [LATER],
}


@dataclass
class Form:
    """Reads a kernel's properties from its name."""

    name: str

    def __post_init__(self):
        words = self.name.split("_")
        head_dims = [int(word) for word in words if word.isdigit()]
        self.head_dim, self.head_dim_v = head_dims[0], head_dims[-1]
        self.group = 2 if "gqa" in words else 1
        self.blocks = 2 if "pair" in words else 1
        self.is_causal, self.is_varlen, self.in_order = (x in words for x in ("causal", "varlen", "deterministic"))


def up(number, step):
    return -(-number // step) * step


def reference(form, q, k, v, dout):
    """LSE, the sums over dP · P, and dQ, dK, dV of a sequence in fp64. Arrays are (rows, heads, head_dim)."""
    k, v = (numpy.repeat(x, form.group, 1) for x in (k, v))
    scale = form.head_dim**-0.5
    scores = numpy.einsum("qhd,khd->hqk", q, k) * scale
    if form.is_causal:
        scores[..., ~numpy.tri(len(q), len(k), len(k) - len(q), dtype=bool)] = -numpy.inf
    top = scores.max(-1, keepdims=True)
    top[top == -numpy.inf] = 0  # rows without keys, whose LSE is taken as 0
    weights = numpy.exp(scores - top)
    total = weights.sum(-1, keepdims=True)
    total[total == 0] = 1
    weights /= total
    dp = numpy.einsum("qhd,khd->hqk", dout, v)
    sums = (weights * dp).sum(-1)
    ds = weights * (dp - sums[..., None])
    dk = numpy.einsum("hqk,qhd->khd", ds, q)
    dv = numpy.einsum("hqk,qhd->khd", weights, dout)
    dk, dv = (x.reshape(len(k), -1, form.group, x.shape[-1]).sum(2) for x in (dk, dv))
    return (numpy.log(total) + top)[..., 0], sums, numpy.einsum("hqk,khd->qhd", ds, k), dk, dv


def in_fragments(tiles, blocks=1):
    """Whole tiles (heads, rows, columns) as the kernels reduce them to global memory: of each of the pair its rows, as
    lanes of tensor memory behind each other, 4 columns at a time."""
    heads, rows, columns = tiles.shape
    halves = tiles.reshape(heads, rows // TILE, blocks, TILE // blocks, blocks, columns // blocks // 4, 4)
    return halves.transpose(0, 1, 2, 5, 4, 3, 6).reshape(heads, -1)


class Problem:
    """Tensors of a call; sequences lie behind each other (varlen) or are batch entries."""

    def __init__(self, form, lengths, heads, rng):
        self.form, self.lengths = form, lengths
        self.heads, self.heads_k = heads * form.group, heads
        self.rows, self.keys = ([length[i] for length in lengths] for i in (0, 1))
        shapes = ((self.rows, self.heads, form.head_dim), (self.keys, heads, form.head_dim),
                  (self.keys, heads, form.head_dim_v), (self.rows, self.heads, form.head_dim_v))  # fmt: skip
        q, k, v, dout = ([rng.standard_normal((n, *shape)).astype(bf16) for n in lengths] for lengths, *shape in shapes)
        self.expected = [reference(form, *(x.astype(float) for x in those)) for those in zip(q, k, v, dout)]
        together = numpy.concatenate if form.is_varlen else numpy.stack
        self.q, self.k, self.v, self.dout = (together(x) for x in (q, k, v, dout))
        self.lse, self.sums = (self.padded([e[i] for e in self.expected], value)
                               for i, value in ((0, numpy.inf), (1, 0)))  # fmt: skip
        self.lse *= f32(numpy.log2(numpy.e))
        width = self.lse.shape[-1]
        self.dq = numpy.zeros((*self.lse.shape[:-1], width * form.head_dim), f32)
        if form.group == 1:
            self.dk, self.dv = (numpy.zeros(x.shape, bf16) for x in (self.k, self.v))
        else:
            keys = self.places(self.keys)[1] if form.is_varlen else up(max(self.keys), TILE * form.blocks)
            outer = (heads,) if form.is_varlen else (len(lengths), heads)
            self.dk, self.dv = (numpy.zeros((*outer, keys * x.shape[-1]), f32) for x in (self.k, self.v))
        # Whose turn it is to add to a tile of dQ, dK and dV.
        tiles = [(self.heads, max(self.rows), form.blocks)] + [(heads, max(self.keys), 2)] * (2 * (form.group > 1))
        self.locks = [numpy.zeros((len(lengths), n, up(length, TILE) // TILE, stages), i32)
                      for n, length, stages in tiles]  # fmt: skip

    def places(self, lengths):
        """Where sequences begin in padded rows, and how many there are in all."""
        begins = numpy.concatenate([[0], numpy.cumsum(lengths)])
        padded = [(begin + i * TILE) // TILE * TILE for i, begin in enumerate(begins)]
        return padded[:-1], int(padded[-1])

    def padded(self, numbers, value):
        """Numbers (heads, rows) of sequences, in rows of whole tiles."""
        if not self.form.is_varlen:
            widths = [(0, 0), (0, 0), (0, up(max(self.rows), TILE) - max(self.rows))]
            return numpy.ascontiguousarray(numpy.pad(numpy.stack(numbers), widths, constant_values=value), f32)
        begins, total = self.places(self.rows)
        all_rows = numpy.full((self.heads, total), value, f32)
        for begin, those in zip(begins, numbers):
            all_rows[:, begin : begin + those.shape[-1]] = those
        return all_rows

    def maps(self):
        form = self.form
        # The widest swizzle that divides the columns, and those that each of two blocks, or warpgroups, has.
        d, d_half, dv, dv_half = (gcd(64, n // k) for n in (form.head_dim, form.head_dim_v) for k in (1, 2))
        if form.blocks == 1:
            loads = [(self.q, TILE, d), (self.k, TILE, d), (self.v, TILE, dv), (self.dout, TILE, dv)]
        else:
            loads = [(self.q, 64, d), (self.q, TILE, d_half), (self.k, TILE, d), (self.k, 2 * TILE, d_half),
                     (self.v, TILE, dv), (self.dout, TILE, dv_half), (self.dout, 64, dv)]  # fmt: skip
        by_tma = form.group == 1 and not form.is_varlen
        stores = [(self.dv, TILE, dv_half), (self.dk, TILE, d_half)] if by_tma else []
        return [tensor_map(*box) for box in loads + stores]

    def scheduler(self):
        form, batch = self.form, len(self.lengths)
        tiles = up(max(self.keys), TILE * form.blocks) // TILE
        if form.is_varlen:
            total = sum(self.keys)
            blocks = (total + batch * (TILE * form.blocks - 1)) // TILE // form.blocks * form.blocks * self.heads
            bytes_of_keys = (form.head_dim + form.head_dim_v) * 2 * TILE
            return [total, self.heads, batch, 50 * 2**20 // bytes_of_keys, self.begins(self.keys)], (blocks, 1, 1)
        if not form.in_order:
            return [tiles, self.heads, batch, *divisor(1)], (tiles, self.heads, batch)
        section = 1  # heads that fit the L2 cache
        while 2 * section * max(self.rows) * (2 * (form.head_dim + form.head_dim_v) + 4 * form.head_dim) <= 50 * 2**20:
            section *= 2
        slices, steps = self.heads * batch, tiles // form.blocks
        return [tiles * slices, steps, section, *divisor(self.heads), *divisor(section), *divisor(section * steps),
                *divisor(max(slices % section, 1)), slices // section], (tiles * slices, 1, 1)  # fmt: skip

    @staticmethod
    def begins(lengths):
        begins = numpy.concatenate([[0], numpy.cumsum(lengths)]).astype(i32)
        return (begins, i32(len(begins)))

    def run(self, ptx, seed):
        form, twice = self.form, self.form.blocks  # the transposed tensors of a pair are parameters of their own
        (kernel,) = emulator.load(ptx).kernels
        stored = by_rows if form.group > 1 else strided
        by_tma = form.group == 1 and not form.is_varlen
        arguments = [*[sizes(self.q)] * twice, *[sizes(self.k)] * twice, sizes(self.v), by_rows(self.lse),
                     by_rows(self.sums), *[sizes(self.dout)] * twice, stored(self.dv), stored(self.dk),
                     by_rows(self.dq), *(sizes(x) if by_tma else stored(x) for x in (self.dv, self.dk))]  # fmt: skip
        if form.in_order:
            arguments += [tile_locks(locks) for locks in self.locks]
        if form.is_varlen:
            arguments += [self.begins(self.rows), self.begins(self.keys)]
        arguments += self.maps()
        arguments += [bytes(kernel.parameters[i].bytes) for i in range(len(arguments), len(arguments) + 5)]
        scale = form.head_dim**-0.5
        work, grid = self.scheduler()
        arguments += [scale, float(scale * numpy.log2(numpy.e)), *work]
        for output in (self.dq, self.dk, self.dv, *self.locks):
            output[:] = 0
        return kernel(grid, 512, *arguments, cluster=form.blocks, dynamic_shared=SHARED_BYTES, seed=seed,
                      level="silicon")  # fmt: skip

    def check(self):
        form = self.form
        scale = form.head_dim**-0.5
        for i, (_, keys) in enumerate(self.lengths):
            *_, dq, dk, dv = self.expected[i]
            self.check_fragments(self.dq, self.rows, i, dq, form.blocks, 0.05)
            if form.group > 1:
                self.check_fragments(self.dk, self.keys, i, dk, 1, 0.1)
                self.check_fragments(self.dv, self.keys, i, dv, 1, 0.03)
                continue
            begin = sum(self.keys[:i])
            for found, wanted in ((self.dk, dk * scale), (self.dv, dv)):
                own = found[begin : begin + keys] if form.is_varlen else found[i]
                assert numpy.abs(own.astype(float) - wanted).max() < 0.02

    def check_fragments(self, found, lengths, i, wanted, blocks, tolerance):
        length, heads, columns = wanted.shape
        whole = up(length, TILE)
        own = found[i][:, : whole * columns] if not self.form.is_varlen else (
            found[:, self.places(lengths)[0][i] * columns :][:, : whole * columns])  # fmt: skip
        tiles = numpy.pad(wanted.transpose(1, 0, 2), [(0, 0), (0, whole - length), (0, 0)])
        assert numpy.abs(own - in_fragments(tiles, blocks)).max() < tolerance


def unexplained(report, ptx):
    """Findings but those of the last bulk stores of dK and dV, which are in no bulk group that a kernel waits for."""
    lines = ptx.split("\n")

    def is_explained(finding):
        line = lines[finding.ptx_line - 1]
        return finding.kind == "unfinished copy" and line.strip().startswith("cp.") and ".global.shared::cta" in line

    return [str(finding) for finding in report.findings if not is_explained(finding)]


@pytest.mark.parametrize("name", some(PROBLEMS, 5))
def test_backward(name, rng):
    form = Form(name)
    ptx = flash_attention_4_sm100(name)
    for lengths, heads in some(PROBLEMS[name], 2):
        problem = Problem(form, lengths, heads, rng)
        bits = set()
        for seed in range(SEEDS):
            report = problem.run(ptx, seed)
            assert not unexplained(report, ptx), (lengths, heads, seed)
            problem.check()
            bits.add(b"".join(x.tobytes() for x in (problem.dk, problem.dv) if form.group == 1 or form.in_order)
                     + (problem.dq.tobytes() if form.in_order else b""))  # fmt: skip
        assert len(bits) == 1, (lengths, heads)


ADDRESS = r"\[(%r\d+)(?:\+(\d+))?\]"
# Replacements of lines that begin so; each of them is found.
CHANGES = {
    "tcgen05.wait::st": lambda line: "",
    "tcgen05.alloc": lambda line: re.sub(r", %r\d+;", ", 96;", line),
    "tcgen05.dealloc": lambda line: "",
    "tcgen05.ld": lambda line: re.sub(ADDRESS, lambda at: f"[{at[1]}+{int(at[2] or 0) + (32 << 16)}]", line),
    "tcgen05.st": lambda line: re.sub(ADDRESS, lambda at: f"[{at[1]}+{int(at[2] or 0) + 8}]", line),
    "mov.b32 idesc": lambda line: re.sub(r"(0x\w+)", lambda bits: hex(int(bits[1], 16) ^ 1 << 8), line),
}
# Lines that are left out, and how many of them must be missed. Fences behind which nothing is copied, barriers beside
# another one or in front of an arrival by each warp, and arrivals that nobody waits for are not.
OMISSIONS = {"tcgen05.commit": 0.8, "fence.proxy.async": 0.6, "bar.sync": 0.5, "cp.async.bulk.wait_group": 0.6}


@pytest.mark.parametrize("name", some(["backward_128", "backward_pair_128"], 2))
def test_changes_of_the_text_are_found(name, rng):
    problem = Problem(Form(name), [(512, TILE)], 1, rng)
    lines = flash_attention_4_sm100(name).split("\n")

    def is_found(place, change):
        text = "\n".join([*lines[:place], change(lines[place]), *lines[place + 1 :]])
        return bool(unexplained(problem.run(text, 0), text))

    def places(start):
        return [i for i, line in enumerate(lines) if line.strip().startswith(start)]

    assert not unexplained(problem.run("\n".join(lines), 0), "\n".join(lines))
    for start, change in CHANGES.items():
        for place in some(places(start)):
            assert is_found(place, change), f"line {place + 1}, {start}"
    for start, share in OMISSIONS.items():
        found = [is_found(place, lambda line: "") for place in places(start)]
        assert sum(found) >= share * len(found), (start, [i + 1 for i, it in zip(places(start), found) if not it])
