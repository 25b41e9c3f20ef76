"""FlashAttention-4's forward kernels of sm_100 on the emulator, which run on silicon: right, the same bits for all
seeds, and without findings. And changes of their text, each of which is found."""

import re

import jit_attention as ja
import ml_dtypes
import numpy
import pytest
from others_kernels import flash_attention_4_sm100
from others_kernels.cutlass_parameters import SHARED_BYTES, by_rows, divisor, sizes, tensor_map
from seeded import some

emulator = ja.emulator
f32 = numpy.float32

# Head dim, rows, keys, heads, batch.
SIZES = [(256, 256, 1, 1), (512, 384, 2, 1), (200, 300, 1, 2), (1024, 640, 1, 1), (130, 128, 3, 1), (513, 1, 1, 2)]
FORWARDS = ["forward_64", "forward_128", "causal_128", "fp8_128", "pair_128"]


def scheduler(name, rows, heads, batch):
    """The parameters that say which block has which tile, and the grid."""
    of_pair, is_causal = name.startswith("pair"), name.startswith("causal")
    tiles = -(-rows // (512 if of_pair else 256))
    total = tiles * heads * batch
    if not is_causal:
        return (*divisor(tiles), *divisor(heads), total, 1), (2 if of_pair else 1) * total
    section = 8  # heads that fit the L2 cache
    left = heads * batch % section
    return (total, 1, tiles, heads, batch, section, *divisor(heads), *divisor(section), *divisor(section * tiles),
            *divisor(max(left, 1)), heads * batch // section, *divisor(1), 1), total  # fmt: skip


def run_forward(name, ptx, q, k, v, o, lse, most_blocks=148, **options):
    (forward,) = emulator.load(ptx).kernels
    batch, rows, heads, head_dim = q.shape
    columns = 128 // q.itemsize
    key_rows = 64 if name.startswith("pair") else 128
    work, blocks = scheduler(name, rows, heads, batch)
    products = [bytes(forward.parameters[i].bytes) for i in (10, 11)]
    arguments = (sizes(q), sizes(k), sizes(v), sizes(o), by_rows(lse), tensor_map(q, 128, columns),
                 tensor_map(k, key_rows, columns), tensor_map(v, 128, columns), tensor_map(o, 128),
                 float(numpy.log2(numpy.e) * head_dim**-0.5), *products, *work)  # fmt: skip
    return forward(min(blocks, most_blocks), 512, *arguments, cluster=2 if name.startswith("pair") else 1,
                   dynamic_shared=SHARED_BYTES, level="silicon", **options)  # fmt: skip


def attention(q, k, v, is_causal):
    scores = numpy.einsum("bqhd,bkhd->bhqk", q, k) / numpy.sqrt(q.shape[-1])
    if is_causal:
        scores[..., ~numpy.tri(*scores.shape[-2:], scores.shape[-1] - scores.shape[-2], dtype=bool)] = -numpy.inf
    top = scores.max(-1, keepdims=True)
    weights = numpy.exp(scores - top)
    total = weights.sum(-1, keepdims=True)
    return weights / total, (numpy.log(total) + top)[..., 0]


@pytest.mark.parametrize("size", some(SIZES, 3))
@pytest.mark.parametrize("name", some(FORWARDS, 2))
def test_forward(name, size, rng):
    rows, keys, heads, batch = size
    is_causal, head_dim = name.startswith("causal"), int(name.split("_")[-1])
    keys = rows if is_causal else keys
    dtype = ml_dtypes.float8_e4m3fn if name.startswith("fp8") else ml_dtypes.bfloat16
    q, k, v = (rng.standard_normal((batch, n, heads, head_dim)).astype(dtype) for n in (rows, keys, keys))
    o, lse = numpy.zeros(q.shape, ml_dtypes.bfloat16), numpy.zeros((batch, heads, rows), f32)
    bits = set()
    for seed in range(5):
        o[:], lse[:] = 0, 0
        report = run_forward(name, flash_attention_4_sm100(name), q, k, v, o, lse, seed=seed)
        assert not report.findings, report
        bits.add(o.tobytes() + lse.tobytes())
    assert len(bits) == 1
    weights, expected_lse = attention(*(x.astype(float) for x in (q, k, v)), is_causal)
    expected = numpy.einsum("bhqk,bkhd->bqhd", weights, v.astype(float))
    tolerance = 0.03 if name.startswith("fp8") else 0.01
    assert (numpy.abs(o.astype(float) - expected) < tolerance * (1 + numpy.abs(expected))).all()
    assert numpy.abs(lse - expected_lse).max() < 1e-3


def moved(by):
    """Another column, or lane, in an address [%r1+2]."""
    return lambda match: f"[{match[1]}+{int(match[2] or 0) + by}]"


ADDRESS = r"\[(%r\d+)(?:\+(\d+))?\]"
# A change of the lines that begin so: what becomes of the line, and of how many of them, one at a time.
CHANGES = {
    "tcgen05.wait::st": (lambda line: "", 6),
    "tcgen05.commit": (lambda line: "", 6),
    "tcgen05.alloc": (lambda line: re.sub(r", %r\d+;", ", 96;", line), 1),
    "tcgen05.dealloc": (lambda line: "", 1),
    "tcgen05.ld": (lambda line: re.sub(ADDRESS, moved(32 << 16), line), 4),
    "tcgen05.st": (lambda line: re.sub(ADDRESS, moved(8), line), 6),
    "fence.proxy.async": (lambda line: "", 2),
    "cp.async.bulk.wait_group": (lambda line: "", 2),
    "mov.b32 fa_fwd_qk_mma_idesc": (lambda line: line.replace("0x8200490", "0x8220490"), 1),
    "mov.b32 idesc, 0x8210490": (lambda line: line.replace("0x8210490", "0x8210690"), 2),
    "bar.sync": (lambda line: "", 3),
}


def test_changes_of_the_text_are_found(rng):
    name = "forward_128"
    lines = flash_attention_4_sm100(name).split("\n")
    # Maxima that grow by more than 2^8 a tile, so that all sums are rescaled.
    k = rng.standard_normal((1, 512, 1, 128)) * (1 + numpy.arange(512)[:, None, None] / 8)
    q, v = (rng.standard_normal((1, 512, 1, 128)).astype(ml_dtypes.bfloat16) for _ in range(2))
    k = k.astype(ml_dtypes.bfloat16)
    o, lse = numpy.zeros(q.shape, ml_dtypes.bfloat16), numpy.zeros((1, 1, 512), f32)
    options = {"most_blocks": 1, "step_limit": 10**6}  # so that a block has a tile behind another
    assert not run_forward(name, "\n".join(lines), q, k, v, o, lse, **options).findings
    changed = 0
    for start, (change, count) in CHANGES.items():
        places = [i for i, line in enumerate(lines) if line.strip().startswith(start)]
        assert places, start
        for place in some(places[:: max(1, len(places) // count)][:count], 2):
            text = [*lines[:place], change(lines[place]), *lines[place + 1 :]]
            assert text != lines, start
            report = run_forward(name, "\n".join(text), q, k, v, o, lse, **options)
            assert report.findings, f"line {place + 1}, {start}"
            changed += 1
    assert changed >= 10
