"""bench/autograd_time.py: its table, and that eager gradients take far less time than the operator."""

import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="needs PyTorch")

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "bench" / "autograd_time.py"


def run(*arguments):
    return subprocess.run([sys.executable, PROGRAM, *arguments], capture_output=True, text=True, timeout=300)


def test_the_table(emulated):
    if not emulated:
        pytest.skip("tensors are on the CPU")
    done = run("--steps", "20")
    assert done.returncode == 0, done.stderr
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines()[2:]]
    assert [name for name, _ in rows] == ["function", "jit_attention.torch.attention", "operator"]
    function, eager, operator = (float(value) for _, value in rows)
    assert 0 < function < eager < operator / 2


def test_steps_that_are_none():
    done = run("--steps", "0")
    assert done.returncode == 2 and "argument --steps: 0, which is less than 1" in done.stderr
