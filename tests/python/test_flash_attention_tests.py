"""tools/flash_attention_tests on a checkout of its own: what is drawn, left out, counted, and told of failures."""

import json
import pathlib
import subprocess
import sys

import pytest

RUNNER = pathlib.Path(__file__).resolve().parents[2] / "tools/flash_attention_tests"
HELPERS = "def twice(x):\n    return 2 * x\n"
TESTS = """
import pytest, torch
from flash_attn.cute.interface import flash_attn_func, flash_attn_varlen_func, _flash_attn_fwd, _flash_attn_bwd
from flash_attn.cute.testing import twice

IS_SM90 = torch.cuda.get_device_capability()[0] == 9


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("seqlen_q,seqlen_k", [(17, 30), (40, 40), (70000, 70000)])
@pytest.mark.parametrize("d", [16, 32])
def test_flash_attn_output(seqlen_q, seqlen_k, d, causal):
    assert not IS_SM90 and max(seqlen_q, seqlen_k) <= 64
    q, k, v = (torch.randn(1, n, 2, d, device="cuda", dtype=torch.float16) for n in (seqlen_q, seqlen_k, seqlen_k))
    q, k, v = (x.requires_grad_() for x in (q, k, v))
    out, _ = flash_attn_func(q, k, v, causal=causal)
    given = torch.randn_like(out)
    first = torch.autograd.grad(out, (q, k, v), given)
    out, lse = _flash_attn_fwd(q, k, v, causal=causal, return_lse=True)
    dq = torch.empty_like(q)
    dk, dv = torch.empty_like(k), torch.empty_like(v)
    again = _flash_attn_bwd(q, k, v, out, given, lse, causal=causal, dq=dq, dk=dk, dv=dv)
    assert again[0] is dq
    for one, other in zip(first, again):
        torch.testing.assert_close(one, other, rtol=1e-2, atol=1e-2)


def test_flash_attn_fails():
    assert twice(2) == 5


def test_flash_attn_skips():
    pytest.skip("no reason")


def test_flash_attn_invalid_head_dim():
    raise AssertionError("is left out")
"""
SCORES = """
import pytest, torch
import cutlass.cute as cute
from flash_attn.cute.interface import flash_attn_func


@cute.jit
def score_mod_batch_bias_vectorized(score, b_idx, h_idx, q_idx, kv_idx, seqlen_info, aux_tensors):
    return score + aux_tensors[0][b_idx]


@pytest.mark.parametrize("score_mod", [score_mod_batch_bias_vectorized])
def test_scores(score_mod):
    q, k, v = (torch.randn(2, 20, 2, 16, device="cuda", dtype=torch.bfloat16) for _ in "qkv")
    bias = torch.tensor([1.0, -2.0], device="cuda", dtype=torch.bfloat16)
    _, plain = flash_attn_func(q, k, v, return_lse=True)
    _, lse = flash_attn_func(q, k, v, score_mod=score_mod, aux_tensors=[bias])
    torch.testing.assert_close(lse, plain + bias.float()[:, None, None], rtol=1e-4, atol=1e-4)
"""


@pytest.fixture
def run(tmp_path, emulated):
    pytest.importorskip("torch", reason="needs PyTorch")
    for name, text in {"tests/cute/test_flash_attn.py": TESTS, "tests/cute/test_score_mod.py": SCORES,
                       "flash_attn/cute/testing.py": HELPERS}.items():
        path = tmp_path / "checkout" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def started(*arguments):
        device = ["--device", "emulated:sm_90a"] if emulated else []
        command = [sys.executable, RUNNER, tmp_path / "checkout", *device, *arguments]
        return subprocess.run([str(word) for word in command], text=True, capture_output=True)

    return started


def test_counts_what_became_of_each_case(run, tmp_path):
    ended = run("--cases", 3, "--longest", 64, "--jobs", 2, "--seed", 7, "--json", tmp_path / "counts.json")
    assert ended.returncode == 1, ended.stdout + ended.stderr
    found = json.loads((tmp_path / "counts.json").read_text())
    assert found["counts"] == {"passed": 4, "failed": 1, "skipped": 1, "left out": 1}, ended.stdout
    assert found["by_test"]["test_flash_attn_output"] == {"passed": 3}
    assert found["by_test"]["test_scores"] == {"passed": 1}
    assert [case["test"] for case in found["failures"]] == ["test_flash_attn_fails"]
    assert "assert 4 == 5" in ended.stdout and "--seed 7" in ended.stdout
    assert "wants FlashAttention-4's message" in ended.stdout


def test_lists_tests_and_runs_none(run):
    ended = run("--list")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "      12  test_flash_attn_output" in ended.stdout
    assert "left out: wants FlashAttention-4's message" in ended.stdout


def test_begins_nothing_when_time_is_up(run):
    ended = run("--cases", 1, "--seconds", 0, "-k", "scores or fails")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "       0        0        0        0        0        2  all" in ended.stdout


def test_wants_a_checkout(tmp_path):
    ended = subprocess.run([sys.executable, RUNNER, tmp_path], text=True, capture_output=True)
    assert ended.returncode == 1 and "give a checkout of Dao-AILab/flash-attention" in ended.stderr
