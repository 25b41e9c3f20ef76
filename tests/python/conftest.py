"""Shared by all tests: a scratch cache, fresh random numbers, and arrays where this process computes.

On a machine with GPUs arrays are PyTorch's or CuPy's there, else NumPy's, computed on an emulated device.
JIT_ATTENTION_DEVICE=emulated:sm_90a asks for the latter everywhere.
"""

import os
import sys
import tempfile

import numpy
import pytest

if not any(map(os.path.exists, ("/dev/nvidiactl", "/dev/dxg"))):  # no GPU
    os.environ.setdefault("JIT_ATTENTION_DEVICE", "emulated:sm_90a")
os.environ.setdefault("JIT_ATTENTION_CACHE_DIR", tempfile.mkdtemp(prefix="jit-attention-test-"))
os.environ.setdefault("JIT_ATTENTION_TUNING", "off")  # tests compare results, not times

import jit_attention as ja  # noqa: E402
from placing import to_gpu, to_numpy  # noqa: E402
from seeded import SEED, in_turn  # noqa: E402


def pytest_collection_modifyitems(config, items):
    """Keeps one of `SHARE` tests of a module that has one, as the seed chooses, unless some are asked for by name."""
    if any("::" in argument for argument in config.args):
        return
    shares = {}
    for item in items:
        shares.setdefault(getattr(item.module, "SHARE", None), []).append(item)
    left_out = {item for share, those in shares.items() if share for item in set(those) - set(in_turn(those, share))}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture
def rng(request):
    print(f"JIT_ATTENTION_TEST_SEED={SEED}")  # shown when the test fails
    return numpy.random.default_rng(SEED)


@pytest.fixture(scope="session")
def emulated():
    return ja.devices()[0].emulated


@pytest.fixture(scope="session")
def place(emulated):
    """NumPy's array where this process computes, with the same strides."""
    if emulated:
        return lambda array: array
    pytest.importorskip("torch", reason="arrays on a GPU are PyTorch's in these tests")
    return to_gpu


@pytest.fixture(scope="session")
def fetch():
    """Any array as NumPy's, in double precision."""
    return to_numpy


@pytest.fixture
def make(rng, emulated):
    """Random tensors of PyTorch where this process computes."""
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    torch._dynamo.reset()
    torch.manual_seed(int(rng.integers(2**31)))
    device = "cpu" if emulated else "cuda"
    return lambda *shape, dtype=torch.bfloat16: torch.randn(shape, device=device).to(dtype)


@pytest.fixture
def run_python():
    """Runs a script in a process of its own and returns what it printed. Environment variables by keyword."""
    import subprocess

    def run(script, timeout=240, **environment):
        paths = [path for path in sys.path if path]
        result = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            timeout=timeout,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)} | environment,
        )
        assert result.returncode == 0, f"exit status {result.returncode}\n{result.stdout}\n{result.stderr}"
        return result.stdout

    return run
