"""Predicted times of attention over several GPUs beside those that were measured, and the table of the documents."""

import gzip
import json
import pathlib
import re

import jit_attention as ja
import pytest

ROOT = pathlib.Path(__file__).parents[2]
PROBLEM = dict(heads_q=32, heads_kv=8, head_dim=128)


def measured(*cases):
    """Lines of this library's methods, newest first. Gradients of rows with positions are faster now than in older
    files."""
    for name, has_old_gradients in (("2-distributed-again", False), ("2-distributed", True), ("4-distributed", True)):
        with gzip.open(ROOT / "bench" / "results" / f"2026-11-30-h200x{name}.jsonl.gz", "rt") as lines:
            for line in map(json.loads, lines):
                method = line["contender"].split("-")[0]
                is_old = has_old_gradients and line["which"] == "fwd+bwd" and method != "heads"
                if line["case"] in cases and method in ("arrive", "gather", "ring", "heads") and not is_old:
                    yield method, line


def test_predictions_beside_measured_times():
    lines = list(measured("causal"))
    assert len(lines) > 25
    for method, line in lines:
        passes = (False, True) if line["which"] == "fwd+bwd" else (False,)
        calls = [ja.distributed.predict(ranks=line["ranks"], seqlen=line["seqlen"], method=method, backward=backward,
                                        host=line["host_us"] * 1e-6 / len(passes), **PROBLEM) for backward in passes]
        ratio = line["time_ms"] * 1e-3 / sum(call.time for call in calls)
        assert 0.77 < ratio < 1.2, (ratio, line)
        if line["seqlen"] == 65536 and method in ("arrive", "gather"):
            assert 0.95 < ratio < 1.05, (ratio, line)


def test_auto_is_the_measured_fastest():
    """The newest line of each method counts. "auto" is the fastest, or within what two runs differ by."""
    choice = pytest.importorskip("jit_attention.distributed.choice")
    times = {}
    for method, line in measured("causal", "documents"):
        times.setdefault((line["ranks"], line["case"], line["seqlen"], line["which"]), {})[method] = line["time_ms"]
    compared = set()
    for (ranks, case, seqlen, which), by_method in times.items():
        if len(by_method) < 2:
            continue
        documents = [seqlen // 8] * 8 if case == "documents" else None
        mask = ja.mask.causal()
        placement = ja.distributed.balance(mask, seqlen=seqlen, ranks=ranks, granule=128, documents=documents,
                                           mode="balanced" if documents else "zigzag")
        auto = "arrive" if choice.arrives(placement, mask, 128) else choice.cheapest((32, 128), (8, 128), 128, placement, mask,
                                                                                    None, 0.0)
        assert by_method[auto] <= 1.02 * min(by_method.values()), (ranks, case, seqlen, which, auto, by_method)
        compared.add((ranks, auto))
        if auto == "arrive":
            calls = {method: ja.distributed.predict(ranks=ranks, seqlen=seqlen, method=method, **PROBLEM).time
                     for method in by_method}
            assert calls[auto] == min(calls.values())
    assert compared >= {(2, "arrive"), (2, "gather"), (4, "gather")}


@pytest.mark.parametrize("changes", [dict(seqlen=4096), dict(ranks=4), dict(granule=64), dict(columns=320),
                                     dict(mask=ja.mask.causal() & ja.mask.document()), dict(documents=[8192, 8192])])
def test_auto_arrives_only_where_measured(changes):
    choice = pytest.importorskip("jit_attention.distributed.choice")
    options = dict(seqlen=16384, ranks=2, granule=128, documents=None) | changes
    mask, columns = options.pop("mask", ja.mask.causal()), options.pop("columns", 128)
    placement = ja.distributed.balance(ja.mask.causal(), mode="contiguous", **options)
    assert not choice.arrives(placement, mask, columns)
    plain = ja.distributed.balance(ja.mask.causal(), mode="contiguous", seqlen=16384, ranks=2)
    assert choice.arrives(plain, ja.mask.causal(), 128)


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
