"""Finding a race in anyone's kernel without a GPU: one that NVRTC compiled, and Triton's where Triton is installed.

    python examples/find_race.py

The emulator runs PTX on the CPU and tells what is wrong with it, by source line. Both kernels are mended then, and run
again: no findings, and sums that are right.
"""

import pathlib
import sys

import numpy as np

import jit_attention as ja

x = np.random.default_rng(0).standard_normal(1024).astype(np.float32)


def find_and_mend(racy, mended, exact):
    """Runs both kernels. Each returns a report and sums."""
    report, _ = racy()
    print(report, "\n")
    if all(finding.kind != "data race" for finding in report.findings):
        sys.exit("the race was not found")
    report, sums = mended()
    error = np.abs(sums - exact).max()
    print(f"mended: {report}, largest error against double precision {error:.1e}\n")
    if report.findings or error > 1e-3:
        sys.exit("the mended kernel is wrong")


# Sums of 256 numbers, by CUDA C++ (block_sum.cu) that lacks a __syncthreads() between its steps.
block_sum_ptx = (pathlib.Path(__file__).parents[1] / "emulator/examples/block_sum.ptx").read_text()


def block_sum(ptx):
    sums = np.empty(4, np.float32)
    return ja.emulator.load(ptx)["block_sum"](4, 256, x, ja.emulator.Output(sums)), sums


find_and_mend(lambda: block_sum(block_sum_ptx),
              lambda: block_sum(block_sum_ptx.replace("$L__BB0_3:\n", "$L__BB0_3:\nbar.sync 0;\n")),
              x.astype(float).reshape(4, 256).sum(1))  # fmt: skip

try:
    import triton
    import triton.language as tl
except ImportError:
    print("Triton is not installed: pip install triton, and its kernel runs, too")
    sys.exit(0)


@triton.jit
def total_racy(x, total, N: tl.constexpr):
    part = tl.sum(tl.load(x + tl.program_id(0) * N + tl.arange(0, N)), 0)
    tl.store(total, tl.load(total) + part)


@triton.jit
def total_atomic(x, total, N: tl.constexpr):
    part = tl.sum(tl.load(x + tl.program_id(0) * N + tl.arange(0, N)), 0)
    tl.atomic_add(total, part)


def triton_total(function):
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    source = ASTSource(function, {"x": "*fp32", "total": "*fp32", "N": "constexpr"}, {"N": 256})
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32))  # needs no GPU
    (kernel,) = ja.emulator.load(compiled.asm["ptx"]).kernels
    total = np.zeros(1, np.float32)
    scratch = [None] * (len(kernel.parameters) - 2)  # of newer versions
    return kernel(4, 128, x, total, *scratch, dynamic_shared=compiled.metadata.shared), total


find_and_mend(lambda: triton_total(total_racy), lambda: triton_total(total_atomic), x.astype(float).sum())
