"""Python and the command-line tool, which is C++ all the way, give the same bits; the package holds the same tool."""

import os
import signal
import subprocess
import sys

import jit_attention as ja
import numpy
import pytest
from exact_attention import random_qkv


@pytest.mark.parametrize("mask, text", [(None, "none"), (ja.mask.causal() & ja.mask.sliding_window(20), None)])
def test_equal_bits(rng, place, emulated, tmp_path, mask, text):
    tool = os.environ.get("JIT_ATTENTION_TOOL")
    if not tool:
        pytest.skip("JIT_ATTENTION_TOOL does not name the program")
    q, k, v = random_qkv(rng, batch=2, seqlen_q=70, seqlen_kv=130, heads_q=4, heads_kv=2)
    for name, array in (("q", q), ("k", k), ("v", v)):
        numpy.save(tmp_path / f"{name}.npy", array)
    files = [f"--{name}={tmp_path / name}.npy" for name in ("q", "k", "v", "out", "lse")]
    subprocess.run([tool, "run", *files, "--dtype", "fp16", "--mask", text or str(mask)], check=True, timeout=120)
    o, lse = ja.attention(place(q), place(k), place(v), mask=mask, return_lse=True)
    if not emulated:
        o, lse = o.cpu().numpy(), lse.cpu().numpy()
    assert numpy.array_equal(o.view(numpy.uint16), numpy.load(tmp_path / "out.npy").view(numpy.uint16))
    assert numpy.array_equal(lse.view(numpy.uint32), numpy.load(tmp_path / "lse.npy").view(numpy.uint32))


def in_package(*arguments, **options):
    return subprocess.run([sys.executable, "-m", "jit_attention", *arguments], capture_output=True, timeout=120, **options)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--version"],
        ["info"],
        ["show", "--help"],
        ["compile", "--arch", "sm_90a", "--mask", "casual"],
        ["nonsense"],
        [],
        ["run", "--q", b"not/\xff/utf-8.npy"],
    ],
)
def test_the_package_holds_the_tool(arguments):
    tool = os.environ.get("JIT_ATTENTION_TOOL")
    if not tool:
        pytest.skip("JIT_ATTENTION_TOOL does not name the program")
    ours, program = in_package(*arguments), subprocess.run([tool, *arguments], capture_output=True, timeout=120)
    assert (ours.returncode, ours.stdout, ours.stderr) == (program.returncode, program.stdout, program.stderr)


def test_a_closed_pipe_ends_the_tool():
    pipe = subprocess.Popen([sys.executable, "-m", "jit_attention", "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    pipe.stdout.close()
    assert pipe.stderr.read() == b""
    assert pipe.wait() == -signal.SIGPIPE
