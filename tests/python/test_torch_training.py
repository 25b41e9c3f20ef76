"""examples/train_sums.py: a mask and a score of one's own in training, beside PyTorch's attention."""

import importlib.util
import pathlib

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")


def test_example_trains_as_the_stock_implementation_does():
    path = pathlib.Path(__file__).parents[2] / "examples" / "train_sums.py"
    spec = importlib.util.spec_from_file_location("train_sums", path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    ours, stock, tables = example.train(steps=6, batch=2, seqlen=40, width=32, heads=2, layers=1, rate=1e-2)
    assert ours[-1] < 0.9 * ours[0]
    assert max(abs(a - b) for a, b in zip(ours, stock, strict=True)) < 0.01 * stock[0]
    assert all((table != 0).sum() >= 10 for table in tables)  # of 24: the farthest are not seen
