"""Errors on all ranks when one of them makes another call, sleeps, or is gone."""

import time

import jit_attention as ja
import numpy
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
    of_four = ja.distributed.balance(CAUSAL, seqlen=48, ranks=4, granule=16)
    errors = three.errors(compute, 1, SIZES, of_four, given, False)
    assert all(str(error).startswith("placement: is of 4 ranks, and the group has 3") for error in errors)
    errors = three.errors(compute, 1, SIZES, placement(), dict(mask=CAUSAL, method="mail"), False)
    assert all(error.field == "method" for error in errors)


def of_version(rank, other, *arguments):
    """With the version of another library on one rank."""
    from jit_attention.distributed import operator

    kept = operator.__version__
    operator.__version__ = "0.0.1" if rank == other else kept
    try:
        return compute(rank, *arguments)
    finally:
        operator.__version__ = kept


def test_versions(three):
    errors = three.errors(of_version, 2, 1, SIZES, placement(), dict(mask=CAUSAL, method="gather", softmax_scale=0.3), False)
    assert [type(error) for error in errors] == [ja.RankMismatchError] * 3
    assert all("rank 2 has jit_attention 0.0.1" in str(error) and error.field == "version" for error in errors)


def test_a_rank_that_refuses_tells_the_others(three):
    """Its own error names the argument; others have begun the call. Then all go on."""
    given = dict(mask=CAUSAL, method="gather", softmax_scale=0.4, timeout=60.0)
    began = time.monotonic()
    for wrong, field in ((dict(timeout=-1.0), "timeout"), (dict(layout="SBHD"), "layout"), (dict(mask="causal"), "mask"),
                         (dict(placement=None), "placement")):
        own = wrong.pop("placement", 0)
        by_rank = ByRank([{}, wrong, {}])
        if own is None:
            errors = three.errors(unplaced, 1, SIZES, placement(), given)
        else:
            errors = three.errors(compute, 1, SIZES, placement(), given, False, None, by_rank)
        assert [type(error) for error in errors] == [ja.RankMismatchError, ja.InvalidArgumentError, ja.RankMismatchError], errors
        assert {error.field for error in errors} == {field}
        assert str(errors[0]) == str(errors[2]) and f"{field}: rank 1 has refused call" in str(errors[0])
    three.run(compute, 1, SIZES, placement(), given, False)
    assert time.monotonic() - began < 50


def test_a_rank_with_any_other_error_tells_the_others(three):
    given = dict(mask=CAUSAL, method="gather", softmax_scale=0.45, timeout=60.0)
    began = time.monotonic()
    errors = three.errors(compute, 1, SIZES, placement(), given, False, None, ByRank([{}, dict(softmax_scale="x"), {}]))
    assert [type(error) for error in errors] == [ja.RankMismatchError, ValueError, ja.RankMismatchError], errors
    three.run(compute, 1, SIZES, placement(), given, False)
    assert time.monotonic() - began < 50


def unplaced(rank, seed, sizes, own, given):
    """On rank 1 without a placement, of rows that no regular one has."""
    return compute(rank, seed, sizes, own, given, False, None, dict(rows=11) if rank == 1 else {}, named=rank == 1)


def test_tensors_that_are_shards(three):
    """Shards of equal shape would be read as if they were whole."""
    ids, bias = numpy.zeros((1, 16), "int32"), numpy.zeros((1, 2, 16, 48), "float32")
    documents = dict(mask=CAUSAL & ja.mask.document(), tensors=dict(document_ids_q=ids, document_ids_kv=ids))
    for more, name in ((documents, "document_ids_q"), (dict(score=ja.score.bias(), tensors=dict(bias=bias)), "bias")):
        errors = three.errors(compute, 1, SIZES, placement(), dict(mask=CAUSAL, method="gather") | more, False)
        assert [type(error) for error in errors] == [ja.InvalidArgumentError] * 3
        assert all(f"tensors: '{name}' has 16 along" in str(error) and "give each rank the whole" in str(error) for error in errors)
    own = ja.score.text("return score + bias[q % 5];", name="bias", tensors={"bias": "fp32"})  # a text's may have any sizes
    three.run(compute, 1, SIZES, placement(), dict(mask=CAUSAL, method="gather", score=own, tensors=dict(bias=bias[0, 0, 0, :5])),
              False)


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

    # It does so while the others wait for the state of dropout.
    three.run(renew)
    drawn = *arguments[:3], arguments[3] | dict(dropout_p=0.2), False
    three.run(compute, *drawn)
    three.start(sleep, 0, 5.0, *drawn)
    errors = [error for error, _ in three.results(seconds=60)]
    assert all(isinstance(error, ja.PeerTimeoutError) and "rank 0 has not delivered" in str(error) for error in errors[1:]), errors

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
