"""bench/comparison/cudnn_flex_peer.py: intervals of keys that stand for masks, and a call of a stand-in for the package."""

import pathlib
import sys
import types

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

from comparison import cells, measure, sparse_suites  # noqa: E402
from comparison.contender import Unsupported  # noqa: E402
from comparison.cudnn_flex_peer import MOST_INTERVALS, CuDnnFlex, mask_intervals, row_intervals  # noqa: E402

torch = pytest.importorskip("torch")


def kept(ends, keys):
    """Which keys the intervals of rows say, (rows, keys)."""
    assert len(ends) % 2 == 1 and bool((ends[1:] >= ends[:-1]).all())
    place = torch.arange(keys)[None]
    rows = [row.tolist() for row in ends.T]
    seen = [(place < row[0]) | sum((place >= a) & (place < b) for a, b in zip(row[1::2], row[2::2])) for row in rows]
    return torch.cat([one.bool() for one in seen])


@pytest.mark.parametrize("seed", range(20))
def test_intervals_of_random_rows(seed):
    generator = torch.Generator().manual_seed(seed)
    keep = torch.rand(7, 23, generator=generator) < torch.rand(7, 1, generator=generator)
    keep[0], keep[1] = False, True
    assert torch.equal(kept(row_intervals(keep), 23), keep)
    keep[:, 0] = True
    ends = row_intervals(keep)
    assert bool((ends[0] > 0).all()) and torch.equal(kept(ends, 23), keep)


def test_rows_of_many_intervals_are_refused():
    keep = torch.zeros(2, 4 * MOST_INTERVALS, dtype=torch.bool)
    keep[1, ::2] = True
    with pytest.raises(Unsupported, match="intervals"):
        row_intervals(keep)


def cell_of(mask):
    make = sparse_suites.SparseCell if mask in sparse_suites.SPARSE_MASKS else cells.Cell
    dense = cells.cell("masks", mask, 2, 40, 4, 16, mask="none" if make is not cells.Cell else mask)
    return dense if make is cells.Cell else cells.backward_of(dense, "sparse", make, mask=mask, window=5)


@pytest.mark.parametrize("mask", ["none", "causal", "window", "document", "causal_document", "prefix", "causal_window"])
def test_intervals_are_the_mask(mask):
    cell = cell_of(mask)
    inputs = measure.make_inputs(cell, "cpu", 3)
    ends = mask_intervals(cell, inputs)
    assert ends.shape[0] == 1 and ends.shape[2] == cell.batch * cell.seqlen_q and ends.dtype == torch.int32
    queries, keys = torch.arange(40)[:, None], torch.arange(40)[None]
    for entry in range(cell.batch):
        right = torch.ones(40, 40, dtype=torch.bool) if mask == "none" else inputs.keep(cell, entry, 0, queries, keys)
        assert torch.equal(kept(ends[0][:, entry * 40:entry * 40 + 40], 40), right.expand(40, 40))


def test_plan_and_call(monkeypatch):
    seen = []
    module = types.ModuleType("cudnn.flex_attention")
    module.create_mask_plan = lambda mask, q, k, v, build_backward: seen.append((tuple(mask.shape), build_backward)) or 5
    module.flex_attn_func = lambda q, k, v, mask_plan, deterministic: seen.append((mask_plan, deterministic)) or q
    monkeypatch.setitem(sys.modules, "cudnn", types.ModuleType("cudnn"))
    monkeypatch.setitem(sys.modules, "cudnn.flex_attention", module)
    cell = cell_of("causal")
    inputs = measure.make_inputs(cell, "cpu", 3)
    assert CuDnnFlex().make(cell, inputs).call() is inputs.q
    assert seen[0] == ((1, 1, 80), False) and seen[1:] == [(5, False)] * 2
    with pytest.raises(Unsupported, match="softcap"):
        CuDnnFlex().make(cells.cell("masks", "capped", 2, 40, 4, 16, score="softcap"), inputs)
