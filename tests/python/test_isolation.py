"""bench/compare.py goes on when a contender hangs, loses the GPU or ends the process."""

import argparse
import pathlib
import sys
import time

import pytest

pytest.importorskip("torch", reason="needs PyTorch")
BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

import compare  # noqa: E402
import isolation_contenders  # noqa: E402
from comparison import cells  # noqa: E402
from comparison.isolation import Lost, MeasuringProcess  # noqa: E402

LIMIT = 5.0  # seconds
CELL = cells.cell("test", "small", 2, 9, 4, 8)
OPTIONS = argparse.Namespace(seconds=0.1, seed=1, peers=None)
EVERYONE = ["right", "sleeps", "also_right", "dies", "lost", "hangs"]


@pytest.fixture(scope="module")
def process():
    made = MeasuringProcess(isolation_contenders.maker(*EVERYONE), LIMIT, device="cpu")
    yield made
    made.end()


def results(process, names, silent=None):
    present = isolation_contenders.make(names)
    found = compare.measure_cell(CELL, present, OPTIONS, process, {} if silent is None else silent)
    return {one["contender"]: (one["status"], one["reason"]) for one in found}


def test_cells_are_measured_one_after_another_in_one_process(process):
    assert results(process, ["right", "also_right"]) == dict(right=("ok", None), also_right=("ok", None))
    first = process.process.pid
    assert results(process, ["right"]) == dict(right=("ok", None)) and process.process.pid == first


@pytest.mark.parametrize("who, words", [("dies", "ended with status 3"), ("lost", "no GPU any more")])
def test_who_ends_the_process_fails_in_that_cell_alone(process, who, words):
    results(process, ["right"])
    first, silent = process.process.pid, {}
    found = results(process, ["right", who, "also_right"], silent)
    assert found["right"] == found["also_right"] == ("ok", None)
    assert found[who][0] == "failed" and words in found[who][1] and silent == {}
    assert process.process.pid != first


def test_who_gives_no_answer_is_left_out_from_then_on(process):
    silent = {}
    found = results(process, ["right", "sleeps", "also_right"], silent)
    assert found["right"] == found["also_right"] == ("ok", None)
    assert found["sleeps"] == ("failed", f"no answer for {LIMIT:g} s")
    begin = time.monotonic()
    found = results(process, ["right", "sleeps"], silent)
    assert found == dict(right=("ok", None), sleeps=("failed", silent["sleeps"])) and "left out since" in silent["sleeps"]
    assert time.monotonic() - begin < LIMIT


def test_who_hangs_while_it_is_sampled_is_found(process):
    found = results(process, ["right", "hangs"])
    assert found["right"] == ("ok", None) and found["hangs"] == ("failed", f"no answer for {LIMIT:g} s")


def test_an_error_of_nobody_is_told_with_its_traceback(process):
    with pytest.raises(RuntimeError, match="KeyError"):
        process.measure(CELL, ["nobody"], 0.1, 1)
    assert process.measure(CELL, ["right"], 0.1, 1)[0]["status"] == "ok"


def test_a_process_that_does_not_begin_is_lost():
    process = MeasuringProcess(isolation_contenders.maker("nobody"), LIMIT, device="cpu")
    with pytest.raises(Lost, match="ended with status 1") as lost:
        process.measure(CELL, ["nobody"], 0.1, 1)
    assert lost.value.contender is None and process.process is None
