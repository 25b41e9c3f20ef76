"""examples/distributed_training.py, bench/compare.py's suite distributed, bench/distributed.py and bench/distributed_decode.py,
with ranks that are emulated devices."""

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


def test_the_suite_measures_ours_and_other_libraries_by_stand_ins(tmp_path):
    """Their shards, and how results become whole: errors of o and gradients are those of other kernels. The table, its place
    in a page and the chart are made as of any suite."""
    names = ["ring_flash_attn-zigzag", "ring_flash_attn-llama3", "yunchang-ulysses", "yunchang-zigzag"]
    page = tmp_path / "page.md"
    page.write_text("<!-- compare.py: distributed -->\nold\n<!-- compare.py: end -->\n")
    command = [sys.executable, ROOT / "bench" / "compare.py", "--suite", "distributed", "--emulated", "--cells", "s65536-gradients",
               "--peers", ",".join(names), "--seconds", "0.01", "--tuning", "off", "--out", tmp_path / "lines.jsonl",
               "--into", page, "--charts", tmp_path]
    paths = os.pathsep.join([str(ROOT / "tests" / "python" / "peer_stand_ins"), *filter(None, sys.path)])
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    header, *lines = [json.loads(line) for line in (tmp_path / "lines.jsonl").read_text().splitlines()]
    assert header["gpu"] == "emulated devices"
    found = {(line["cell"].split("/")[1].split("-")[0], line["contender"]): line for line in lines}
    assert len(found) == len(lines) == 2 * (len(names) + 4)
    for (case, contender), line in found.items():
        if case == "causal" or "ours" in contender or contender == "ring_flash_attn-llama3":
            assert line["status"] == "ok" and line["error"] < 0.02 and min(line["us"]["min"], line["burst_us"]) > 0, line
            assert set(line["efficiencies"]) == {"E1", "E3", *["E2"] * ("ours" in contender)}
            assert line["speed"] == pytest.approx(line["flops"] / 2 / line["us"]["median"] * 1e-6, abs=1e-3)
        else:
            assert line["status"] == "unsupported" and "causal" in line["reason"]
    head, _, *rows = [line.strip("| ").split(" | ") for line in page.read_text().splitlines() if line.startswith("|")]
    assert head[0] == "TFLOP/s a GPU (in bursts)" and head[-3:] == ["E1", "E2", "E3"] and len(rows) == 2
    assert all("(" in text for row in rows for text in row[-3:])
    assert "ring-flash-attn, llama3" in (tmp_path / "compare-distributed.svg").read_text()


def test_flash_attn_of_pytorch(rng):
    """PyTorch's kernels, or arithmetic, in its place: o and gradients of packed sequences, some with more keys than queries."""
    import torch
    from comparison import flash_attn_stand_in as peers

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
    """Errors of a contender that computes its shard alone, which ran before unnoticed, and of ours; and what the suite says."""
    import torch
    from comparison import group_measure, group_ours, group_rank, group_shards, group_suites

    own = group_rank.Rank("cpu", repeats=1, warm_up=0)
    cell = group_suites.tiny(group_suites.group_cell("causal", 8192, gradients=True))
    expected = group_ours.one_gpu(cell, own).expected

    class Wrong(group_ours.Gather):
        def spread(self, cell, rank):
            shards = super().spread(cell, rank)
            shards.forward = lambda q, k, v: ja.torch.attention(q, k, v, mask=ja.mask.causal())
            return shards

    class OnOneRank(group_ours.Gather):
        def spread(self, cell, rank):
            if rank.rank == 1:
                raise ValueError("of this rank")
            return super().spread(cell, rank)

    right, wrong = (group_shards.errors_of(own, one().spread(cell, own), expected) for one in (group_ours.Gather, Wrong))
    torch.distributed.barrier()
    lines = group_measure.GroupMeasurement(own).measure(cell, [group_ours.Gather(), Wrong()], 0.01)
    return right, wrong, group_shards.TOLERANCE, [line["status"] for line in lines]


def test_the_suite_refuses_what_computes_its_shard_alone():
    import jit_attention.torch  # noqa: F401

    ranks = Ranks(2)
    try:
        for right, wrong, tolerance, said in ranks.run(wrong_and_right):
            assert len(right) == len(wrong) == 4
            assert max(right) < 0.02 and min(wrong) > tolerance
            assert said == ["ok", "wrong"]
    finally:
        ranks.close()
