"""Errors on all ranks when one of them makes another call, sleeps, or is gone."""

import time

import jit_attention as ja
import pytest
from rank_processes import ByRank, Ranks, compute, renew

pytest.importorskip("torch", reason="needs PyTorch")
if not ja.devices()[0].emulated:
    pytest.skip("ranks of these tests are emulated devices", allow_module_level=True)

CAUSAL = ja.mask.causal()
SIZES = 48, 2, 2, 32  # queries and keys, heads of each, head dim


def placement(**others):
    return ja.distributed.balance(CAUSAL, seqlen=48, ranks=3, granule=16, **others)


@pytest.fixture(scope="module")
def three():
    ranks = Ranks(3)
    yield ranks
    ranks.close()


@pytest.mark.parametrize("wrong, field, said", [
    (dict(mask=ja.mask.causal() & ja.mask.sliding_window(7)), "mask", "sliding_window(7)"),
    (dict(softmax_scale=0.5), "softmax_scale", "softmax_scale 0.5"),
    (dict(method="ring"), "method", 'rank 1 has method "ring"'),
    (dict(deterministic=True), "deterministic", "ranks 0, 2 have deterministic False; rank 1 has deterministic True"),
    (dict(placement=1), "placement", "digest"),
])
def test_every_rank_says_what_differs(three, wrong, field, said):
    own = ByRank([placement(), placement(mode="zigzag") if "placement" in wrong else placement(), placement()])
    wrong = {name: value for name, value in wrong.items() if name != "placement"}
    options = dict(mask=CAUSAL, method="gather", timeout=60.0)
    errors = three.errors(compute, 1, SIZES, own, options, False, None, ByRank([{}, wrong, {}]))
    assert [type(error) for error in errors] == [ja.RankMismatchError] * 3
    assert len({str(error) for error in errors}) == 1
    assert errors[0].field == field and said in str(errors[0])


def test_shapes_of_a_rank(three):
    """A call that is wrong on all ranks."""
    given = dict(mask=CAUSAL, method="gather")
    errors = three.errors(compute, 1, SIZES, placement(), given, False, None, dict(rows=15))
    assert [type(error) for error in errors] == [ja.InvalidArgumentError] * 3
    assert "give placement.shard" in str(errors[0])
    errors = three.errors(compute, 1, SIZES, placement(), given, False, None, ByRank([{}, dict(rows=15), {}]))
    assert [type(error) for error in errors] == [ja.RankMismatchError] * 3
    assert "rank 1 has q of shape [1, 15, 2, 32]" in str(errors[0])
    errors = three.errors(compute, 1, SIZES, placement(), dict(mask=CAUSAL, method="heads"), False)
    assert all('use method="gather" or "ring"' in str(error) for error in errors)
    errors = three.errors(compute, 1, SIZES, placement(), dict(mask=CAUSAL, method="mail"), False)
    assert all(error.field == "method" for error in errors)


def sleep(rank, sleeper, seconds, *arguments):
    if rank == sleeper:
        time.sleep(seconds)
    return compute(rank, *arguments)


def test_what_goes_wrong_in_training(three):
    """After a call of a kind that all have seen: the others wait for data. Each time the group is lost, says so, and
    another one serves."""
    arguments = 1, SIZES, placement(), dict(mask=CAUSAL, method="gather", timeout=2.0), False

    # A rank calls something else.
    three.run(renew)
    three.run(compute, *arguments)
    errors = three.errors(compute, *arguments, None, ByRank([{}, dict(softmax_scale=2.0), {}]))
    assert [type(error) for error in errors] == [ja.RankMismatchError] * 3
    assert "softmax_scale 2.0" in str(errors[0])
    errors = three.errors(compute, *arguments)
    assert all("new_group" in str(error) for error in errors)

    # A rank sleeps.
    three.run(renew)
    three.run(compute, *arguments)
    three.start(sleep, 2, 8.0, *arguments)
    errors = [error for error, _ in three.results(seconds=60)]
    assert all(isinstance(error, ja.PeerTimeoutError) for error in errors[:2])
    assert all("rank 2 has not delivered what call 2 needs" in str(error) for error in errors[:2]), errors

    # A rank is killed.
    three.run(renew)
    three.run(compute, *arguments)
    three.kill(2)
    began = time.monotonic()
    three.start(compute, *arguments, but=(2,))
    errors = [error for error, _ in three.results(but=(2,), seconds=60)]
    assert time.monotonic() - began < 10
    assert [type(error) for error in errors] == [ja.PeerTimeoutError] * 2
    assert all("rank 2 has not delivered what call 2 needs" in str(error) for error in errors), errors


def test_a_rank_that_never_comes():
    ranks = Ranks(2)
    try:
        own = ja.distributed.balance(CAUSAL, seqlen=48, ranks=2, granule=16)
        ranks.start(compute, 1, SIZES, own, dict(mask=CAUSAL, method="gather", timeout=1.0), False, but=(1,))
        ((error, _),) = ranks.results(but=(1,), seconds=20)
        assert isinstance(error, ja.PeerTimeoutError) and "rank 1 has not come to call 1 within 1 s" in str(error)
    finally:
        ranks.close()
