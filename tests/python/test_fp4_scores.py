"""bench/fp4_scores.py: its roundings against all numbers of a type, and errors that are in order."""

import pathlib
import subprocess
import sys

import pytest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))
numpy = pytest.importorskip("numpy")

import fp4_scores  # noqa: E402

E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
E4M3 = [(m / 8 + (e > 0)) * 2.0 ** (max(e, 1) - 7) for e in range(16) for m in range(8) if (e, m) != (15, 7)]


def nearest(x, numbers):
    """The nearest number of a type, of two the one whose last bit is 0."""
    signed = [(sign * n, i) for i, n in enumerate(numbers) for sign in (1, -1)]
    return min(signed, key=lambda pair: (abs(pair[0] - x), pair[1] % 2))[0]


@pytest.mark.parametrize(("kind", "numbers"), [(fp4_scores.e2m1, E2M1), (fp4_scores.e4m3, E4M3)])
def test_roundings(kind, numbers):
    middles = [(a + b) / 2 for a, b in zip(numbers, numbers[1:])]
    random = numpy.random.default_rng()
    given = numpy.concatenate([numbers, middles, random.normal(0, numbers[-1] / 2, 300), random.normal(0, 0.01, 50)])
    given = numpy.concatenate([given, -given])
    assert kind(given).tolist() == [nearest(x, numbers) for x in given]


def test_scales_of_parts():
    x = numpy.random.default_rng().normal(0, 1, (3, 64))
    x[1, 16:32] = 0
    x[2, :16] *= 1e6
    found = fp4_scores.nvfp4(x)
    assert (found[1, 16:32] == 0).all()
    for row, begin in ((0, 0), (1, 32), (2, 0)):
        part, error = x[row, begin:begin + 16], (found - x)[row, begin:begin + 16]
        if row == 2:  # others lie far below what is left of the head's scale
            assert numpy.abs(error).max() < numpy.abs(part).max() / 4
    assert len(set(numpy.abs(found[2, :16]) / numpy.abs(found[2, :16]).max())) <= len(E2M1)


def test_errors_are_in_order():
    run = subprocess.run([sys.executable, BENCH / "fp4_scores.py", "--queries", "64", "--keys", "256", "--seed", "7"],
                         capture_output=True, text=True, check=True)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in run.stdout.splitlines()[2:]]
    errors = {(row[0], row[1]): [float(x) for x in row[2:]] for row in rows}
    for column in range(4):
        of = {scores: errors[scores, "bf16"][column] for scores in fp4_scores.SCORES}
        assert of["bf16"] < of["fp8, token"] / 5 < of["nvfp4"] / 5
    assert errors["nvfp4, k - mean", "bf16"][2] < errors["nvfp4", "bf16"][2]
    assert subprocess.run([sys.executable, BENCH / "fp4_scores.py", "--head-dim", "24"], capture_output=True).returncode == 2
