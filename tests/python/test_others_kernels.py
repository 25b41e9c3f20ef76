"""Kernels of Triton and FlashAttention-4 on the emulator: right, and without findings but those that are explained."""

import jit_attention as ja
import ml_dtypes
import numpy
import pytest
from others_kernels import flash_attention_4, flash_attention_4_arguments, triton_kernels
from seeded import some

emulator = ja.emulator


@pytest.mark.parametrize("arch", [90, 120])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_matmul_of_triton(arch, seed, rng):
    ptx, shared = triton_kernels()["matmul", arch]
    (matmul,) = emulator.load(ptx).kernels
    a, b = (rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((128, 96), (96, 192)))
    c = numpy.empty((128, 192), numpy.float32)
    rest = [None] * (len(matmul.parameters) - 6)  # scratch memory, which it does not use
    # Versions before 3.9 copy by cp.async and multiply by wgmma without the fence that PTX asks for.
    report = matmul((2, 3), 128, a, b, emulator.Output(c), 128, 192, 96, *rest, dynamic_shared=shared, seed=seed,
                    allow={"missing proxy fence"} if arch == 90 and ".version 9.4" not in ptx else ())
    assert not report.findings, report
    assert numpy.abs(c - a.astype(float) @ b.astype(float)).max() < 1e-4
    assert report.counts["total"]["tensor_flops"] == 2 * 128 * 192 * 96


@pytest.mark.parametrize("arch", [90, 120])
def test_a_softmax_of_triton(arch, rng):
    ptx, shared = triton_kernels()["softmax", arch]
    (softmax,) = emulator.load(ptx).kernels
    x = rng.standard_normal((5, 300)).astype(numpy.float32)
    y = numpy.empty_like(x)
    report = softmax(5, 128, x, emulator.Output(y), 300, *[None] * (len(softmax.parameters) - 3), dynamic_shared=shared)
    assert not report.findings, report
    weights = numpy.exp(x.astype(float) - x.max(1, keepdims=True))
    assert numpy.abs(y - weights / weights.sum(1, keepdims=True)).max() < 1e-6


@pytest.mark.parametrize("arch", [90, 120])
def test_a_race_in_a_kernel_of_triton_is_found_with_its_line(arch):
    ptx, shared = triton_kernels()["racy_sum", arch]
    (racy_sum,) = emulator.load(ptx).kernels
    x, total = numpy.ones(1024, numpy.float32), numpy.zeros(1, numpy.float32)
    rest = [None] * (len(racy_sum.parameters) - 2)
    report = racy_sum(4, 128, x, total, *rest, dynamic_shared=shared)
    races = [finding for finding in report.findings if finding.kind == "data race"]
    assert races, report
    with open(races[0].file) as source:
        line = source.read().splitlines()[races[0].line - 1]
    assert "total" in line and ("tl.load" in line or "tl.store" in line), (line, report)
    assert not racy_sum(1, 128, x, total, *rest, dynamic_shared=shared).findings, "one block alone has no race"


def attention(q, k, v, causal):
    scores = numpy.einsum("bqhd,bkhd->bhqk", q.astype(float), k.astype(float)) / numpy.sqrt(q.shape[-1])
    if causal:
        scores[..., ~numpy.tri(*scores.shape[-2:], scores.shape[-1] - scores.shape[-2], dtype=bool)] = -numpy.inf
    weights = numpy.exp(scores - scores.max(-1, keepdims=True))
    lse = numpy.log(weights.sum(-1)) + scores.max(-1)
    return numpy.einsum("bhqk,bkhd->bqhd", weights / weights.sum(-1, keepdims=True), v.astype(float)), lse


def forward_problem(rng, head_dim, batch, rows, keys, heads):
    q, k, v = (rng.standard_normal((batch, n, heads, head_dim)).astype(ml_dtypes.bfloat16) for n in (rows, keys, keys))
    return q, k, v, numpy.zeros_like(q), numpy.zeros((batch, heads, rows), numpy.float32)


def check_forward(problem, causal):
    q, k, v, o, lse = problem
    expected, expected_lse = attention(q, k, v, causal)
    assert numpy.abs(o.astype(float) - expected).max() < 0.01
    assert numpy.abs(lse - expected_lse).max() < 1e-3


PROBLEMS = [(64, False, 1, 256, 128, 2), (64, True, 2, 128, 192, 1), (64, False, 1, 200, 300, 2), (128, False, 1, 100, 130, 2),
            (128, False, 1, 128, 64, 1), (64, True, 1, 300, 300, 1)]  # fmt: skip


@pytest.mark.parametrize("head_dim, causal, batch, rows, keys, heads", some(PROBLEMS))
def test_flash_attention_4_of_sm_120(head_dim, causal, batch, rows, keys, heads, rng):
    (forward,) = emulator.load(flash_attention_4("sm_120a")[head_dim, causal]).kernels
    problem = forward_problem(rng, head_dim, batch, rows, keys, heads)
    arguments = flash_attention_4_arguments("sm_120a", *problem, head_dim**-0.5)
    # Rows behind the end of an array are not loaded, and their scores are masked or their outputs not stored.
    has_partial_tiles = rows % 128 or keys % 64
    allowed = {"uninitialized read of shared memory"} if has_partial_tiles else set()
    grid = -(-rows // 128), heads, batch
    report = forward(grid, 128, *arguments, dynamic_shared=98304)
    assert {finding.kind for finding in report.findings} <= allowed, report
    bits = problem[3].tobytes()
    for seed in range(2):
        report = forward(grid, 128, *arguments, dynamic_shared=98304, seed=seed, allow=allowed)
        assert not report.findings, report
        assert problem[3].tobytes() == bits
    check_forward(problem, causal)


FULL = [(head_dim, *sizes) for head_dim, causal, *sizes in PROBLEMS if not causal]


@pytest.mark.parametrize("head_dim, batch, rows, keys, heads", some(FULL, turn=1))
def test_flash_attention_4_of_sm_90(head_dim, batch, rows, keys, heads, rng):
    """TMA and wgmma, by tensor maps."""
    module = emulator.load(flash_attention_4("sm_90a")[head_dim, False])
    problem = forward_problem(rng, head_dim, batch, rows, keys, heads)
    arguments = flash_attention_4_arguments("sm_90a", *problem, head_dim**-0.5)
    grid = -(-rows // 128), heads, batch
    # All lanes of a warp issue the store of o, each the same: one store on silicon, and races to the letter of PTX.
    strict = module.kernels[0](grid, 384, *arguments, dynamic_shared=232448)
    for finding in strict.findings:
        text = module.ptx.splitlines()[finding.ptx_line - 1]
        assert finding.kind == "data race" and "cp.async.bulk.tensor.4d.global.shared::cta" in text, strict
    for seed in range(2):
        report = module.kernels[0](grid, 384, *arguments, dynamic_shared=232448, seed=seed, level="silicon")
        assert strict.findings and not report.findings, report
        check_forward(problem, causal=False)
