"""ja.exchange_merge between emulated devices of one process, a thread for each rank."""

import subprocess
import sys
import textwrap

import jit_attention as ja
import numpy
import pytest

PROGRAM = """
import threading
import numpy
import jit_attention as ja

ja.use_device("emulated:sm_90a,sm_90a")
RANKS, TOKENS, HEADS, D = 2, 5, 4, 64
random = numpy.random.default_rng()
os = [random.standard_normal((TOKENS, HEADS, D)).astype(numpy.float32) for _ in range(RANKS)]
lses = [random.standard_normal((HEADS, TOKENS)).astype(numpy.float32) for _ in range(RANKS)]
for lse in lses:
    lse[0, 0] = -numpy.inf
os[0][0, 0] = numpy.nan
nbytes = ja.exchange_merge_bytes(ranks=RANKS, tokens=TOKENS, heads=HEADS, head_dim_v=D, dtype="fp32")
buffers = [ja.ExchangeBuffer(nbytes, device=rank, peers=range(RANKS)) for rank in range(RANKS)]
peers = [buffer.address for buffer in buffers]


def on_all(call):
    results, errors = [None] * RANKS, []

    def run(rank):
        try:
            results[rank] = call(rank)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(RANKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors
    return results


def expected():
    weights = numpy.exp(numpy.stack(lses).astype(numpy.float64))
    total = weights.sum(0)
    o = sum(numpy.nan_to_num(o.astype(numpy.float64)) * w.T[..., None] for o, w in zip(os, weights))
    with numpy.errstate(divide="ignore", invalid="ignore"):
        return numpy.nan_to_num(o / total.T[..., None]), numpy.log(total)
"""


def run(program):
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM + textwrap.dedent(program)], capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stderr[-3000:]


def test_results():
    run("""
        o, lse = expected()
        for share, axis in (("all", None), ("heads", 1), ("tokens", 0)):
            for _ in range(2):
                for rank, (got, got_lse) in enumerate(on_all(lambda rank: ja.exchange_merge(
                        os[rank], lses[rank], peers=peers, nbytes=nbytes, rank=rank, share=share))):
                    want, want_lse = o, lse
                    if axis is not None:
                        n = o.shape[axis]
                        part = slice(n * rank // RANKS, n * (rank + 1) // RANKS)
                        want = o[:, part] if axis == 1 else o[part]
                        want_lse = lse[part] if axis == 1 else lse[:, part]
                    numpy.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
                    numpy.testing.assert_allclose(got_lse, want_lse, rtol=1e-5, atol=1e-6)
        out, out_lse = numpy.full(o.shape, numpy.nan, numpy.float16), numpy.full(lse.shape, numpy.nan, numpy.float32)
        def into(rank):
            given = dict(out=out, out_lse=out_lse) if rank == 0 else dict(out_dtype="fp16")
            return ja.exchange_merge(os[rank], lses[rank], peers=peers, nbytes=nbytes, rank=rank, **given)
        first, second = on_all(into)
        assert first[0] is out and first[1] is out_lse
        numpy.testing.assert_array_equal(first[0], second[0])
        numpy.testing.assert_allclose(out, o, rtol=2e-3, atol=1e-3)
        assert ja.exchange_fault(peers[0]) is None
    """)


def test_a_rank_that_never_calls():
    run("""
        call = lambda rank: ja.exchange_merge(os[rank], lses[rank], peers=peers, nbytes=nbytes, rank=rank, timeout=0.05)
        on_all(call)
        o, lse = call(0)
        assert numpy.isnan(o).all() and numpy.isnan(lse).all()
        assert ja.exchange_fault(peers[0]).startswith("rank 1 has not delivered call 2 in time"), ja.exchange_fault(peers[0])
        assert ja.exchange_fault(peers[1]) is None
        for buffer in buffers:
            buffer.clear()
        assert ja.exchange_fault(peers[0]) is None
        for o, lse in on_all(call):
            numpy.testing.assert_allclose(o, expected()[0], rtol=1e-5, atol=1e-6)
    """)


def given(place, **changes):
    changes = {name: place(value) if isinstance(value, numpy.ndarray) else value for name, value in changes.items()}
    o, lse = (place(numpy.zeros(shape, numpy.float32)) for shape in ((4, 2, 16), (2, 4)))
    nbytes = ja.exchange_merge_bytes(ranks=1, tokens=4, heads=2, head_dim_v=16, dtype="fp32")
    buffer = ja.ExchangeBuffer(nbytes)
    arguments = dict(o=o, lse=lse, peers=[buffer.address], nbytes=nbytes, rank=0) | changes
    return ja.exchange_merge(arguments.pop("o"), arguments.pop("lse"), **arguments)


@pytest.mark.parametrize(
    "changes, error, text",
    [
        (dict(o=numpy.zeros((4, 2, 2, 16), numpy.float32)), ja.InvalidArgumentError, "o: has 4 dimensions"),
        (dict(o=numpy.zeros((4, 2, 16), numpy.int32)), ja.InvalidArgumentError, "it must be fp32, bf16 or fp16"),
        (dict(lse=numpy.zeros((4, 2), numpy.float32)), ja.InvalidArgumentError, "lse"),
        (dict(peers=[]), ja.InvalidArgumentError, "peers: is empty"),
        (dict(peers=[64]), ja.InvalidArgumentError, "peers"),
        (dict(peers=["a"]), TypeError, "peers"),
        (dict(nbytes=64), ja.InvalidArgumentError, "nbytes: is 64; 4 tokens of 2 heads need"),
        (dict(nbytes=-1), ja.InvalidArgumentError, "nbytes: is -1"),
        (dict(rank=1), ja.InvalidArgumentError, "rank: is 1; ranks go from 0 to 0"),
        (dict(share="rows"), ja.InvalidArgumentError, 'share: is "rows"'),
        (dict(timeout=0), ja.InvalidArgumentError, "timeout: is 0 seconds"),
        (dict(out=numpy.zeros((4, 2, 8), numpy.float32)), ja.InvalidArgumentError, "out"),
        (dict(out=numpy.zeros((4, 2, 16), numpy.float32), out_dtype="bf16"), ja.InvalidArgumentError, "out holds fp32"),
    ],
)
def test_refused(place, changes, error, text):
    with pytest.raises(error) as raised:
        given(place, **changes)
    assert text in str(raised.value)


def test_one_rank(place):
    o, lse = given(place)
    assert o.shape == (4, 2, 16) and not o.any() and not lse.any()


def test_sizes():
    sizes = dict(ranks=2, tokens=1, heads=64, head_dim_v=128, dtype="bf16")
    assert ja.exchange_merge_bytes(**sizes) > ja.exchange_merge_bytes(**sizes, share="heads")
    with pytest.raises(ja.InvalidArgumentError, match="tokens: is -1"):
        ja.exchange_merge_bytes(**sizes | dict(tokens=-1))
    with pytest.raises(ja.InvalidSpecError, match="ranks"):
        ja.exchange_merge_bytes(**sizes | dict(ranks=17))
    with pytest.raises(ja.InvalidArgumentError, match="nbytes: is 0"):
        ja.ExchangeBuffer(0)
    with pytest.raises(ja.InvalidArgumentError, match="device"):
        ja.ExchangeBuffer(64, device=7)
