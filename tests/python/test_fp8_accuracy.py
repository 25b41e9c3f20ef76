"""bench/fp8_accuracy.py: its table, and that means and scales do what the page says."""

import importlib.util
import pathlib
import sys

import jit_attention as ja
import pytest

pytest.importorskip("torch", reason="needs PyTorch")


def program(name):
    path = pathlib.Path(__file__).resolve().parents[2] / "bench" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def bench():
    return program("fp8_accuracy")


def test_a_table_of_errors(bench, emulated, capsys):
    if emulated and ja.devices()[0].arch != "sm_90a":
        pytest.skip("q of fp8 needs sm_90a")
    schemes = ["tensor", "block, rotated", "head, means", "token, rotated, means"]
    sizes = ["--seqlen", "64", "--heads", "1", "--head-dim", "32", "--long", "128", "96"]
    status = bench.main([*sizes, "--inputs", "biased-k", "long", "--schemes", *schemes])
    output = capsys.readouterr().out.splitlines()
    lines = [line.strip("| ").split(" | ") for line in output if line.startswith("|")]
    table = {line[0]: [float(cell) for cell in line[1:] if cell != "–"] for line in lines[2:]}
    assert status == 0 and lines[0] == ["scheme", "biased-k", "long 128", "long 96"]
    assert list(table)[: 1 + len(schemes)] == ["o itself", *schemes]
    for scheme in schemes:
        assert all(0 < error < 0.2 * whole for error, whole in zip(table[scheme], table["o itself"]))
    assert all(table[scheme][0] < 0.8 * table["tensor"][0] for scheme in schemes[2:])
    peers = [line for line in output if line.startswith("- ")]
    ran = len(table) - 1 - len(schemes)
    assert ran + len(peers) >= len(bench.PEERS) >= 4 and (ran == 0 and "absent, it needs a GPU" in peers[0] or not emulated)


class Peer:
    """A contender that computes exactly, but for what it is told."""

    scaling = "none"

    def __init__(self, label, make):
        self.label, self.make_quantized = label, make

    def absent(self):
        return None

    def version(self):
        return "1.2"


def test_peers_beside_ours(bench, emulated, monkeypatch, capsys):
    if emulated and ja.devices()[0].arch != "sm_90a":
        pytest.skip("q of fp8 needs sm_90a")

    def almost(cell, inputs):
        assert (cell.seqlen_q, cell.seqlen_kv, cell.heads_q, cell.head_dim) == (*inputs.k.shape[1:2] * 2, 2, 32)
        assert inputs.q.dtype == inputs.v.dtype == bench.torch.bfloat16
        inputs.k += 1  # its own copy
        o = bench.exact(inputs.q, inputs.k, inputs.v)
        return Runner(lambda: o, compared=lambda o: o + 1e-2)

    def refuse(cell, inputs):
        raise Unsupported("no such head_dim")

    def broken(cell, inputs):
        if inputs.k.float().mean() > 1 or inputs.k.float().std() > 2:
            raise RuntimeError("out of luck\nand more")
        return almost(cell, inputs)

    Runner, Unsupported = sys.modules["comparison.contender"].Runner, bench.Unsupported
    there = {Peer("Almost", almost): None, Peer("Picky", refuse): None, Peer("Broken", broken): None,
             Peer("Gone", None): "gone is not installed"}
    monkeypatch.setattr(bench, "peers_of", lambda options, device: there)
    sizes = ["--seqlen", "64", "--heads", "2", "--head-dim", "32", "--schemes", "head"]
    assert bench.main([*sizes, "--inputs", "normal", "biased-k"]) == 0
    output = capsys.readouterr().out.splitlines()
    table = {line.split(" | ")[0].strip("| "): line.strip("| ").split(" | ")[1:] for line in output if line[:1] == "|"}
    assert all(float(cell) == pytest.approx(1e-2, rel=1e-2) for cell in table["Almost"])
    assert table["Picky"] == ["–", "–"] and table["Broken"] == ["1.00e-02", "–"] and "Gone" not in table
    notes = [line.removeprefix("- ") for line in output if line.startswith("- ")]
    assert notes == ["Almost: 1.2, none", "Picky: 1.2, none", "Picky, normal, biased-k: no such head_dim",
                     "Broken: 1.2, none", "Broken, biased-k: RuntimeError: out of luck",
                     "Gone: absent, gone is not installed"]


def test_wrong_arguments(bench, capsys):
    with pytest.raises(SystemExit) as end:
        bench.main(["--head-dim", "48"])
    assert end.value.code == 2 and "power of two" in capsys.readouterr().err
