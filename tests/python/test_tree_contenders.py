"""Trees in bench/compare.py: cells, and contenders that run on any device."""

import pathlib
import sys

import jit_attention as ja
import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

from comparison import suites  # noqa: E402
from comparison.backward import BackwardReference, make_backward_inputs  # noqa: E402
from comparison.cells import backward_of, cell  # noqa: E402
from comparison.inputs import make_inputs  # noqa: E402
from comparison.measure import checked  # noqa: E402
from comparison.ours import JitAttention  # noqa: E402
from comparison.ours_rows import SeparateRows  # noqa: E402
from comparison.reference import Reference  # noqa: E402
from comparison.tree_suites import TreeCell, TreeTrainingCell  # noqa: E402

torch = pytest.importorskip("torch", reason="needs PyTorch")
SIZES = dict(prompt=24, answer=11)


def small(kind):
    one = cell("tree", "small", 1, 24 + 3 * 11, 4, 64, heads_kv=2, mask="tree")
    return TreeCell(**vars(one), **SIZES) if kind is TreeCell else backward_of(one, "tree", kind, **SIZES)


def test_cells_are_trees():
    for one in (*suites.SUITES["tree"], small(TreeCell)):
        tree = ja.tree([one.prompt] + [one.answer] * one.answers, [-1] + [0] * one.answers)
        assert one.ends() == tree.ends.tolist() and one.answers == (3 if one.label == "small" else 8)
        assert one.kept_pairs() == int((tree.positions + 1).astype(np.int64).sum())
    one = small(TreeCell)
    q, k = np.arange(57)[:, None], np.arange(57)
    assert np.array_equal(one.keep(q, k), (k <= q) & (q < np.array(one.ends())))
    forward, training = suites.SUITES["tree"][:2]
    assert training.flops() == 3.5 * forward.flops()


@pytest.mark.parametrize("contender", [JitAttention, SeparateRows])
@pytest.mark.parametrize("kind", [TreeCell, TreeTrainingCell])
def test_ours_are_right(emulated, contender, kind):
    one, own, device = small(kind), contender("off"), "cpu" if emulated else "cuda"
    inputs = (make_inputs if kind is TreeCell else make_backward_inputs)(one, device, 3)
    reference = (Reference if kind is TreeCell else BackwardReference)(one, inputs)
    check = checked(one, own.preparing(one)(one, inputs), reference)
    assert check.correct, check


def test_others_take_part_where_they_have_a_mask_for_it():
    from comparison.contenders import all_contenders

    for kind in (TreeCell, TreeTrainingCell):
        assert [one.name for one in all_contenders() if one.preparing(small(kind))] == ["ours", "ours_rows", "cudnn-flex", "flex"]


def test_flex_keeps_what_the_tree_has():
    one = small(TreeCell)
    inputs = make_inputs(one, "cpu", 3)
    q, k = torch.arange(57)[:, None], torch.arange(57)
    kept = inputs.keep(one, 0, 0, q, k)
    assert torch.equal(kept, (k <= q) & (q < torch.tensor(one.ends())))
