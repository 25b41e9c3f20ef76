"""bench/fp8_accuracy.py: its table, and that means and scales do what the page says."""

import importlib.util
import pathlib

import jit_attention as ja
import pytest

pytest.importorskip("torch", reason="needs PyTorch")


@pytest.fixture(scope="module")
def bench():
    path = pathlib.Path(__file__).resolve().parents[2] / "bench" / "fp8_accuracy.py"
    spec = importlib.util.spec_from_file_location("fp8_accuracy", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_table_of_errors(bench, emulated, capsys):
    if emulated and ja.devices()[0].arch != "sm_90a":
        pytest.skip("q of fp8 needs sm_90a")
    schemes = ["tensor", "block, rotated", "head, means", "token, rotated, means"]
    sizes = ["--seqlen", "64", "--heads", "1", "--head-dim", "32", "--long", "128"]
    status = bench.main([*sizes, "--inputs", "biased-k", "long", "--schemes", *schemes])
    lines = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    table = {line[0]: [float(cell) for cell in line[1:]] for line in lines[2:]}
    assert status == 0 and lines[0] == ["scheme", "biased-k", "long"]
    assert list(table) == ["o itself", *schemes]
    for scheme in schemes:
        assert all(0 < error < 0.2 * whole for error, whole in zip(table[scheme], table["o itself"]))
    assert all(table[scheme][0] < 0.8 * table["tensor"][0] for scheme in schemes[2:])


def test_wrong_arguments(bench, capsys):
    with pytest.raises(SystemExit) as end:
        bench.main(["--head-dim", "48"])
    assert end.value.code == 2 and "power of two" in capsys.readouterr().err
