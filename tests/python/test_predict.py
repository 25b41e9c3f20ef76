"""Predicted times of attention over several GPUs beside those that were measured, and the table of the documents."""

import gzip
import json
import pathlib
import re

import jit_attention as ja
import pytest

ROOT = pathlib.Path(__file__).parents[2]
PROBLEM = dict(heads_q=32, heads_kv=8, head_dim=128)


def measured():
    """Lines of this library's methods under a causal mask. Gradients of rows with positions are faster now than in older
    files."""
    for name, has_old_gradients in (("2-distributed-again", False), ("2-distributed", True), ("4-distributed", True)):
        with gzip.open(ROOT / "bench" / "results" / f"2026-11-30-h200x{name}.jsonl.gz", "rt") as lines:
            for line in map(json.loads, lines):
                method = line["contender"].split("-")[0]
                is_old = has_old_gradients and line["which"] == "fwd+bwd" and method != "heads"
                if line["case"] == "causal" and method in ("arrive", "gather", "ring", "heads") and not is_old:
                    yield method, line


def test_predictions_beside_measured_times():
    lines = list(measured())
    assert len(lines) > 25
    for method, line in lines:
        passes = (False, True) if line["which"] == "fwd+bwd" else (False,)
        calls = [ja.distributed.predict(ranks=line["ranks"], seqlen=line["seqlen"], method=method, backward=backward,
                                        host=line["host_us"] * 1e-6 / len(passes), **PROBLEM) for backward in passes]
        ratio = line["time_ms"] * 1e-3 / sum(call.time for call in calls)
        assert 0.77 < ratio < 1.2, (ratio, line)
        if line["seqlen"] == 65536 and method in ("arrive", "gather"):
            assert 0.95 < ratio < 1.05, (ratio, line)


def test_the_table_of_the_documents():
    text = (ROOT / "docs" / "reference" / "frameworks.md").read_text()
    rows = re.findall(r"^\| (forward|backward), (\d+) GPUs \|(.*)\|$", text, re.MULTILINE)
    assert len(rows) == 6
    for which, ranks, cells in rows:
        ranks = int(ranks)
        for method, cell in zip(("arrive", "gather", "ring", "heads"), cells.split("|"), strict=True):
            found = [ja.distributed.predict(ranks=ranks, seqlen=each * ranks, method=method, backward=which == "backward",
                                            **PROBLEM).efficiency
                     for each in (4096, 32768)]
            assert cell.strip() == ("" if method == "arrive" and ranks > 8 else " / ".join(f"{x:.2f}" for x in found)), cell


@pytest.mark.parametrize("wrong, name", [(dict(host=-1), "host"), (dict(ranks=12), "ranks"), (dict(kept=2), "kept"),
                                         (dict(method="mail"), "method"), (dict(seqlen=0), "seqlen")])
def test_refusals(wrong, name):
    with pytest.raises(ja.InvalidArgumentError) as error:
        ja.distributed.predict(**dict(ranks=2, seqlen=4096) | PROBLEM | wrong)
    assert error.value.field == name
    alone = ja.distributed.predict(ranks=2, seqlen=4096, host=1e-3, **PROBLEM)
    assert alone.time == pytest.approx(alone.local + 1e-3) and alone.efficiency < 0.2
