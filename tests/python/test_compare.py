"""bench/compare.py: suites and useful work, ratios that can be below 1, records, tables, charts, the command line."""

import dataclasses
import gzip
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree

import numpy as np
import pytest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

from comparison import (  # noqa: E402
    cells,
    chart,
    document,
    engine_suites,
    group_suites,
    records,
    report,
    serving,
    serving_suites,
    suites,
)
from comparison.backward_suites import BACKWARD_SUITES  # noqa: E402
from comparison.contenders import COLORS, NAMES, all_contenders  # noqa: E402
from comparison.inputs import alibi_slopes  # noqa: E402
from comparison.serving import Requests  # noqa: E402
from comparison.sparse_suites import SPARSE_MASKS  # noqa: E402


def small(**fields):
    base = dict(seqlen_kv=None, window=3, prefix=4, documents=3)
    return cells.cell("test", "small", 2, 9, 4, 8, **{**base, **fields})


def compare(*arguments):
    command = [sys.executable, BENCH / "compare.py", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


# Suites


def test_suites_have_the_expected_cells():
    sizes = {name: len(cells) for name, cells in suites.SUITES.items()}
    assert sizes == {"forward": 18, "causal": 18, "backward": 18, "backward-causal": 18, "training-step": 18,
                     "deterministic": 18, "backward-masks": 9, "backward-gqa": 12, "backward-varlen": 9,
                     "deterministic-varlen": 18,
                     "masks": 8, "fp8": 24, "sparse": 10, "gqa": 8,
                     "odd-shapes": 14, "latency": 10, "decode": 15, "paged": 18, "ragged": 8, "mixed": 6, "fp8-cache": 16,
                     "int8": 10, "int4": 10, "nvfp4": 9, "mxfp4": 9, "mla": 10, "engine-shapes": 32, "append": 7, "merge": 9, "wide": 12, "backward-wide": 6, "tree": 4,
                     "dsa": 12, "block-topk": 4, "video-sparse": 2, "distributed": 13}


def test_names_are_unique_and_begin_with_the_suite():
    problems = [one for those in suites.SUITES.values() for one in those]
    assert len({one.name for one in problems}) == len(problems) == len(suites.CELLS)
    assert all(one.name.startswith(f"{name}/") for name, those in suites.SUITES.items() for one in those)


OPERATIONS = [one for name in ("append", "merge", "dsa", "block-topk") for one in suites.SUITES[name]]


@pytest.mark.parametrize("problem", [one for one in suites.CELLS.values() if one not in OPERATIONS],
                         ids=lambda problem: problem.name)
def test_every_cell_is_a_problem_that_the_library_serves(problem):
    assert problem.heads_q % problem.heads_kv == 0
    most = 576 if getattr(problem, "values_in_keys", False) else 512
    assert all(dim % 8 == 0 and 8 <= dim <= most for dim in (problem.head_dim, problem.head_dim_v))
    assert problem.mask in (*cells.MASKS, *SPARSE_MASKS, "tree") and problem.mode in cells.MODES
    assert problem.panel and problem.tick
    if isinstance(problem, Requests):
        assert list(problem.seqlens_q) == sorted(problem.seqlens_q, key=lambda count: count == 1), "prefill first"
        assert problem.kv_bytes() < 10e9
    else:
        assert problem.score in cells.SCORES
        assert "document" not in problem.mask or problem.seqlen_q == problem.seqlen_kv


@pytest.mark.parametrize("suite", ["forward", "causal", "backward", "backward-causal"])
def test_the_grid_keeps_tokens_and_width(suite):
    cells = suites.SUITES[suite]
    assert {cell.batch * cell.seqlen_q for cell in cells} == {16384}
    assert {cell.heads_q * cell.head_dim for cell in cells} == {2048}
    assert {(cell.head_dim, cell.seqlen_q) for cell in cells} == {
        (d, s) for d in (64, 128, 256) for s in (512, 1024, 2048, 4096, 8192, 16384)}


def test_the_suite_over_gpus_holds_what_it_is_for():
    distributed = suites.SUITES["distributed"]
    assert {(one.mask, one.gradients) for one in distributed} >= {
        (mask, gradients) for mask in ("causal", "causal_document") for gradients in (False, True)}
    assert {"none", "window"} <= {one.mask for one in distributed} and {1, 4} == {one.gqa_ratio for one in distributed}
    four = [group_suites.over_ranks(one, 4) for one in distributed]
    assert {one.ranks for one in four} == {4} and all("4 GPUs" in one.panel for one in four)
    for one in distributed:
        assert one.mode == "together" and cells.in_mode(one, "sustained") is one
        forward = dataclasses.replace(one, gradients=False)
        assert one.flops() == forward.flops() * (3.5 if one.gradients else 1) and one.speed(10.0) == pytest.approx(one.flops() / 2e7)
        assert max(one.document_lengths()) <= one.seqlen_q // 4 and sum(one.document_lengths()) == one.seqlen_q
        small = group_suites.tiny(one)
        assert small.seqlen_q == 256 and small.ranks == 2 and small.gradients == one.gradients
        keep = np.tril(np.ones((256, 256), bool)) if one.mask != "none" else np.ones((256, 256), bool)
        if one.mask == "window":
            keep &= ~np.tril(np.ones((256, 256), bool), -small.window - 1)
        if one.documents_of_call:
            ids = np.repeat(np.arange(len(small.document_lengths())), small.document_lengths())
            keep &= ids[:, None] == ids[None]
        assert small.kept_pairs() == keep.sum()


def test_ratios_and_odd_dims_are_there():
    assert {1, 2, 4, 7, 8} <= {cell.gqa_ratio for cell in suites.SUITES["gqa"]}
    dims = {(cell.head_dim, cell.head_dim_v) for cell in suites.SUITES["odd-shapes"]}
    assert {(d, d) for d in (40, 72, 96, 112, 160, 192)} | {(192, 128)} <= dims


# Useful work


def kept_by_brute_force(cell):
    q, k = np.arange(cell.seqlen_q)[:, None], np.arange(cell.seqlen_kv)[None]
    if cell.mask == "none":
        return cell.batch * cell.seqlen_q * cell.seqlen_kv
    kept = 0
    for entry in range(cell.batch):
        lengths = cell.document_lengths(entry)
        ids = np.repeat(np.arange(len(lengths)), lengths)
        documents = (ids[:, None], ids[None]) if "document" in cell.mask else ()
        kept += int(np.broadcast_to(cell.keep(q, k, *documents), (cell.seqlen_q, cell.seqlen_kv)).sum())
    return kept


@pytest.mark.parametrize("seqlen_kv", [9, 14, 5])
@pytest.mark.parametrize("mask", cells.MASKS)
def test_kept_pairs_are_what_the_mask_keeps(mask, seqlen_kv):
    if "document" in mask and seqlen_kv != 9:
        seqlen_kv = 9
    cell = small(mask=mask, seqlen_kv=seqlen_kv)
    assert cell.kept_pairs() == kept_by_brute_force(cell) > 0


def test_gradients_are_two_and_a_half_times_forward_and_a_step_is_both():
    forward, causal = suites.CELLS["forward/d128-s2048"], suites.CELLS["causal/d128-s2048"]
    backward, step = suites.CELLS["backward/d128-s2048"], suites.CELLS["training-step/d128-s2048"]
    assert backward.flops() == 2.5 * forward.flops() == 10 * 16384 * 2048 * 2048
    assert step.flops() == 3.5 * forward.flops() and step.bytes() == forward.bytes() + backward.bytes()
    assert suites.CELLS["backward-causal/d128-s2048"].flops() == 2.5 * causal.flops() < 0.51 * backward.flops()


def test_suites_of_training_hold_what_they_are_for():
    training = {name: suites.SUITES[name] for name in BACKWARD_SUITES}
    everyone = [one for those in training.values() for one in those]
    assert {(one.batch * one.seqlen_q, one.heads_q * one.head_dim) for one in everyone} == {(16384, 2048)}
    assert {4, 8} == {one.gqa_ratio for one in training["backward-gqa"]}
    assert {one.deterministic for one in training["deterministic"]} == {False, True}
    masks = training["backward-masks"]
    assert {one.mask for one in masks} == set(cells.MASKS) and {one.score for one in masks} == set(cells.SCORES)
    for one in training["backward-varlen"]:
        lengths = one.document_lengths(0)
        assert one.packed and one.batch == 1 and max(lengths) > 2 * min(lengths)
    free, equal = training["deterministic-varlen"][:2]
    assert (free.deterministic, equal.deterministic) == (False, True) and free.packed and equal.packed
    assert free.document_lengths(0) == equal.document_lengths(0) == training["backward-varlen"][0].document_lengths(0)
    assert "packed" in str(one) and "deterministic" in str(training["deterministic"][1])
    with pytest.raises(ValueError, match="packed"):
        cells.backward_of(small(), "test", packed=True)


def test_what_equal_bits_cost_is_noted():
    free, equal, other_free, other_equal = suites.SUITES["deterministic"][:4]
    run = records.Run({}, measured(free, ours=90.0, fa4=50.0) + measured(equal, ours=100.0, fa4=records.UNSUPPORTED)
                      + measured(other_free, ours=80.0, fa4=50.0) + measured(other_equal, ours=100.0, fa4=100.0))
    assert report.notes(run, "deterministic")[-1].endswith("ours 0.85 (at least 0.80), fa4 0.50 (at least 0.50)")
    assert "fa4 0.50 (at least 0.50)." in document.section(run, "deterministic")
    assert report.deterministic_cost(synthetic_run(), "forward") == []


def test_documents_fill_the_sequence_and_differ_by_batch_entry():
    cell = dataclasses.replace(suites.CELLS["masks/document"], seqlen_q=512, seqlen_kv=512)
    lengths = [cell.document_lengths(entry) for entry in range(4)]
    assert all(sum(row) == 512 and len(row) == cell.documents and min(row) > 0 for row in lengths)
    assert len(set(map(tuple, lengths))) == 4 and lengths[0] == cell.document_lengths(0)


def test_useful_work_of_known_problems():
    full, causal = suites.CELLS["forward/d128-s4096"], suites.CELLS["causal/d128-s4096"]
    assert full.flops() == 4 * 4 * 16 * 4096 ** 2 * 128
    assert causal.flops() == pytest.approx(full.flops() / 2, rel=1e-3)
    mla = suites.CELLS["odd-shapes/d192-dv128-causal"]
    assert mla.flops() == 4 * 16 * (4096 * 4097 // 2) * 2 * (192 + 128)
    decode = suites.CELLS["decode/b1-h32/8-kv8192"]
    assert decode.kv_bytes() == 2 * 8 * 8192 * 256 and decode.bytes() == decode.kv_bytes() + 2 * 32 * 256
    assert decode.flops() == 4 * 32 * 8192 * 128
    gradients = suites.CELLS["backward-causal/d128-s8192"]
    assert gradients.flops() == 10 * 2 * 16 * (8192 * 8193 // 2) * 128
    assert (full.unit, decode.unit, suites.CELLS["latency/s16-graph"].unit) == ("TFLOP/s", "µs", "µs")
    assert full.speed(1000) == pytest.approx(full.flops() * 1e-9) and decode.speed(10) == 10


def test_alibi_slopes_are_the_papers():
    assert alibi_slopes(8) == [2.0 ** -i for i in range(1, 9)]
    assert len(alibi_slopes(12)) == 12
    assert alibi_slopes(12)[8:] == pytest.approx([2 ** (-i / 2) for i in (1, 3, 5, 7)])


# Serving


def batch(*groups, **fields):
    return serving_suites.requests("test", "batch", groups, **{**dict(heads_q=4, heads_kv=2, head_dim=8), **fields})


PAGED = dict(q_sequences="varlen", kv_sequences="paged", page_size=16, mask="causal")


def test_useful_work_of_a_batch_is_that_of_its_requests():
    mixed = batch((2, 5, 9), (3, 1, 7), **PAGED)
    assert (mixed.seqlens_q, mixed.seqlens_k) == ((5, 5, 1, 1, 1), (9, 9, 7, 7, 7))
    assert (mixed.batch, mixed.total_q, mixed.prefills, mixed.max_pages) == (5, 13, 2, 1)
    assert mixed.flops() == sum(mixed.cell(request).flops() for request in range(mixed.batch))
    assert mixed.bytes() == sum(mixed.cell(request).bytes() for request in range(mixed.batch))
    assert batch((2, 5, 9)).flops() == batch((2, 5, 9)).cell().flops() > batch((2, 5, 9), mask="causal").flops()


def test_parts_of_a_batch_are_its_requests():
    mixed = batch((2, 5, 9), (3, 1, 7), (1, 1, 8), **PAGED)
    prefill, decodes = mixed.part(0, 2), mixed.part(2, 6)
    assert prefill.groups == ((2, 5, 9),) and decodes.groups == ((3, 1, 7), (1, 1, 8))
    assert (prefill.q_sequences, decodes.q_sequences) == ("varlen", "dense")
    assert prefill.flops() + decodes.flops() == mixed.flops() and prefill.bytes() + decodes.bytes() == mixed.bytes()


def test_the_floor_is_what_reading_or_computing_takes():
    decode, prefill = suites.CELLS["decode/b64-h32/8-kv4096"], suites.CELLS["ragged/prefill-dense"]
    assert decode.floor_us() == pytest.approx(decode.kv_bytes() / serving.bandwidth() * 1e6)
    assert serving.bandwidth_of("NVIDIA H100 80GB HBM3") == 3.1e12
    assert serving.bandwidth_of("NVIDIA H200") == serving.bandwidth_of("of another kind") == 4.5e12
    assert prefill.floor_us() == pytest.approx(prefill.flops() / 989e6) and prefill.flops() / 989e6 > 200
    assert suites.SUITES["forward"][0].floor_us() is None


@pytest.mark.parametrize("groups, fields", [
    ([(1, 1, 8), (1, 1, 9)], {}), ([(1, 2, 8), (1, 1, 8)], {}), ([(1, 9, 8)], {}),
    ([(1, 1, 8)], dict(kv_sequences="paged")), ([(1, 1, 8)], dict(page_size=16))])
def test_a_batch_that_cannot_be_is_refused(groups, fields):
    with pytest.raises(ValueError, match="test/batch"):
        batch(*groups, **fields)


def test_serving_suites_hold_what_they_are_for():
    decode, paged, varlen, mixed = (suites.SUITES[name] for name in ("decode", "paged", "ragged", "mixed"))
    assert all(one.kv_sequences == "dense" and one.max_seqlen_q == 1 for one in decode)
    assert {64, 128, 256} == {one.head_dim for one in decode} and {1, 32} <= {one.gqa_ratio for one in decode}
    assert {1, 16, 32, 64, 256} == {one.page_size for one in paged}
    assert {"NHD", "HND"} == {one.kv_layout for one in paged}
    assert sum(len(set(one.seqlens_k)) > 1 for one in varlen) >= 4
    assert any(length % 16 for one in varlen for length in one.seqlens_k)
    assert sum(0 < one.prefills < one.batch for one in mixed) >= 4
    fp8 = suites.SUITES["fp8-cache"]
    assert {one.kv_dtype for one in fp8} == {"fp8_e4m3"} and {one.kv_dtype for one in [*decode, *paged]} == {"bf16"}
    assert {1, 16, 32, 64, 256} == {one.page_size for one in fp8} and sum(one.max_seqlen_q > 1 for one in fp8) == 4
    work = [one.flops() for one in varlen if one.label.startswith("prefill")]
    assert len(work) == 3 and max(work) < 1.001 * min(work)
    everyone = [*decode, *paged, *varlen, *mixed]
    assert {one.mode for one in everyone} == {"replay"}
    assert all(cells.in_mode(one, "sustained") is one for one in everyone)


def test_batches_of_engines_are_what_their_words_say():
    assert engine_suites.groups("q2k") == [(1, 2048, 2048)]
    assert engine_suites.groups("64q1s4k") == [(64, 1, 4096)]
    assert engine_suites.groups("16q1s2k_2q1k") == [(2, 1024, 1024), (16, 1, 2048)]
    assert engine_suites.groups("q257_7q1s1057_3q4s2051") == [(1, 257, 257), (3, 4, 2051), (7, 1, 1057)]
    for wrong in ("", "q", "2k", "q1s", "1q1_", "q2m"):
        with pytest.raises(ValueError, match="is no batch: parts are"):
            engine_suites.groups(wrong)
    engine = suites.SUITES["engine-shapes"]
    assert {one.kv_sequences for one in engine} == {"paged"} and {one.head_dim for one in engine} == {64, 96, 128, 256}
    assert {1, 4, 8, 16, 32} <= {one.gqa_ratio for one in engine} and len({one.panel for one in engine}) == 4
    assert sum(one.prefills > 0 for one in engine) == 6 and sum(0 < one.prefills < one.batch for one in engine) == 2
    kinds = {(one.prefills > 0, one.mask, one.q_sequences) for one in engine}
    assert kinds == {(True, "causal", "varlen"), (False, "none", "dense")}


# Ratios


def measured(cell, **us):
    return [records.timed(cell, name, [value] * 3) if isinstance(value, (int, float))
            else records.result(cell, name, value, "because") for name, value in us.items()]


def synthetic_run():
    """Ahead of the best peer by 2 in one cell, behind by 2 in another, wrong in a third, alone in a fourth."""
    grid = suites.SUITES["forward"]
    results = (measured(grid[0], ours=100.0, cudnn=200.0, fa2=400.0) + measured(grid[1], ours=100.0, cudnn=50.0,
               fa2=400.0) + measured(grid[2], ours=records.WRONG, cudnn=50.0, fa2=records.UNSUPPORTED)
               + measured(grid[3], ours=100.0, cudnn=records.FAILED, fa2=records.UNSUPPORTED))
    header = dict(kind="run", date="2026-01-02", gpu="NVIDIA H200", driver="1.2", command="compare.py",
                  contenders=dict(ours=dict(label="jit-attention", version="1", absent=None),
                                  cudnn=dict(label="cuDNN", version="9", absent=None),
                                  fa2=dict(label="FlashAttention-2", version="2", absent=None),
                                  fa3=dict(label="FlashAttention-3", version=None, absent="not installed"),
                                  pod=dict(label="FlashInfer POD", version="3", absent=None)))
    return records.Run(header, results)


def test_the_ratio_is_to_the_fastest_peer_and_can_be_below_one():
    rows = list(synthetic_run().of("forward").values())
    assert [report.best_peer(row) for row in rows] == ["cudnn", "cudnn", "cudnn", None]
    assert [report.ratio(row) for row in rows] == [2.0, 0.5, None, None]


def test_geometric_mean():
    assert report.geometric_mean([2.0, 0.5]) == pytest.approx(1.0)
    assert report.geometric_mean([1.0, 1.0, 8.0]) == pytest.approx(2.0)
    assert report.geometric_mean([]) is None


def test_the_summary_says_what_is_not_in_the_mean():
    text = report.summary(synthetic_run().of("forward"))
    assert "1.000 over 2 cells, ahead in 1; the worst is 0.500 (d64-s1024)." in text
    assert "Without a result of jit-attention, so not in the mean: forward/d64-s2048." in text
    assert "Without any peer: forward/d64-s4096." in text


def test_versions_are_those_of_the_table():
    run = synthetic_run()
    run.results += measured(suites.SUITES["mixed"][0], ours=10.0, cudnn=records.UNSUPPORTED, pod=20.0)
    assert report.conditions(run, "forward").endswith("; jit-attention 1, cuDNN 9, FlashAttention-2 2.")
    assert report.conditions(run, "mixed").endswith("; jit-attention 1, FlashInfer POD 3.")
    assert report.conditions(run, "mixed") in document.section(run, "mixed")


def test_spread_of_samples():
    expected = dict(samples=5, median=3.0, min=1.0, p10=1.0, p90=5.0, max=5.0)
    assert records.spread([5.0, 1.0, 3.0, 2.0, 4.0]) == expected


# Records, tables, charts


def write(path, run):
    writer = records.Writer(path)
    for record in (run.header, *run.results):
        writer.write(record)


def test_json_lines_round_trip(tmp_path):
    run = synthetic_run()
    write(tmp_path / "new" / "run.jsonl", run)
    assert records.load(tmp_path / "new" / "run.jsonl") == [run]


def test_compressed_lines_are_read_as_they_are(tmp_path):
    run, path = synthetic_run(), tmp_path / "run.jsonl"
    write(path, run)
    packed = gzip.compress(path.read_bytes())
    (tmp_path / "run.jsonl.gz").write_bytes(packed)
    assert records.load(tmp_path / "run.jsonl.gz") == [run]
    for spoilt in (packed[:-20], b"{}", packed[:30] + b"0000" + packed[34:]):
        (tmp_path / "run.jsonl.gz").write_bytes(spoilt)
        with pytest.raises(ValueError, match="run.jsonl.gz cannot be unpacked"):
            records.load(tmp_path / "run.jsonl.gz")


def test_a_spoilt_line_is_named(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text('{"kind": "run"}\n{"kind": "result", "suite": 3}\n')
    with pytest.raises(ValueError, match="run.jsonl:2 is no line of a comparison"):
        records.load(path)


def test_the_table_shows_losses_wrong_results_and_reasons(tmp_path):
    write(tmp_path / "run.jsonl", synthetic_run())
    done = compare("--from", tmp_path / "run.jsonl", "--table", tmp_path / "out" / "table.md")
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "out" / "table.md").read_text().splitlines()
    row = {cells[1].strip(): [cell.strip() for cell in cells[2:-1]]
           for cells in (line.split("|") for line in lines if line.startswith("|"))}
    speed = [suites.SUITES["forward"][i].speed(100.0) for i in range(2)]
    assert row["TFLOP/s"] == ["jit-attention", "cuDNN", "FlashAttention-2", "best peer", "ratio"]
    assert row["d64-s512"] == [f"{speed[0]:.1f}", f"{speed[0] / 2:.1f}", f"{speed[0] / 4:.1f}", "cuDNN", "2.00"]
    assert row["d64-s1024"][0] == f"{speed[1]:.1f}" and row["d64-s1024"][3:] == ["cuDNN", "0.50"]
    assert row["d64-s2048"][0] == "wrong" and row["d64-s2048"][-1] == ""
    assert row["d64-s4096"][1:] == ["failed", "–", "", ""]
    assert "- jit-attention, wrong: because (d64-s2048)" in lines
    assert "- FlashAttention-3: not installed" in lines
    assert "0.50" in done.stdout


def test_a_suite_in_several_files_is_taken_from_the_last(tmp_path):
    old, new = synthetic_run(), synthetic_run()
    new.results = measured(suites.SUITES["forward"][0], ours=100.0, cudnn=300.0)
    write(tmp_path / "old.jsonl", old)
    write(tmp_path / "new.jsonl", new)
    done = compare("--from", tmp_path / "old.jsonl", tmp_path / "new.jsonl")
    assert "3.000 over 1 cell, ahead in 1;" in done.stdout and "0.50" not in done.stdout


def test_both_modes_of_a_suite_stand_beside_each_other(tmp_path):
    cell, cold = suites.SUITES["forward"][0], synthetic_run()
    cold.results = measured(cell, ours=100.0, cudnn=300.0)
    results = measured(cells.in_mode(cell, "sustained"), ours=100.0, cudnn=150.0)
    sustained = dataclasses.replace(cold, results=results)
    write(tmp_path / "cold.jsonl", cold)
    write(tmp_path / "sustained.jsonl", sustained)
    done = compare("--from", tmp_path / "sustained.jsonl", tmp_path / "cold.jsonl", "--table", tmp_path / "table.md")
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "table.md").read_text().splitlines()
    assert [line for line in lines if line.startswith("##")] == ["## forward, sustained", "## forward, cold"]
    assert any("1.500 over 1 cell" in line for line in lines) and any("3.000 over 1 cell" in line for line in lines)


def test_a_mode_is_for_all_suites_without_their_own():
    forward, eager = suites.CELLS["forward/d64-s512"], suites.CELLS["latency/s16-eager"]
    assert cells.in_mode(forward, "sustained").mode == "sustained" and cells.in_mode(eager, "sustained") is eager
    assert cells.in_mode(forward, "sustained").speed(7.0) == forward.speed(7.0)
    assert cells.titled("forward", "cold") == "forward-cold" and cells.titled("latency", "eager") == "latency"


def test_who_was_measured_otherwise_is_noted_and_keeps_its_figure():
    cell = cells.in_mode(suites.SUITES["forward"][0], "sustained")
    run = records.Run({}, [records.timed(cell, "ours", [10.0], [3.0]),
                           records.timed(cell, "fa3", [20.0], [90.0], "called from the host: cannot be captured")])
    assert report.notes(run, "forward") == ["fa3, ok: called from the host: cannot be captured (all cells)"]
    assert report.rows(run, "forward")[1][-1] == "2.00" and "(" not in "".join(report.rows(run, "forward")[1])


def test_serving_tables_show_the_floor_and_rank_no_form_of_ours_as_a_peer():
    decode = suites.CELLS["decode/b1-h32/8-kv8192"]
    run = records.Run({}, measured(decode, ours=15.0, ours_two_calls=1.0, cudnn=30.0))
    assert report.rows(run, "decode") == [
        ["µs per call", "floor", "ours", "ours_two_calls", "cudnn", "best peer", "ratio", "over floor"],
        ["b1-h32/8-kv8192", "7.5", "15.0", "1.0", "30.0", "cudnn", "2.00", "2.01"]]
    assert report.is_ours("ours rescale=lazy") and not report.is_ours("oursother") and not report.is_ours("fa3")
    run = records.Run({}, measured(decode, ours=records.WRONG, cudnn=30.0))
    assert report.rows(run, "decode")[1] == ["b1-h32/8-kv8192", "7.5", "wrong", "30.0", "cudnn", "", ""]


def test_latency_tables_show_the_hosts_share():
    cell = suites.CELLS["latency/s16-eager"]
    run = records.Run({}, [records.timed(cell, "ours", [12.0], [3.0]), records.timed(cell, "cudnn", [6.0], [2.0])])
    assert report.rows(run, "latency")[1] == ["s16-eager", "12.0 (3.0)", "6.0 (2.0)", "cudnn", "0.50"]


@pytest.mark.parametrize("suite", suites.SUITES)
def test_a_chart_of_every_suite_has_its_labels(tmp_path, suite):
    run = synthetic_run()
    run.results = [one for index, cell in enumerate(suites.SUITES[suite])
                   for one in measured(cell, ours=50.0 + index, cudnn=60.0, fa2=records.UNSUPPORTED)]
    chart.draw(run, suite, tmp_path / f"{suite}.svg", COLORS)
    text = " ".join(xml.etree.ElementTree.parse(tmp_path / f"{suite}.svg").getroot().itertext())
    assert "jit-attention" in text and "cuDNN" in text and "FlashAttention-2" not in text
    assert f"{60 / 50:.2f}×" in text and "NVIDIA H200" in text


def test_charts_are_drawn_again_from_a_file(tmp_path):
    write(tmp_path / "run.jsonl", synthetic_run())
    done = compare("--from", tmp_path / "run.jsonl", "--charts", tmp_path / "images", "--chart", tmp_path / "one.svg")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "images" / "compare-forward-cold.svg").read_bytes()


def test_bars_of_a_chart_are_as_high_as_their_speeds(tmp_path):
    run = synthetic_run()
    one, *_ = suites.SUITES["forward"]
    run.results = measured(one, ours=100.0, cudnn=200.0)
    chart.draw(run, "forward", tmp_path / "one.svg", COLORS)
    drawn = xml.etree.ElementTree.parse(tmp_path / "one.svg").iter("{http://www.w3.org/2000/svg}path")
    paths = {path.get("fill"): path.get("d") for path in reversed(list(drawn))}  # bars stand before the legend
    bars = [re.fullmatch(r"M\S+ (\S+)V(\S+)h\S+V(\S+)", paths[COLORS[name]]) for name in ("ours", "cudnn")]
    heights = [float(bar[1]) - float(bar[2]) for bar in bars]
    assert heights[0] == pytest.approx(2 * heights[1], abs=0.2) and all(bar[1] == bar[3] for bar in bars)


def test_a_chart_of_nothing_that_was_served_is_a_frame(tmp_path):
    run = synthetic_run()
    run.results = measured(suites.SUITES["forward"][0], ours=records.FAILED)
    chart.draw(run, "forward", tmp_path / "one.svg", COLORS)
    text = " ".join(xml.etree.ElementTree.parse(tmp_path / "one.svg").getroot().itertext())
    assert "TFLOP/s" in text and "×" not in text


def test_tables_are_put_where_a_document_has_a_place_for_them(tmp_path):
    run = synthetic_run()
    run.results += measured(suites.SUITES["mixed"][0], ours=10.0, cudnn=20.0)
    write(tmp_path / "run.jsonl", run)
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    places = {title: f"<!-- compare.py: {title} -->\nold {title}\n<!-- compare.py: end -->\n"
              for title in ("mixed", "paged")}
    page.write_text("Before.\n" + places["mixed"] + "Between.\n" + places["paged"] + "Behind.\n")
    done = compare("--from", tmp_path / "run.jsonl", "--into", page)
    assert done.returncode == 0 and "no place for forward-cold" in done.stderr and "mixed" not in done.stderr
    text = page.read_text()
    assert "old mixed" not in text and "old paged" in text and "| 2x512-64x4k |" in text and "2.000 over 1 cell" in text
    assert all(f"{word}.\n" in text for word in ("Before", "Between", "Behind")) and text.count("<!--") == 4
    assert compare("--from", tmp_path / "run.jsonl", "--into", page).returncode == 0 and page.read_text() == text
    assert document.fill(page, [run], page.parent / "images") == ["forward-cold"]
    assert "(images/compare-mixed.svg)" in page.read_text()


# Command line


@pytest.mark.parametrize("arguments, words", [
    (["--suite", "nothing"], '"nothing"'),
    (["--peers", "cudnn,abc"], '"abc"'),
    (["--peers", "ours_two_calls"], '"ours_two_calls"'),
    (["--cells", "no such cell"], "--list"),
    (["--seconds", "-1"], "above 0"),
    (["--tuning", "sometimes"], "sometimes"),
    (["--mode", "lukewarm"], "lukewarm"),
    (["--frobnicate"], "--frobnicate"),
    (["--from", "/nowhere/at/all.jsonl"], "all.jsonl"),
    (["--from", "x.jsonl", "--out", "y.jsonl"], "--from"),
    (["--into", "/nowhere/page.md"], "page.md"),
    (["--chart", "picture.bmp"], ".svg"),
    (["--suite", "all", "--chart", "picture.svg"], "--charts"),
    (["--suite", "forward", "--emulated"], "not forward"),
    (["--suite", "distributed", "--ranks", "1"], "--ranks"),
])
def test_wrong_arguments_are_one_sentence_and_exit_2(arguments, words):
    done = compare(*arguments)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1 and words in done.stderr


def test_list_shows_cells_and_contenders():
    done = compare("--list", "--suite", "decode", "gqa", "--cells", "ratio7", "--mode", "sustained")
    assert done.returncode == 0
    assert "gqa/ratio7-h28/4" in done.stdout and "sustained" in done.stdout and "decode/" not in done.stdout
    assert all(f"  {name} " in done.stdout for name in NAMES)
    serving = compare("--list", "--suite", "mixed").stdout
    assert "2 of 512 × 512, 64 of 1 × 4096, 32/8 heads, head_dim 128, paged of 16, NHD, causal" in serving


def test_without_a_gpu_one_sentence_and_exit_1(tmp_path):
    from comparison import environment

    if environment.no_gpu() is None:
        pytest.skip("there is a GPU here")
    done = compare("--suite", "forward", "--out", tmp_path / "out.jsonl")
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1 and not (tmp_path / "out.jsonl").exists()


def test_contenders_have_one_shape():
    everyone = all_contenders()
    assert [one.name for one in everyone] == list(NAMES) and NAMES[0] == report.OURS
    assert len(set(COLORS.values())) == len(NAMES)
    for one in everyone:
        reason = one.absent()
        assert reason is None or ("\n" not in reason and reason)
        assert set(one.left_out) <= set(suites.SUITES)
        served = ("forward", "sparse", "tree", "mixed", "fp8", "fp8-cache", "dsa", "block-topk", "distributed")
        assert any(one.preparing(cell) for suite in served for cell in suites.SUITES[suite])
