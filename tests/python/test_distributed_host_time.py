"""bench/distributed_host_time.py: its table, and that a call over a group does no more on the host than it has to."""

import os
import pathlib
import subprocess
import sys

import jit_attention as ja
import pytest

pytest.importorskip("torch", reason="needs PyTorch")

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
IDLE = pathlib.Path(ja.__file__).parents[2] / "tests" / "bench" / "idle"
#: Of Python in a call that was made before, the bench's own stand-ins included (25); 40 more while arguments were checked anew.
MOST_CALLS = {"arrive": 72, "gather": 140, "arrive with gradients": 375, "gather with gradients": 490}


def run(*arguments):
    on_cuda = dict(JIT_ATTENTION_DEVICE="cuda", JIT_ATTENTION_TUNING="off", PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
    return subprocess.run([sys.executable, BENCH / "distributed_host_time.py", "--idle", IDLE, *arguments],
                          capture_output=True, text=True, timeout=120, env=os.environ | on_cuda)


def test_a_call_that_was_made_before_plans_nothing():
    if not (IDLE / "libcuda.so.1").exists():
        pytest.skip("the idle driver was not built: it is a target of the benchmarks")
    done = run("--repeats", "5")
    assert done.returncode == 0, done.stderr
    rows = [row.strip("| ").split(" | ") for row in done.stdout.splitlines()[2:]]
    assert len(rows) == 8
    for name, microseconds, cold, calls, launches, others in rows:
        method, _, mode = name.partition(", ")
        both = method.endswith("gradients")
        assert int(launches) == {"arrive": 2, "gather": 1}[method.split()[0]] * (3 if both else 1) + (both and method[0] == "g")
        assert min(float(figures.split()[0]) for figures in (microseconds, cold)) > 0
        assert 40 < int(calls) <= MOST_CALLS[method], done.stdout
        # Between two ranks: copies of one chunk or two to the other, words left out, and events.
        assert int(others) <= {"arrive": 7, "gather": 0}[method.split()[0]] * (2 if both else 1), done.stdout
    done = run("--ranks", "3")
    assert done.returncode == 2 and "argument --ranks: 3" in done.stderr
