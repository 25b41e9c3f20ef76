"""bench/accuracy.py: its inputs, errors against fp64, variants of a config, and tables."""

import importlib.util
import pathlib
import subprocess
import sys

import pytest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

from comparison import accuracy, records  # noqa: E402
from comparison.contender import Contender, Unsupported  # noqa: E402

torch = pytest.importorskip("torch")
needs_ours = pytest.mark.skipif(importlib.util.find_spec("jit_attention") is None, reason="jit-attention is absent")


def small(dtype="bf16", inputs="normal", mask="none", seqlen=40):
    problems = accuracy.problems(batch=1, seqlen=seqlen, heads=2, head_dims=[32],
                                 dtypes=(*accuracy.DTYPES, accuracy.FP8))
    return next(one for one in problems if (one.dtype, one.inputs, one.cell.mask) == (dtype, inputs, mask))


def test_problems_are_all_combinations():
    names = {one.name for one in accuracy.problems()}
    assert len(names) == 2 * 3 * 4 * 2 and {"bf16/d128 normal", "fp16/d64 outlier, causal"} <= names


@pytest.mark.parametrize("kind", accuracy.INPUTS)
def test_inputs_are_what_their_name_says(kind):
    given = accuracy.make_inputs(small(inputs=kind, seqlen=4000), "cpu", 1)
    q, k, v = (t.double() for t in (given.q, given.k, given.v))
    largest = v.abs().max()
    weights = (q[0, :, 0] @ k[0, :, 0].T / 32 ** 0.5).softmax(-1)
    if kind == "normal":
        assert largest < 6 and abs(q.std() - 1) < 0.02 and abs(k.mean()) < 0.02
    elif kind == "outlier":
        assert largest > 10 and 0.0003 < (v.abs() > 6).double().mean() < 0.002
    elif kind == "sink":
        assert weights[:, 0].mean() > 0.5 and weights[:, 1:].max(0).values.mean() < 0.2
    else:
        assert abs(q.std() - 4) < 0.1 and abs(k.std() - 2) < 0.1 and weights.max(-1).values.mean() > 0.3


def test_the_reference_is_attention_in_fp64():
    problem = small(mask="causal")
    given = accuracy.make_inputs(problem, "cpu", 1)
    q, k, v = (t.double().transpose(1, 2) for t in (given.q, given.k, given.v))
    scores = (q @ k.transpose(2, 3) / 32 ** 0.5).masked_fill(torch.ones(40, 40).tril() == 0, -torch.inf)
    reference = accuracy.Reference(problem, given)
    found = reference.errors((scores.softmax(-1) @ v).transpose(1, 2), scores.logsumexp(-1))
    assert set(found) == {"rmse", "max", "lse_rmse", "lse_max"} and max(found.values()) < 1e-12
    off = reference.errors(reference.o + 0.5, None)
    assert off == dict(rmse=pytest.approx(0.5), max=pytest.approx(0.5))


class Given(Contender):
    def __init__(self, name, result):
        self.name = self.label = name
        self.result = result

    def with_lse(self, cell, inputs):
        return self.result(inputs)


def fail(inputs):
    raise RuntimeError("no such kernel\nfile.cu")


def refuse(inputs):
    raise Unsupported("not today")


def test_what_fails_is_told_and_keeps_nobody_from_being_measured():
    nan = lambda inputs: (inputs.q * torch.nan, None, {})
    contenders = [Given("broken", fail), Given("nan", nan), Given("refuses", refuse), accuracy.Plain()]
    results = accuracy.measure(small(), contenders, device="cpu")
    assert [(one["status"], one["reason"]) for one in results] == [
        ("failed", "RuntimeError: no such kernel"), ("wrong", "a result is not finite"),
        ("unsupported", "not today"), ("ok", None)]
    assert 1e-5 < results[-1]["rmse"] < 1e-2 and "rmse" not in results[1]


@needs_ours
@pytest.mark.parametrize("dtype", accuracy.DTYPES)
@pytest.mark.parametrize("text, family", [("", "forward_wgmma"), ("rescale=lazy", "forward_wgmma"),
                                          ("family=forward_mma_sync", "forward_mma_sync")])
def test_variants_of_ours_compute_attention(dtype, text, family, emulated):
    problem, ours = small(dtype, mask="causal"), accuracy.Variant(text)
    place = "cpu" if emulated else "cuda"
    [found] = accuracy.measure(problem, [ours], device=place)
    assert found["status"] == "ok", found["reason"]
    assert found["contender"] == ours.name and found["rmse"] < 2e-3 and found["lse_rmse"] < 1e-4
    config = found["detail"]["config"]
    assert config["family"] == family and ("lazy" in text) <= (config["rescale"] == "lazy")


@needs_ours
def test_fp8_is_measured_over_equal_inputs(emulated):
    problem = small(accuracy.FP8)
    given = accuracy.make_inputs(problem, "cpu", 0)
    assert all(t.equal(t.to(torch.float8_e4m3fn).to(t.dtype)) for t in (given.q, given.k, given.v))
    found, variant, plain = accuracy.measure(problem, [accuracy.Variant(), accuracy.Variant("rescale=lazy"), accuracy.Plain()],
                                             device="cpu" if emulated else "cuda")
    # P has a bit for the sign, four for the exponent and three digits: a key in 40 is off by 2^-5 in the mean.
    assert found["status"] == "ok" and 1e-3 < found["rmse"] < 1e-2, found
    assert variant["status"] == plain["status"] == "unsupported"


@needs_ours
def test_a_variant_that_is_not_legal_is_refused(emulated):
    ours = accuracy.Variant("family=forward_mma_sync rescale=on_overflow")
    [found] = accuracy.measure(small(), [ours], device="cpu" if emulated else "cuda")
    assert found["status"] == "unsupported" and "rescale" in found["reason"]


def test_tables_show_ratios_to_the_best_peer():
    def result(cell, contender, **errors):
        status = "ok" if errors else "failed"
        return dict(kind="result", suite="accuracy", cell=cell, contender=contender, status=status,
                    reason=None if errors else "no kernel", **errors)

    names = dict(ours="ours", fa3="FlashAttention-3", fa4="FlashAttention-4", plain="plain attention")
    header = dict(contenders={name: dict(label=label, version="1", absent=None) for name, label in names.items()})
    run = records.Run(header, [
        result("bf16/d64 normal", "ours", rmse=3e-4, lse_rmse=1e-6), result("bf16/d64 normal", "fa3", rmse=2e-4),
        result("bf16/d64 normal", "fa4", rmse=4e-4), result("bf16/d64 normal", "plain", rmse=1e-4),
        result("bf16/d64 peaky", "ours", rmse=2e-3), result("bf16/d64 peaky", "fa3"),
        result("bf16/d64 peaky", "fa4", rmse=1e-3), result("bf16/d64 peaky", "plain", rmse=1e-2)])
    lines = accuracy.markdown(run).splitlines()
    assert "|  | ours | FlashAttention-3 | FlashAttention-4 | plain attention |" in lines
    assert "| d64 normal | 3.00e-04 (1.50) | 2.00e-04 | 4.00e-04 | 1.00e-04 |" in lines
    assert "| d64 peaky | 2.00e-03 (2.00) | – | 1.00e-03 | 1.00e-02 |" in lines
    assert "| ratio to the best peer, geometric mean | 1.73 |  |  |  |" in lines
    assert "| ratio to the best peer, largest | 2.00 |  |  |  |" in lines
    assert "| d64 normal | 1.00e-06 |" in lines
    assert "- FlashAttention-3, failed: no kernel (d64 peaky)" in lines


@pytest.mark.parametrize("arguments, words", [
    (["--cells", "d7"], "bf16/d128 normal"),
    (["--variants", "always"], '"always" is no list of fields'),
])
def test_wrong_arguments_exit_2(arguments, words):
    done = subprocess.run([sys.executable, BENCH / "accuracy.py", *arguments], capture_output=True, text=True)
    assert done.returncode == 2 and words in done.stderr
