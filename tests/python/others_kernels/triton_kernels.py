"""Writes the PTX of Triton kernels to a folder: NAME.sm_90.ptx and so on. Needs no GPU.

usage: triton_kernels.py FOLDER
"""

import pathlib
import sys

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def matmul(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for i in range(0, k, BK):
        left = tl.load(a + rows[:, None] * k + (i + inner)[None, :])
        right = tl.load(b + (i + inner)[:, None] * n + columns[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + rows[:, None] * n + columns[None, :], total)


@triton.jit
def softmax(x, y, columns, WIDTH: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, WIDTH)
    values = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    weights = tl.exp(values - tl.max(values, 0))
    tl.store(y + row * columns + at, weights / tl.sum(weights, 0), mask=at < columns)


@triton.jit
def racy_sum(x, total, WIDTH: tl.constexpr):
    values = tl.load(x + tl.program_id(0) * WIDTH + tl.arange(0, WIDTH))
    so_far = tl.load(total)
    tl.store(total, so_far + tl.sum(values, 0))  # the race


KERNELS = {
    "matmul": (matmul, {"a": "*bf16", "b": "*bf16", "c": "*fp32", "m": "i32", "n": "i32", "k": "i32"},
               {"BM": 64, "BN": 64, "BK": 32}),
    "softmax": (softmax, {"x": "*fp32", "y": "*fp32", "columns": "i32"}, {"WIDTH": 512}),
    "racy_sum": (racy_sum, {"x": "*fp32", "total": "*fp32"}, {"WIDTH": 256}),
}  # fmt: skip


def compiled(name, capability):
    function, signature, constants = KERNELS[name]
    aligned = {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(signature.values()) if kind[0] == "*" or name == "matmul"}
    source = ASTSource(fn=function, signature=signature | dict.fromkeys(constants, "constexpr"), constexprs=constants,
                       attrs=aligned)
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": 4, "num_stages": 3})


if __name__ == "__main__":
    for kernel in KERNELS:
        for arch in (90, 120):
            made = compiled(kernel, arch)
            folder = pathlib.Path(sys.argv[1])
            (folder / f"{kernel}.sm_{arch}.ptx").write_text(made.asm["ptx"])
            (folder / f"{kernel}.sm_{arch}.shared").write_text(str(made.metadata.shared))
