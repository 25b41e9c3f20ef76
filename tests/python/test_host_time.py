"""bench/host_time.py: what it measures with, its table, and that a call does nothing but launch."""

import pathlib
import subprocess
import sys

import jit_attention as ja
import pytest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
IDLE = pathlib.Path(ja.__file__).parents[2] / "tests" / "bench" / "idle"


@pytest.fixture
def idle():
    if not (IDLE / "libcuda.so.1").exists():
        pytest.skip("the idle driver was not built: it is a target of the benchmarks")
    return IDLE


def test_a_call_launches_one_kernel_and_nothing_else(run_python, idle):
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
        # Of new arrays that speak capsules alone the library makes the results, and waits until they are complete.
        waits = kind is not arrays
        assert launches() - before[0] == 3, name
        assert waits or other_work() == before[1], name
""", JIT_ATTENTION_DEVICE="cuda", JIT_ATTENTION_TUNING="off")


def test_the_table(idle):
    done = subprocess.run([sys.executable, BENCH / "host_time.py", "--idle", idle, "--seconds", "0.01", "--only", "merge"],
                          capture_output=True, text=True, timeout=120)
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
