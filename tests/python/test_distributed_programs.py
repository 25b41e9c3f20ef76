"""examples/distributed_training.py, bench/distributed.py and bench/distributed_decode.py, with ranks that are emulated devices."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import jit_attention as ja
import pytest
from rank_processes import Ranks

pytest.importorskip("torch", reason="needs PyTorch")
if not ja.devices()[0].emulated:
    pytest.skip("ranks of these tests are emulated devices", allow_module_level=True)

ROOT = pathlib.Path(__file__).parents[2]


def program(path, name):
    """A program as a module of a name."""
    spec = importlib.util.spec_from_file_location(name, ROOT / path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # processes find its functions by name
    spec.loader.exec_module(module)
    return module


def test_two_ranks_train_as_one_does():
    example = program("examples/distributed_training.py", "distributed_training")
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
        assert line["error"] < 0.02 and "failed" not in line and line["time_ms"] > 0 and {"E1", "E2", "E3", "copied_mb"} <= set(line)
    assert "causal and full" in lines[3]["failed"]


def test_the_benchmark_of_decoding_compares_with_one_device(tmp_path):
    command = [sys.executable, ROOT / "bench" / "distributed_decode.py", "--device", "cpu", "--case", "2x100", "1x16", "--heads", "8",
               "--heads-kv", "2", "--head-dim", "64", "--page-size", "16", "--positions", "--out", tmp_path / "lines"]
    paths = os.pathsep.join(path for path in sys.path if path)
    subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, timeout=240)
    lines = [json.loads(line) for line in (tmp_path / "lines").read_text().splitlines()]
    assert [(line["case"], line["contender"]) for line in lines] == [
        (case, share) for case in ("2x100", "1x16") for share in ("all", "heads")]
    assert all(line["error"] < 0.02 for line in lines)


def wrong_and_right(rank):
    """The benchmark's errors of a contender that computes its shard alone, which ran before unnoticed, and of ours."""
    import types

    import torch
    import torch.distributed as dist

    bench = program("bench/distributed.py", "bench_distributed")
    sizes = dict(heads=2, heads_kv=2, head_dim=32, granule=16)
    own = bench.Rank(rank, types.SimpleNamespace(device="cpu", ranks=dist.get_world_size(), **sizes))
    case = bench.Case("causal", 64)
    q, k, v, do = own.inputs(64)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    o = ja.torch.attention(*leaves, mask=case.mask)
    expected = [o.detach(), *torch.autograd.grad(o, leaves, do)]
    contender = bench.ours(own, case, "fwd+bwd", "gather", "zigzag")
    right = bench.errors_of(own, contender, "fwd+bwd", expected)
    contender.local()
    contender.forward = lambda q, k, v: ja.torch.attention(q, k, v, mask=case.mask)
    return right, bench.errors_of(own, contender, "fwd+bwd", expected), bench.TOLERANCE


def test_the_benchmark_refuses_what_computes_its_shard_alone():
    import jit_attention.torch  # noqa: F401

    ranks = Ranks(2)
    try:
        for right, wrong, tolerance in ranks.run(wrong_and_right):
            assert len(right) == len(wrong) == 4
            assert max(right) < 0.02 and min(wrong) > tolerance
    finally:
        ranks.close()
