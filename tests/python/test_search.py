"""bench/search.py, with a program in place of the tool: what it asks for, what it writes, how it fails."""

import gzip
import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TIMINGS = ROOT / "bench" / "results" / "2026-11-21-h200-hopper-configs.jsonl.gz"

# Writes down its arguments; then a GPU's answers, unless the environment says otherwise.
FAKE = """#!{python}
import json, os, sys
command, *words = sys.argv[1:]
with open({log!r}, "a") as file:
    print(json.dumps(sys.argv[1:]), file=file)
if command == "info":
    devices = [dict(name="NVIDIA H200", emulated="FAKE_NO_GPU" in os.environ)]
    why = dict(no_gpu="there is no CUDA driver") if "FAKE_NO_GPU" in os.environ else dict()
    print(json.dumps(dict(devices=devices, nvrtc=dict(version="13.0"), **why)))
    sys.exit(0)
value = lambda option: int(words[words.index(option) + 1])
if value("--seqlen-q") == 76:
    print("jit-attention: --config \\"tile_z=3\\": there is no such field", file=sys.stderr)
    sys.exit(2)
if value("--seqlen-q") == 77:
    print("jit-attention: the GPU\\nis lost", file=sys.stderr)
    sys.exit(1)
row = lambda name, **fields: dict(name=name, why="", config=f"family=forward_wgmma tile_q={{name}}", **fields)
timed = lambda name, us, local, serialized: row(name, median_us=us, local_bytes=local, serialized=serialized)
rows = [timed(128, 30.12345, 0, False), row(64, trouble="wrong: by far"), timed(192, 20.0, 8, True)]
if value("--seqlen-q") == 78:
    rows = rows[1:2]
print(json.dumps(dict(rows=rows)))
sys.exit(1)  # as for any wrong row
"""


@pytest.fixture
def tool(tmp_path):
    path = tmp_path / "tool"
    path.write_text(FAKE.format(python=sys.executable, log=str(tmp_path / "log")))
    path.chmod(0o755)
    return path


@pytest.fixture
def search(tmp_path, tool):
    """Runs the script; the result has its lines and the command lines of the tool's `bench`, too."""

    def run(*arguments, **environment):
        out = tmp_path / "out" / "configs.jsonl"
        command = [sys.executable, ROOT / "bench" / "search.py", "--tool", tool, "--out", out, *arguments]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=os.environ | environment)
        done.lines = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else None
        log = tmp_path / "log"
        calls = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        done.bench = [call[1:] for call in calls if call[0] == "bench"]
        return done

    return run


def option(call, name):
    return call[call.index(name) + 1]


def test_the_file_is_like_the_one_that_the_cost_model_was_fitted_to(search):
    done = search("--head-dims", 96, "--seqlens", 1024, "--masks", "causal")
    assert done.returncode == 0, done.stderr
    header, *timings = done.lines
    known = [json.loads(line) for line in gzip.decompress(TIMINGS.read_bytes()).splitlines()]
    assert header.keys() == known[0].keys() | {"command"}
    assert (header["kind"], header["gpu"], header["cuda"]) == ("run", "NVIDIA H200", "13.0")
    assert header["command"].startswith("bench/search.py --tool ") and header["command"].endswith(" --masks causal")
    assert all(list(timing) == list(known[1]) for timing in timings)
    problem = dict(kind="timing", batch=16, heads=21, seqlen=1024, head_dim=96, head_dim_v=96, mask="causal")
    assert timings == [
        dict(problem, us=30.12, local_bytes=0, serialized=False, config="family=forward_wgmma tile_q=128"),
        dict(problem, us=20.0, local_bytes=8, serialized=True, config="family=forward_wgmma tile_q=192")]


def test_configs_without_a_time_are_reported_and_the_best_is_shown(search):
    done = search("--head-dims", 96, "--seqlens", 1024, "--masks", "none")
    assert "family=forward_wgmma tile_q=64: wrong: by far" in done.stderr
    assert "2 configs, best 20.0 us, family=forward_wgmma tile_q=192" in done.stderr


def test_the_default_grid(search):
    done = search()
    assert done.returncode == 0, done.stderr
    asked = [(option(call, "--head-dim"), option(call, "--seqlen-kv"), option(call, "--mask")) for call in done.bench]
    assert sorted(asked) == sorted(
        (str(d), str(s), mask) for d in (64, 128, 256) for s in (512, 1024, 2048, 4096, 8192, 16384)
        for mask in ("none", "causal"))
    for call in done.bench:
        batch, heads, seqlen, head_dim = (int(option(call, f"--{name}")) for name in ("batch", "heads", "seqlen-q",
                                                                                      "head-dim"))
        assert batch * seqlen == 16384 and heads * head_dim == 2048
        assert option(call, "--seqlen-kv") == str(seqlen)
        assert "--json" in call and "--among" not in call and "--config" not in call and "--bake" not in call


def test_options_reach_the_tool(search):
    done = search("--head-dims", 64, "--seqlens", 512, "--masks", "sliding_window(64)", "--candidates", 40, "--samples", 5,
                  "--among", "family=forward_wgmma tile_kv=128", "--config", "tile_q=64", "--config", "tile_q=128 warps=8",
                  "--bake")
    call, = done.bench
    assert option(call, "--mask") == "sliding_window(64)" and done.lines[1]["mask"] == "sliding_window(64)"
    assert option(call, "--candidates") == "40" and option(call, "--samples") == "5"
    assert option(call, "--among") == "family=forward_wgmma tile_kv=128" and "--bake" in call
    configs = [call[i + 1] for i, word in enumerate(call) if word == "--config"]
    assert configs == ["tile_q=64", "tile_q=128 warps=8"]
    assert "5 interleaved launches" in done.lines[0]["what"] and "baked" in done.lines[0]["what"]


def test_a_problem_that_fails_is_skipped(search):
    done = search("--head-dims", 64, "--masks", "none", "--seqlens", 512, 77, 78, 1024)
    assert done.returncode == 1
    assert [line["seqlen"] for line in done.lines[1:]] == [512, 512, 1024, 1024]
    assert "[2/4] head_dim 64, 77 tokens, none: " in done.stderr
    assert "failed with status 1: jit-attention: the GPU is lost\n" in done.stderr
    assert "78 tokens, none: no config has a time: wrong: by far" in done.stderr
    assert "2 of 4 problems were not measured" in done.stderr


def test_what_the_tool_refuses_ends_the_search(search):
    done = search("--head-dims", 64, "--masks", "none", "--seqlens", 76, 512)
    assert done.returncode == 2 and done.lines is None and len(done.bench) == 1
    assert done.stderr == 'search.py: jit-attention: --config "tile_z=3": there is no such field\n'


def test_a_place_that_cannot_be_written(search):
    done = search("--out", f"{__file__}/configs.jsonl")
    assert done.returncode == 2 and done.bench == []
    assert "configs.jsonl: no folder " in done.stderr and "can be made: " in done.stderr


def test_without_a_gpu_one_sentence_and_no_file(search):
    done = search(FAKE_NO_GPU="1")
    assert done.returncode == 1 and done.lines is None and done.bench == []
    assert done.stderr == "search.py: measuring needs a GPU, and there is no CUDA driver\n"


def test_a_tool_that_is_not_there(search):
    done = search("--tool", "/nowhere/jit-attention")
    assert done.returncode == 1 and done.lines is None
    assert done.stderr == "search.py: /nowhere/jit-attention cannot be run: No such file or directory\n"


@pytest.mark.parametrize("arguments, words", [
    (["--head-dims", "wide"], 'argument --head-dims: "wide" is no whole number above 0; see search.py --help'),
    (["--candidates", "0"], 'argument --candidates: "0" is no whole number above 0'),
    (["--samples", "-1"], "argument --samples"),
    (["--seqlens"], "argument --seqlens"),
    (["--frobnicate"], "--frobnicate"),
])
def test_wrong_arguments_are_one_sentence_and_exit_2(search, arguments, words):
    done = search(*arguments)
    assert done.returncode == 2 and done.bench == [] and done.lines is None
    assert len(done.stderr.splitlines()) == 1 and words in done.stderr


def test_measurements_are_not_overwritten(search, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "configs.jsonl").write_text('{"kind": "run"}\n')
    done = search("--head-dims", 64)
    assert done.returncode == 2 and done.lines == [{"kind": "run"}] and done.bench == []
    assert "configs.jsonl exists already" in done.stderr and "name another file" in done.stderr
