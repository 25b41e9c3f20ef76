"""bench/list_draws.py: draws agree with their references, and what is wrong is noticed."""

import pathlib
import sys

import pytest
from seeded import SEED, some

pytest.importorskip("torch", reason="needs PyTorch")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

import list_draws  # noqa: E402


@pytest.fixture
def draws(emulated):
    return list_draws.Draws(SEED % 2**31, "cpu" if emulated else "cuda")


@pytest.mark.parametrize("kind", some(list_draws.Draws.KINDS, 5))
def test_no_list_is_different(draws, kind):
    compared, different = getattr(draws, kind)()
    assert compared > 0 and different == 0


def test_one_key_is_noticed(draws):
    q, k, v = draws.normal(6, 4, 64), draws.normal(300, 2, 64), draws.normal(300, 2, 64)
    times = (draws.chance((6, 2, 300)) < 0.5).long()
    times[3, 1] = 0
    scores = (q.double().view(6, 2, 2, 64) @ k.double().permute(1, 2, 0)).view(6, 4, 300) / 8
    scores += times.double().log().repeat_interleave(2, 1)
    lse = scores.logsumexp(-1)
    o = (scores - lse.nan_to_num(neginf=0)[..., None]).exp().view(6, 2, 2, 300) @ v.double().transpose(0, 1)
    compare = lambda: draws.compare(o.view(6, 4, 64), lse.T, q, k, v, times, 1 / 8)  # noqa: E731
    assert compare() == (12, 0)
    times[2, 0, 7] += 1
    assert compare() == (12, 1)
    times[3, 1, 5] += 1
    assert compare() == (12, 2)
