"""tools/flash_mla_tests on a checkout of its own: what is left out, counted, and told of failures."""

import json
import pathlib
import subprocess
import sys

import pytest

RUNNER = pathlib.Path(__file__).resolve().parents[2] / "tools/flash_mla_tests"
PARAM = """
import dataclasses
import torch

@dataclasses.dataclass
class TestParam:
    s_q: int
    h_q: int = 16
    topk: int = 20
    num_runs: int = 0
    check_correctness: bool = True
"""
DENSE = """
import dataclasses
import torch
import flash_mla

@dataclasses.dataclass
class TestParam:
    b: int
    s_q: int = 1
    s_k: int = 20
    h_q: int = 2
    test_performance: bool = False

def test_flash_mla(t):
    q, pages = torch.randn(t.b, 1, t.h_q, 576), torch.randn(t.b, 64, 1, 576)
    lengths = torch.full((t.b,), t.s_k, dtype=torch.int32).cuda()
    table = torch.arange(t.b, dtype=torch.int32)[:, None]
    out, lse = flash_mla.flash_mla_with_kvcache(q, pages, table, lengths, 512, *flash_mla.get_mla_metadata())
    assert out.shape == (t.b, 1, t.h_q, 512) and torch.get_default_dtype() == out.dtype
    print("printed by a case")
    assert t.b < 3, "too many requests"

def main(dtype):
    torch.set_default_dtype(dtype)
    torch.set_default_device(torch.device("cuda:0"))
    for case in [TestParam(1), TestParam(2), TestParam(3), TestParam(1, s_k=10**7), TestParam(1, test_performance=True)]:
        test_flash_mla(case)
"""
DECODING = """
import dataclasses
from lib import TestParam

@dataclasses.dataclass
class Raw:
    s_q: int

    def to_test_param(self):
        return TestParam(self.s_q)

@dataclasses.dataclass
class Result:
    is_correct: bool

def gen_testcase():
    return [Raw(1), Raw(2)]

def test_flash_mla(p):
    return Result(p.s_q == 1)
"""
PREFILL = """
from lib import TestParam
import flash_mla, torch

def run_test(p):
    torch.cuda.empty_cache()
    kv = torch.ones(30, 1, 576, dtype=torch.bfloat16)
    lists = torch.zeros(p.s_q, 1, p.topk, dtype=torch.int32)
    out, most, lse = flash_mla.flash_mla_sparse_fwd(kv[: p.s_q].expand(-1, p.h_q, -1), kv, lists, sm_scale=0.01)
    return bool((out == 1).all())

if __name__ == "__main__":
    torch.set_default_device("cuda:0")
    cases = [TestParam(3), TestParam(1, num_runs=10), TestParam(1, check_correctness=False)]
    for case in cases:
        if not run_test(case):
            raise SystemExit(1)
"""


@pytest.fixture
def run(tmp_path, emulated):
    pytest.importorskip("torch", reason="needs PyTorch")
    for name, text in {"lib": PARAM, "test_flash_mla_dense_decoding": DENSE, "test_flash_mla_sparse_decoding": DECODING,
                       "test_flash_mla_sparse_prefill": PREFILL}.items():
        path = tmp_path / "checkout/tests" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def started(*arguments):
        device = ["--device", "emulated:sm_90a"] if emulated else []
        command = [sys.executable, RUNNER, tmp_path / "checkout", *device, *arguments]
        return subprocess.run([str(word) for word in command], text=True, capture_output=True)

    return started


def test_counts_what_became_of_each_case(run, tmp_path):
    ended = run("--largest", 1000, "--json", tmp_path / "counts.json")
    assert ended.returncode == 1, ended.stdout + ended.stderr
    found = json.loads((tmp_path / "counts.json").read_text())
    assert found["counts"] == {"dense_decoding": {"passed": 2, "failed": 1, "left out": 1},
                               "sparse_decoding": {"passed": 1, "failed": 1}, "sparse_prefill": {"passed": 1}}  # fmt: skip
    assert [case["file"] for case in found["failures"]] == ["dense_decoding", "sparse_decoding"]
    assert "too many requests" in ended.stdout and "FAILED sparse_decoding: TestParam(s_q=2" in ended.stdout


def test_lists_files_and_runs_none(run):
    ended = run("--list")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "       0        0        4        0  dense_decoding" in ended.stdout


def test_wants_a_checkout(tmp_path):
    ended = subprocess.run([sys.executable, RUNNER, tmp_path], text=True, capture_output=True)
    assert ended.returncode == 1 and "give a checkout of deepseek-ai/FlashMLA" in ended.stderr
