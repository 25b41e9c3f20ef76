"""PTX of kernels that others wrote, compiled in processes of their own where the packages are installed."""

import functools
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile

import pytest

FOLDER = pathlib.Path(__file__).parent


def _run(script, *arguments, folder, packages, **environment):
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"needs {package}")
    paths = [path for path in sys.path if path]
    done = subprocess.run([sys.executable, FOLDER / script, *arguments], cwd=folder, capture_output=True, text=True,
                          timeout=300, env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)} | environment)
    if done.returncode:
        pytest.skip(f"{script} does not compile with the packages that are installed: {done.stderr.splitlines()[-1]}")


@functools.cache
def triton_kernels():
    """PTX and bytes of shared memory by name and architecture: ``triton_kernels()["matmul", 90]``."""
    folder = pathlib.Path(tempfile.mkdtemp())
    _run("triton_kernels.py", folder, folder=folder, packages=["triton"], TRITON_CACHE_DIR=str(folder / "cache"))
    kernels = {}
    for path in folder.glob("*.ptx"):
        name, arch = path.stem.split(".sm_")
        kernels[name, int(arch)] = path.read_text(), int(path.with_suffix(".shared").read_text())
    return kernels


@functools.cache
def flash_attention_4(arch):
    """PTX of forward kernels of sm_90a or sm_120a by head dim and whether they are causal."""
    folder = pathlib.Path(tempfile.mkdtemp())
    _run("flash_attention_4.py", folder=folder, packages=["flash_attn", "quack", "cutlass", "torch"],
         CUTE_DSL_ARCH=arch, CUTE_DSL_KEEP_PTX="1")
    kernels = {}
    for path in folder.glob("*.ptx"):
        mask, head_dim = path.stem.split("_")
        kernels[int(head_dim), mask == "causal"] = path.read_text()
    return kernels


@functools.cache
def flash_attention_4_sm100(name):
    """PTX of a kernel of sm_100: ``"forward_64"``, ``"causal_128"``, ``"backward_pair_128"``…"""
    folder = pathlib.Path(tempfile.mkdtemp())
    _run("flash_attention_4.py", name, folder=folder, packages=["flash_attn", "quack", "cutlass", "torch"],
         CUTE_DSL_ARCH="sm_100a", CUTE_DSL_KEEP_PTX="1")
    return (folder / f"{name}.ptx").read_text()


def flash_attention_4_arguments(arch, q, k, v, o, lse, softmax_scale):
    """The parameters of the kernel, whose tensors are structs of a pointer, sizes and strides in elements; on
    sm_90a they are sizes, and tensor maps behind."""
    import jit_attention as ja
    import numpy

    def sizes(array):  # of the modes: rows, heads, batch
        return tuple(map(numpy.int32, (array.shape[1], array.shape[2], array.shape[0])))

    def struct(array):
        strides = [stride // array.itemsize for stride in array.strides]
        return (array, *sizes(array), *map(numpy.int64, (strides[1], strides[2], strides[0])))

    def tensor_map(array):
        return ja.emulator.TensorMap(array.transpose(0, 2, 1, 3), box=(1, 1, 128, 64), swizzle=128)

    batch, heads, rows = lse.shape
    lse_struct = (lse, *map(numpy.int32, (rows, heads, batch)), numpy.int64(rows), numpy.int64(rows * heads))
    log2_scale = numpy.float32(softmax_scale * numpy.log2(numpy.e))
    tensors = q, k, v, o
    described = (*map(sizes, tensors), lse_struct, *map(tensor_map, tensors), log2_scale)
    if arch == "sm_90a":
        return (*described, b"\0", b"\0", 0, 0, 0, bytes(12), 0)
    return (*map(struct, tensors), lse_struct, log2_scale, 0, 0, 0, bytes(12), 0)
