"""bench/first_call.py: its table, what it refuses, and that a process that fails is reported."""

import importlib.util
import pathlib
import subprocess
import sys

import pytest

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "bench" / "first_call.py"
SPEC = importlib.util.spec_from_file_location("first_call", PROGRAM)
first_call = importlib.util.module_from_spec(SPEC)
sys.modules["first_call"] = first_call  # where dataclasses look
SPEC.loader.exec_module(first_call)

HEADER = dict(gpu="A GPU", cores=16, driver="1.2", versions=dict(cuda="13.0"), date="2026-11-22", command="first_call.py")


def result(state, repeat, first_s, compiled=1, status="ok"):
    return dict(state=state, head_dim=64, causal=True, repeat=repeat, status=status, first_s=first_s,
                compiled=["compiled a kernel in 0.5 s"] * compiled)


def test_the_table_has_medians_and_counts():
    results = [result("untuned", 0, 0.9), result("untuned", 1, 1.1), result("untuned", 2, 0.5),
               result("tuned", 0, 2.5, compiled=9), result("tuned", 1, 0, status="failed")]
    head, row = [line for line in first_call.markdown(HEADER, results).splitlines() if line.startswith("| ")][::2]
    assert head == "| s, medians (all) | untuned | tuned | recorded | compiled untuned, tuned |"
    assert row == "| head_dim 64, causal | 0.900 (0.50, 0.90, 1.10) | 2.500 (2.50) | failed | 1; 9 |"


def test_a_process_that_ends_early_is_reported_with_what_it_said(monkeypatch, tmp_path):
    program = tmp_path / "child.py"
    program.write_text("import sys; sys.exit('no such GPU')")
    monkeypatch.setattr(first_call, "__file__", str(program))
    (one,) = first_call.measure([first_call.Call("tuned", 64, False, 0)])
    assert one["status"] == "failed" and "no such GPU" in one["reason"]


def test_processes_share_a_cache_folder_only_to_record_and_to_find(monkeypatch, tmp_path):
    program = tmp_path / "child.py"
    program.write_text("import os; print(os.environ['JIT_ATTENTION_CACHE_DIR'])")
    monkeypatch.setattr(first_call, "__file__", str(program))
    calls = [first_call.Call(state, 64, False, repeat) for repeat in (0, 1) for state in first_call.STATES]
    folders = [child.communicate()[0] for _, child in first_call.processes(calls, tmp_path)]
    untuned, tuned, recorded = folders[:3]
    assert tuned == recorded != untuned and len(set(folders)) == 4


@pytest.mark.parametrize("words", [["--repeats", "0"], ["--head-dims", "64", "-8"]])
def test_what_cannot_be_counted_is_refused(words):
    done = subprocess.run([sys.executable, PROGRAM, *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "must be at least 1" in done.stderr
