"""tools/ffpa_tests on a checkout of its own: what is left out, counted, and told of failures."""

import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="needs PyTorch")

RUNNER = pathlib.Path(__file__).resolve().parents[2] / "tools/ffpa_tests"
TESTS = """
import pytest
import torch
from ffpa_attn import ffpa_attn_func
from ffpa_attn.functional import CuTeDSLBackend

assert torch.cuda.is_available()

@pytest.mark.parametrize("Nq,Nkv", [(20, 30), (20, 10**7)])
def test_cutedsl_forward_nonaligned_matches_sdpa(Nq, Nkv):
    q, k, v = (torch.randn(1, heads, n, 264, dtype=torch.bfloat16, device="cuda") for heads, n in ((2, Nq), (1, Nkv), (1, Nkv)))
    outs = [ffpa_attn_func(q, k, v, enable_gqa=True, forward_backend=name) for name in ("cutedsl", "triton")]
    assert outs[0].shape == q.shape and not torch.equal(*outs)
    torch.testing.assert_close(*outs, atol=2e-2, rtol=2e-2)

@pytest.mark.parametrize("N", [20])
def test_cutedsl_autograd_nonaligned_matches_sdpa(N):
    q = torch.randn(1, 1, N, 264, dtype=torch.bfloat16, device="cuda", requires_grad=True)
    ffpa_attn_func(q, q, q, is_causal=True, forward_backend="cutedsl").sum().backward()
    assert q.grad is None, "it has a gradient"

def test_cutedsl_routes_through_something():
    raise AssertionError
"""


def test_counts(tmp_path, emulated):
    if not emulated:
        pytest.skip("the runner names the device")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_ffpa_cute.py").write_text(TESTS)
    command = [sys.executable, RUNNER, tmp_path, "--longest", "100", "--device", "emulated:sm_90a"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 1, run.stdout + run.stderr
    assert "it has a gradient" in run.stdout
    assert "1 passed, 1 failed, 0 skipped, 1 of ffpa itself, 1 longer" in run.stdout.splitlines()[-1]


def test_a_folder_without_tests(tmp_path):
    run = subprocess.run([sys.executable, RUNNER, tmp_path], capture_output=True, text=True)
    assert run.returncode == 2 and "give a checkout of xlite-dev/ffpa-attn" in run.stderr
