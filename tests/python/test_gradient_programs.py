"""bench/gradient_accuracy.py, dropout_time.py, output_time.py, invariant_time.py and equal_runs.py: what they compute."""

import pathlib
import sys

import jit_attention as ja
import pytest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

import dropout_time  # noqa: E402
import equal_runs  # noqa: E402
import gradient_accuracy  # noqa: E402
import invariant_time  # noqa: E402
import output_time  # noqa: E402
from comparison import accuracy, records  # noqa: E402
from comparison.ours import JitAttention  # noqa: E402


def test_errors_of_gradients_beside_a_peer(emulated):
    pytest.importorskip("torch")
    [problem] = [one for one in gradient_accuracy.problems(96, 2, [32]) if one.name == "bf16/d32 outlier, causal"]
    everyone = [JitAttention("off"), gradient_accuracy.Deterministic("off"), accuracy.Plain(), accuracy.Plain()]
    everyone[2].name = "cudnn"
    run = records.Run(dict(contenders={one.name: dict(label=one.name, version="1") for one in everyone}))
    run.results = gradient_accuracy.measure(problem, everyone, device="cpu" if emulated else "cuda")
    assert all(1e-4 < one[name] < 1e-2 for one in run.results for name in gradient_accuracy.GRADIENTS)
    lines = gradient_accuracy.markdown(run).splitlines()
    begin = lines.index("| dq | ours | ours deterministic | cudnn | plain | over best peer |")
    _, one, _, best, plain, ratio = lines[begin + 2].strip("| ").split(" | ")
    assert best == plain and float(ratio) == pytest.approx(float(one) / float(best), abs=0.01)
    assert lines[begin + 4] == f"| largest |  |  |  |  | {ratio} |" and max(map(len, lines)) <= 120


def test_a_row_of_dropouts_costs():
    us = {(name, rate): 10.0 + 2 * (rate > 0) for name in dropout_time.PASSES for rate in (0, dropout_time.RATE)}
    row = dropout_time.row("d64", us)
    assert row == ["d64", *["10.0", "12.0", "1.20"] * 3] and len(row) == len(dropout_time.HEAD)


def test_a_row_of_outputs_costs(emulated, monkeypatch):
    pytest.importorskip("torch")
    for name, size in dict(BATCH=1, ROWS=96, HEADS=4, HEADS_KV=2).items():
        monkeypatch.setattr(output_time, name, size)
    problem = output_time.Problem(64, "causal", "cpu" if emulated else "cuda")
    o = problem.calls[output_time.PLAIN]()[0].clone()
    assert all((problem.calls[name]()[0] - o).abs().max() < 0.05 for name in output_time.LARGEST) and o.any()
    assert problem.calls["key_mass"]().sum().item() == pytest.approx(4 * 96, rel=1e-5)
    us = dict.fromkeys(problem.calls, 10.0) | {"key_mass": 7.0}
    row = output_time.row("d64", us)
    assert row == ["d64", "10.0", *["10.0", "1.000"] * 3, "7.0", "0.700"] and len(row) == len(output_time.HEAD)


def test_a_row_of_equal_bits(emulated, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr(invariant_time, "HEADS", 8)
    monkeypatch.setattr(invariant_time, "HEADS_KV", 2)
    problem = invariant_time.Problem([200, 1, 130], [128], "cpu" if emulated else "cuda")
    names = {invariant_time.FREE, "split_keys=128"}
    assert names <= set(problem.calls) and problem.differing() == []
    o = problem.calls["split_keys=128"]()
    problem.calls["split_keys=128"] = lambda: o + 1
    assert problem.differing() == ["split_keys=128"]
    us = dict.fromkeys(names, 10.0) | {invariant_time.PEER_ONE: 25.0}
    row = [text(us) for _, text in invariant_time.columns([128])]
    assert row == ["10.0", "2.50", "10.0", "25.0", ""]
    del us[invariant_time.PEER_ONE]
    assert [text(us) for _, text in invariant_time.columns([128])] == ["10.0", "", "10.0", "", ""]


def test_runs_that_differ_are_counted(emulated):
    torch = pytest.importorskip("torch")
    from training_problem import TrainingProblem

    one = TrainingProblem(0, 0, 4, 32, 2, (1, 40), ja.mask.causal(), 0.1, True, "cpu" if emulated else "cuda")
    one.forward()
    seen = []
    assert equal_runs.different_runs(one.gradients, one.backward, 2, lambda: seen.append(0)) == [0, 0, 0]
    changed = lambda: (one.backward(), one.gradients[1].view(-1)[3:4].mul_(-1 if len(seen) == 4 else 1))
    assert equal_runs.different_runs(one.gradients, changed, 3, lambda: seen.append(0)) == [0, 1, 0]
    assert equal_runs.different_runs([torch.ones(2).bfloat16()], lambda: None, 1, lambda: None) is None
    assert equal_runs.line("d64", 1000, [0, 1, 0]) == "d64: of 1,000 runs different in dq 0, dk 1, dv 0"
