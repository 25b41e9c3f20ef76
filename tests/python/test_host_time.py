"""bench/host_time.py: what it measures with, its table, and that a call does nothing but launch."""

import os
import pathlib
import shutil
import subprocess
import sys

import jit_attention as ja
import pytest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
IDLE = pathlib.Path(ja.__file__).parents[2] / "tests" / "bench" / "idle"

ON_CUDA = dict(JIT_ATTENTION_DEVICE="cuda", JIT_ATTENTION_TUNING="off", PYTHONPATH=os.pathsep.join(filter(None, sys.path)))


@pytest.fixture
def idle():
    if not (IDLE / "libcuda.so.1").exists():
        pytest.skip("the idle driver was not built: it is a target of the benchmarks")
    return IDLE


def test_a_call_launches_its_kernels_and_nothing_else(run_python, idle):
    run_python(f"""
import pathlib, sys
sys.path.insert(0, {str(BENCH)!r})
import host_time
arrays = host_time.IdleArrays(pathlib.Path({str(idle)!r}))
launches, other_work = arrays.driver.idle_driver_launches, arrays.driver.idle_driver_other_work
for kind in (arrays, host_time.Capsules(arrays)):
    for name, call in host_time.calls(kind):
        call()
        before = launches(), other_work()
        for _ in range(3):
            call()
        # For new arrays that only speak capsules the library makes the results, and waits until they are
        # complete.
        waits = kind is not arrays
        kernels = 3 if name == "gradients" else 1  # delta and zeros; dk and dv, sums of dq; dq of 16 bits
        assert launches() - before[0] == 3 * kernels, name
        assert waits or other_work() == before[1], name
""", JIT_ATTENTION_DEVICE="cuda", JIT_ATTENTION_TUNING="off")


# Instructions of a build without optimization above -O1. A call like the one before costs less than half of
# one that is checked anew.
def test_a_call_takes_few_instructions(idle):
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is not installed")
    if "LD_PRELOAD" in os.environ:
        pytest.skip("a sanitizer counts, too")
    done = subprocess.run([sys.executable, BENCH / "host_instructions.py", "--idle", idle, "--only", "layer, "],
                          capture_output=True, text=True, timeout=240, env=os.environ | ON_CUDA)
    assert done.returncode == 0, done.stderr
    counts = dict(row.strip("| ").split(" | ") for row in done.stdout.splitlines()[2:])
    for name, most in (("layer, append", 11_000), ("layer, attend", 18_000)):
        assert 2_000 < int(counts[name].replace(",", "")) < most, done.stdout


def test_the_table(idle):
    done = subprocess.run([sys.executable, BENCH / "host_time.py", "--idle", idle, "--seconds", "0.01", "--only", "merge"],
                          capture_output=True, text=True, timeout=120, env=os.environ | ON_CUDA)
    assert done.returncode == 0, done.stderr
    head, _, row = done.stdout.splitlines()
    assert head.startswith("| µs, median (fastest) | stand-in")
    median, fastest = (float(text.strip("()")) for text in row.split(" | ")[1].split())
    assert 0 < fastest <= median


def test_without_a_gpu_it_says_what_would_work(emulated):
    if not emulated:
        pytest.skip("there is a GPU")
    done = subprocess.run([sys.executable, BENCH / "host_time.py"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "--idle measures without one" in done.stderr
