"""bench/gauntlet.py: its tables, and PyTorch's attention on the CPU put to the cases."""

import json
import pathlib
import sys

import numpy
import pytest
from failures.case import Run, all_cases
from failures.interface import Library
from failures.problem import Outcome
from seeded import SEED

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

import gauntlet  # noqa: E402
from comparison.records import FAILED, OK, UNSUPPORTED, WRONG  # noqa: E402

CASES = {case.name: case for case in all_cases()}


def run():
    return Run(numpy.random.default_rng(SEED), gpu=False)


class Zeros(Library):
    """All that it gives is 0."""

    def forward(self, problem):
        return Outcome(o=numpy.zeros((*problem.q.shape[:-1], problem.head_dim_v or problem.v.shape[-1])))


def test_what_is_wrong_fails():
    assert gauntlet.put(CASES["causal-output"], Zeros(), run())[0] == WRONG
    assert gauntlet.put(CASES["causal-output"], Library(), run()) == (UNSUPPORTED, "no attention")
    assert gauntlet.put(CASES["causal-output"], None, run())[0] == FAILED
    silent = [name for name, case in CASES.items() if gauntlet.put(case, Zeros(), run())[0] == OK]
    assert not silent, f"{silent} pass with results of 0"


def test_a_process_that_does_not_start_does_not_fail(monkeypatch):
    process = gauntlet.Process("nobody", SEED, 120)
    assert process.ask("causal-output")[:2] == (UNSUPPORTED, "did not start: its process ended with status 1")
    monkeypatch.setattr(gauntlet, "START_SECONDS", 0)
    assert process.ask("causal-output")[:2] == (UNSUPPORTED, "did not start: no answer for 0 s")


def made(tmp_path, name, *results):
    contenders = {one: dict(label=one.upper(), version="1", absent=None) for one in ("ours", "peer")}
    header = dict(kind="run", gpu="a GPU", driver="1", date="2026-01-01", command="gauntlet.py", contenders=contenders)
    lines = [dict(kind="result", suite="gauntlet", cell=case, contender=who, status=status, reason=reason)
             for case, who, status, reason in results]
    path = tmp_path / name
    path.write_text("".join(json.dumps(line) + "\n" for line in [header, *lines]))
    return str(path)


def test_tables(tmp_path, capsys):
    first = made(tmp_path, "a", ("causal-output", "peer", WRONG, "o is off"), ("softcap-formula", "peer", OK, None),
                 ("causal-output", "ours", OK, None), ("softcap-formula", "ours", UNSUPPORTED, "no"))
    assert gauntlet.main(["--from", first, "--table", str(tmp_path / "table.md")]) == 0
    text = (tmp_path / "table.md").read_text()
    assert text == capsys.readouterr().out.removesuffix("\n")
    for line in ("| case | OURS | PEER |", "| `causal-output` | pass | **FAIL** |", "| `softcap-formula` | – | pass |",
                 "| failed | 0 | 1 |", "- PEER, `causal-output`: o is off"):
        assert line in text.splitlines()
    again = made(tmp_path, "b", ("causal-output", "ours", FAILED, "lost"))
    assert gauntlet.main(["--from", first, again]) == 1
    assert "| `causal-output` | **FAIL** | **FAIL** |" in capsys.readouterr().out


def test_ours_must_have_been_put_to_the_cases():
    """A run in which ours did not start, or had no time, does not count as passed."""
    def lost(*results, asked=True):
        named = [dict(cell=cell, contender=who, status=status, reason=reason) for cell, who, status, reason in results]
        return gauntlet.is_lost([gauntlet.records.Run({}, named)], asked)

    ours = ("causal-output", "ours", OK, None)
    assert not lost(ours)
    assert not lost(ours, ("causal-output", "peer", WRONG, "o is off"))
    assert not lost(("causal-output", "ours", UNSUPPORTED, "no pages"))
    assert lost()
    assert lost(ours, ("softcap-formula", "peer", OK, None))
    assert lost(("causal-output", "ours", UNSUPPORTED, "did not start: no answer for 180 s"))
    assert lost(("causal-output", "ours", UNSUPPORTED, "not run: 480 s were over"))
    assert not lost(("causal-output", "peer", OK, None), asked=False)


def test_arguments(capsys):
    assert gauntlet.main(["--list", "--cases", "fp8"]) == 0
    assert capsys.readouterr().out.count("\nfp8 ") >= 3
    for wrong in (["--libraries", "nobody"], ["--cases", "nothing"]):
        with pytest.raises(SystemExit, match="2"):
            gauntlet.main(wrong)


@pytest.mark.parametrize("kind", ("math", "flex"))
def test_pytorch_on_the_cpu(kind):
    pytest.importorskip("torch", reason="needs PyTorch")
    from comparison.gauntlet_torch import FlexLibrary, Math, Sdpa
    from comparison.torch_peers import Flex

    library = Sdpa(Math(), "cpu") if kind == "math" else FlexLibrary(Flex(), "cpu", compiled=False)
    wanted = ["causal-output", "window-over-splits", "window-counts-keys", "window-beside-padding"]
    wanted += ["gradients-of-few-tokens", "gradient-of-a-broadcast-bias", "documents-within-a-window",
               "gradients-over-blocks"] if kind == "math" else ["softcap-formula"]
    for name in wanted:
        assert gauntlet.put(CASES[name], library, run()) == (OK, None), name
    for name, why in (("scale-of-values", "no k_descale, v_descale"), ("caches-with-room", "no seqused_k"),
                      ("blocks-for-other-lengths", "no blocks of its own")):
        assert gauntlet.put(CASES[name], library, run()) == (UNSUPPORTED, why)
    taken = gauntlet.put(CASES["mixed-types"], library, run())
    assert taken == ((OK, None) if kind == "math" else (WRONG, "v of another type than k is taken in silence"))
