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
sys.path.insert(0, str(ROOT / "bench"))


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
               "documents", "--which", "fwd", "--contender", "gather", "ring", "torch-flash", "--bursts", "--out", tmp_path / "lines",
               "--then", "--case", "causal", "--contender", "gather", "--no-bursts"]
    paths = os.pathsep.join(path for path in sys.path if path)
    subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, timeout=240)
    lines = [json.loads(line) for line in (tmp_path / "lines").read_text().splitlines()]
    assert [line["contender"] for line in lines] == ["one GPU", "gather", "ring", "torch-flash", "one GPU", "gather"]
    assert [line["case"] for line in lines] == ["documents"] * 4 + ["causal"] * 2
    assert lines[5]["time_ms"] > 0 and "burst_ms" not in lines[5]
    for line in lines[1:3]:
        assert line["error"] < 0.02 and "failed" not in line and line["time_ms"] > 0 and {"E1", "E2", "E3", "copied_mb", "E2_burst"} <= set(line)
        assert 0 < line["burst_ms"] < 50 * line["time_ms"]
    assert "causal and full" in lines[3]["failed"]


def test_other_libraries_by_stand_ins(tmp_path):
    """Their shards, and how results become whole: errors of o and gradients are those of other kernels."""
    import distributed_peers

    ways = [f"{package}-{way}" for package in ("ring_flash_attn", "yunchang") for way in distributed_peers.PEERS[package]]
    command = [sys.executable, ROOT / "bench" / "distributed.py", "--device", "cpu", "--seqlen", "64", "--heads", "4",
               "--heads-kv", "2", "--head-dim", "32", "--repeats", "1", "--warmups", "0", "--case", "causal", "documents",
               "--which", "fwd+bwd", "--contender", *ways, "--out", tmp_path / "lines"]
    paths = os.pathsep.join([str(ROOT / "tests" / "python" / "peer_stand_ins"), *filter(None, sys.path)])
    subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, timeout=240)
    lines = [json.loads(line) for line in (tmp_path / "lines").read_text().splitlines()]
    found = {(line["case"], line["contender"]): line for line in lines if line["contender"] != "one GPU"}
    assert len(found) == 8
    for (case, way), line in found.items():
        if case == "causal" or way == "ring_flash_attn-llama3":
            assert "failed" not in line and line["error"] < 0.02 and line["time_ms"] > 0, line
        else:
            assert "causal" in line["failed"]


def test_flash_attn_of_pytorch(rng):
    """PyTorch's kernels, or arithmetic, in its place: o and gradients of packed sequences, some with more keys than queries."""
    import distributed_peers as peers
    import torch

    make = lambda rows, heads: torch.from_numpy(rng.standard_normal((1, rows, heads, 16), "float32"))  # noqa: E731
    lengths = [(9, 9), (5, 20), (12, 12)]
    q, do, k, v = make(26, 4), make(26, 4), make(41, 2), make(41, 2)
    bounds = [torch.tensor([0, *parts]).cumsum(0).int() for parts in zip(*lengths)]
    o, lse, _, _ = peers._flash_attn_varlen_forward(q[0], k[0], v[0], *bounds, 12, 20, 0.0, 0.25, True)
    found = [torch.full_like(x[0], torch.nan) for x in (q, k, v)]
    peers._flash_attn_varlen_backward(do[0], q[0], k[0], v[0], o, lse, *found, *bounds, 12, 20, 0.0, 0.25, True)
    begin_q = begin_k = 0
    for rows_q, rows_k in lengths:
        of_q, of_k = slice(begin_q, begin_q + rows_q), slice(begin_k, begin_k + rows_k)
        begin_q, begin_k = of_q.stop, of_k.stop
        leaves = [x[:, own].double().requires_grad_() for x, own in ((q, of_q), (k, of_k), (v, of_k))]
        keep = torch.ones(rows_q, rows_k, dtype=torch.bool).tril(rows_k - rows_q)
        right = torch.nn.functional.scaled_dot_product_attention(*(x.transpose(1, 2) for x in leaves), attn_mask=keep, scale=0.25,
                                                                 enable_gqa=True).transpose(1, 2)
        right.backward(do[:, of_q].double())
        assert torch.allclose(o[of_q].double(), right[0], atol=1e-5)
        for gradient, leaf, own in zip(found, leaves, (of_q, of_k, of_k)):
            assert torch.allclose(gradient[own].double(), leaf.grad[0], atol=1e-5)


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
    sizes = dict(heads=2, heads_kv=2, head_dim=32, granule=16, deterministic=True)
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
