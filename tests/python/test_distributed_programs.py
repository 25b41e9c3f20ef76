"""examples/distributed_training.py and bench/distributed.py, with ranks that are emulated devices."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import jit_attention as ja
import pytest

pytest.importorskip("torch", reason="needs PyTorch")
if not ja.devices()[0].emulated:
    pytest.skip("ranks of these tests are emulated devices", allow_module_level=True)

ROOT = pathlib.Path(__file__).parents[2]


def test_two_ranks_train_as_one_does():
    spec = importlib.util.spec_from_file_location("distributed_training", ROOT / "examples" / "distributed_training.py")
    example = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = example  # processes find its functions by name
    spec.loader.exec_module(example)
    one, two = example.train(steps=4, batch=2, seqlen=48, width=32, heads=2, layers=1, rate=1e-2)
    assert one[-1] < 0.95 * one[0]
    assert max(abs(a - b) for a, b in zip(one, two, strict=True)) < 0.01 * one[0]


def test_the_benchmark_writes_lines(tmp_path):
    command = [sys.executable, ROOT / "bench" / "distributed.py", "--device", "cpu", "--seqlen", "96", "--heads", "2",
               "--heads-kv", "2", "--head-dim", "32", "--granule", "16", "--repeats", "1", "--warmups", "1", "--case",
               "documents", "--which", "fwd", "--contender", "gather", "ring", "torch-flash", "--out", tmp_path / "lines"]
    paths = os.pathsep.join(path for path in sys.path if path)
    subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, timeout=240)
    lines = [json.loads(line) for line in (tmp_path / "lines").read_text().splitlines()]
    assert [line["contender"] for line in lines] == ["one GPU", "gather", "ring", "torch-flash"]
    for line in lines[1:3]:
        assert line["error"] < 0.02 and line["time_ms"] > 0 and {"E1", "E2", "E3", "copied_mb"} <= set(line)
    assert "causal and full" in lines[3]["failed"]
