"""bench/engine_host_time.py: its table and lines of JSON, and that a layer calls no more than it has to."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="needs PyTorch")

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
MOST_CALLS = 14  # of Python in a layer that has seen its cache; 15 to 24 with keywords, and slices looked for here


def run(*arguments, **environment):
    return subprocess.run([sys.executable, BENCH / "engine_host_time.py", *arguments], capture_output=True, text=True,
                          timeout=300, env=os.environ | environment)  # fmt: skip


@pytest.fixture
def sm_90a(emulated):
    if not emulated:
        pytest.skip("figures of a GPU are not the tests' to take")
    return dict(JIT_ATTENTION_DEVICE="emulated:sm_90a")


def test_the_table_and_the_lines(sm_90a, tmp_path):
    out = tmp_path / "lines.jsonl"
    done = run("--stand-ins", "--layers", "1", "--seconds", "0", "--batches", "decode 1", "--out", out, **sm_90a)
    assert done.returncode == 0, done.stderr
    head, _, titles, _, *rows = done.stdout.splitlines()
    assert head.startswith("An emulated GPU") and titles.startswith("| µs, median (fastest) | build, a step")
    kinds = ["bf16", "fp8", "fp8 per token and head", "latent"]
    assert [row.split(" | ")[0] for row in rows] == [f"| {kind}, decode 1" for kind in kinds]
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["layer"] for line in lines] == kinds
    for row, line in zip(rows, lines):
        assert int(row.split(" | ")[-1].strip(" |")) == line["calls"] <= MOST_CALLS
        assert line["layer_us"]["min"] > 0 and line["build_us"]["samples"] == 1


@pytest.mark.parametrize("layers", ["0", "257"])
def test_layers_that_no_queue_takes(layers):
    done = run("--layers", layers)
    assert done.returncode == 2 and f"argument --layers: {layers}, which is not from 1 to 256" in done.stderr


def test_without_vllm_it_says_what_does_without(sm_90a):
    if importlib.util.find_spec("vllm") is not None:
        pytest.skip("vLLM is installed")
    done = run(**sm_90a)
    assert done.returncode == 2 and "--stand-ins does without" in done.stderr
