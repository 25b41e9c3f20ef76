"""Dropout against double precision, with random numbers that NumPy makes on its own."""

import jit_attention as ja
import numpy
import pytest
from exact_attention import random_qkv
from test_backward import check as check_gradients
from test_backward import random_problem

SHARE = 2  # kernels take long to compile

M32 = numpy.uint64(0xFFFFFFFF)


def philox(counter, key, rounds):
    """Philox4x32 of arrays: four counter words and two key words, all uint64 below 2**32."""
    c0, c1, c2, c3 = (numpy.asarray(word, numpy.uint64) for word in counter)
    k0, k1 = (numpy.asarray(word, numpy.uint64) for word in key)
    for _ in range(rounds):
        a, b = c0 * numpy.uint64(0xD2511F53), c2 * numpy.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = (b >> numpy.uint64(32)) ^ c1 ^ k0, b & M32, (a >> numpy.uint64(32)) ^ c3 ^ k1, a & M32
        k0, k1 = (k0 + numpy.uint64(0x9E3779B9)) & M32, (k1 + numpy.uint64(0xBB67AE85)) & M32
    return c0, c1, c2, c3


def kept(shape, rate, seed, offset):
    """Which of the probabilities (batch, heads, seqlen_q, seqlen_kv) flash-attention keeps.

    A warp's block of 16 rows and 32 columns has a counter of its own, and each lane 16 bytes of it, for its scores in
    the order in which it holds them.
    """
    batch, heads, seqlen_q, seqlen_kv = shape
    rows, columns = -(-seqlen_q // 16), -(-seqlen_kv // 32)
    b, h, row, column, lane = numpy.ogrid[:batch, :heads, :rows, :columns, :32]
    low = numpy.uint64(offset) + ((b * heads + h) * 32 + lane).astype(numpy.uint64)
    words = numpy.broadcast_arrays(*philox((low & M32, low >> numpy.uint64(32), row, column),
                                           (seed & 0xFFFFFFFF, seed >> 32), 7))
    bytes_of = numpy.stack(words, -1).astype("<u4").view(numpy.uint8)  # (batch, heads, rows, columns, lane, byte)
    result = numpy.empty((batch, heads, rows * 16, columns * 32), bool)
    threshold = int(numpy.floor(numpy.float32(1 - numpy.float32(rate)) * 255.0))
    for thread in range(32):
        for value in range(16):
            q = thread // 4 + 8 * (value // 2 % 2)
            k = 8 * (value // 4) + thread % 4 * 2 + value % 2
            result[:, :, q::16, k::32] = bytes_of[..., thread, value] <= threshold
    return result[:, :, :seqlen_q, :seqlen_kv]


def rng_state(seed, offset):
    return numpy.array([seed, offset], numpy.uint64).view(numpy.int64)


def exact(problem, keep, rate, visible=None):
    """o, lse, dq, dk and dv in double precision, of (batch, seqlen, heads, head_dim)."""
    do, q, k, v = (x.astype(numpy.float64).transpose(0, 2, 1, 3) for x in problem)
    ratio = q.shape[1] // k.shape[1]
    ks, vs = numpy.repeat(k, ratio, 1), numpy.repeat(v, ratio, 1)
    scale = q.shape[-1] ** -0.5
    scores = scale * q @ ks.swapaxes(-1, -2)
    if visible is not None:
        scores = numpy.where(visible, scores, -numpy.inf)
    lse = numpy.log(numpy.exp(scores).sum(-1))
    p = numpy.exp(scores - lse[..., None])
    weights = keep / (1 - rate)
    dp = weights * (do @ vs.swapaxes(-1, -2))
    ds = p * (dp - (p * dp).sum(-1, keepdims=True))

    def per_kv_head(x):
        return x.reshape(x.shape[0], -1, ratio, *x.shape[2:]).sum(2)

    results = ((p * weights) @ vs, scale * ds @ ks, per_kv_head(scale * ds.swapaxes(-1, -2) @ q),
               per_kv_head((p * weights).swapaxes(-1, -2) @ do))
    o, *gradients = (x.transpose(0, 2, 1, 3) for x in results)
    return o, lse, gradients


# Random123's kat_vectors.
@pytest.mark.parametrize("rounds, counter, key, answer", [
    (7, "00000000 00000000 00000000 00000000", "00000000 00000000", "5f6fb709 0d893f64 4f121f81 4f730a48"),
    (7, "ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "5207ddc2 45165e59 4d8ee751 8c52f662"),
    (7, "243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "4dfccaba 190a87f0 c47362ba b6b5242a"),
    (10, "243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
])  # fmt: skip
def test_the_tests_philox_gives_the_published_answers(rounds, counter, key, answer):
    counter, key, answer = ([int(word, 16) for word in words.split()] for words in (counter, key, answer))
    assert [int(word) for word in philox(counter, key, rounds)] == answer


@pytest.mark.parametrize("rate", [0.1, 0.75])
def test_forward_and_backward_equal_double_precision(rng, place, fetch, rate):
    sizes = dict(batch=2, seqlen_q=50, seqlen_kv=75, heads_q=4, heads_kv=2, head_dim=32, head_dim_v=24)
    problem = random_problem(rng, "fp16", **sizes)
    seed, offset = (int(word) for word in rng.integers(2**63, size=2))
    i, j = numpy.ogrid[:50, :75]
    keep = kept((2, 4, 50, 75), rate, seed, offset)
    expected, lse_expected, gradients = exact(problem, keep, rate, visible=j <= i + 25)
    do, q, k, v = map(place, problem)
    keywords = dict(mask=ja.mask.causal(), dropout_p=rate, rng_state=place(rng_state(seed, offset)))
    o, lse = ja.attention(q, k, v, return_lse=True, **keywords)
    assert numpy.abs(fetch(lse) - lse_expected).max() < 1e-3  # of all keys
    assert numpy.abs(fetch(o) - expected).max() < 4e-3 * numpy.abs(expected).max()
    check_gradients(map(fetch, ja.attention_backward(do, q, k, v, o, lse, **keywords)), gradients)
    again = ja.attention(q, k, v, **keywords)
    assert numpy.array_equal(fetch(again), fetch(o))


def probe(seqlen_q, seqlen_kv, heads=2, batch=2):
    """Queries of zeros see all keys alike; the value of key k, and the gradient of query q, are unit vectors."""
    q = numpy.zeros((batch, seqlen_q, heads, 16), numpy.float16)
    k = numpy.zeros((batch, seqlen_kv, heads, 16), numpy.float16)

    def units(seqlen, columns):
        return numpy.broadcast_to(numpy.eye(seqlen, columns, dtype=numpy.float16)[None, :, None],
                                  (batch, seqlen, heads, columns)).copy()

    return q, k, units(seqlen_kv, 128), units(seqlen_q, 128)


@pytest.mark.parametrize("config", [None, "tile_q=32 tile_kv=32 warps=2", "tile_q=64 tile_kv=96 warps=4 stages_k=2"])
def test_every_bit_is_flash_attentions(rng, place, fetch, config):
    q, k, v, do = probe(70, 110)
    seed, offset = (int(word) for word in rng.integers(2**64, size=2, dtype=numpy.uint64))
    state = place(rng_state(seed, offset))
    spec = ja.AttentionSpec(dtype="fp16", head_dim=16, head_dim_v=128, dropout=True)
    attention = ja.prepare(spec, config=config and f"family=forward_mma_sync {config}")
    o, lse = attention(place(q), place(k), place(v), dropout_p=0.25, rng_state=state, return_lse=True)
    keep = kept((2, 2, 70, 110), 0.25, seed, offset)
    assert numpy.array_equal(fetch(o)[..., :110].transpose(0, 2, 1, 3) > 0, keep)
    if config is None:
        _, _, dv = ja.attention_backward(*map(place, (do, q, k, v)), o, lse, dropout_p=0.25, rng_state=state)
        assert numpy.array_equal(fetch(dv)[..., :70].transpose(0, 2, 3, 1) > 0, keep)
        # An entry of the batch has what it would have at its place: the counter knows it.
        alone = attention(place(q[:1]), place(k[:1]), place(v[:1]), dropout_p=0.25, rng_state=state)
        assert numpy.array_equal(fetch(alone), fetch(o)[:1])


def test_a_rate_of_0_drops_nothing(rng, place, fetch):
    q, k, v = map(place, random_qkv(rng, seqlen_q=40, seqlen_kv=70, head_dim=32))
    config = "family=forward_mma_sync tile_q=64 tile_kv=64 warps=4"
    o = ja.prepare(ja.AttentionSpec(dtype="fp16", head_dim=32), config=config)(q, k, v)
    with_dropout = ja.prepare(ja.AttentionSpec(dtype="fp16", head_dim=32, dropout=True), config=config)
    state = place(rng_state(5, 7))
    assert numpy.array_equal(fetch(with_dropout(q, k, v, rng_state=state)), fetch(o))
    assert not numpy.array_equal(fetch(with_dropout(q, k, v, rng_state=state, dropout_p=0.5)), fetch(o))


@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5, float("nan"), float("inf")])
def test_rates_outside_of_0_to_1_are_refused(rng, place, rate):
    problem = random_problem(rng, "fp16", seqlen_q=4, seqlen_kv=4, heads_q=1, head_dim=16)
    do, q, k, v = map(place, problem)
    o, lse = ja.attention(q, k, v, return_lse=True)
    keywords = dict(dropout_p=rate, rng_state=place(rng_state(1, 2)))
    with pytest.raises(ja.InvalidArgumentError, match="dropout_p.*at least 0 and less than 1"):
        ja.attention(q, k, v, **keywords)
    with pytest.raises(ja.InvalidArgumentError, match="dropout_p.*at least 0 and less than 1"):
        ja.attention_backward(do, q, k, v, o, lse, **keywords)


def test_what_is_missing_or_wrong_is_refused(rng, place):
    q, k, v = map(place, random_qkv(rng, seqlen_q=4, seqlen_kv=4, head_dim=16))
    with pytest.raises(ja.InvalidArgumentError, match="rng_state.*missing"):
        ja.attention(q, k, v, dropout_p=0.5)
    with pytest.raises(ja.InvalidArgumentError, match="rng_state.*int64"):
        ja.attention(q, k, v, dropout_p=0.5, rng_state=place(numpy.zeros(2, numpy.int32)))
    state = place(rng_state(1, 2))
    with pytest.raises(ja.InvalidArgumentError, match="seqused_k.*dropout"):
        ja.attention(q, k, v, dropout_p=0.5, rng_state=state, seqused_k=place(numpy.array([3], numpy.int32)))


BESIDE = {  # by the name that the error has; and whether queries and keys are ragged
    "cu_seqlens_q": (dict(cu_seqlens_q=numpy.array([0, 4], numpy.int32)), True, False),
    "cu_seqlens_k": (dict(cu_seqlens_k=numpy.array([0, 4], numpy.int32)), False, True),
    "page_table": (dict(page_table=numpy.array([[0]], numpy.int32)), False, False),
    "sinks": (dict(sinks=numpy.zeros(2, numpy.float32)), False, False),
    "split_keys": (dict(split_keys=64), False, False),
}


@pytest.mark.parametrize("name", BESIDE)
def test_what_there_is_no_dropout_with_is_named(rng, place, name):
    given, ragged_q, ragged_kv = BESIDE[name]
    do, q, k, v = map(place, random_problem(rng, "fp16", seqlen_q=4, seqlen_kv=4, heads_q=2, head_dim=16))
    o, lse = ja.attention(q, k, v, return_lse=True)
    if ragged_q:
        do, q, o, lse = do[0], q[0], o[0], lse[0]
    if ragged_kv:
        k, v = k[0], v[0]
    given = {key: place(x) if isinstance(x, numpy.ndarray) else x for key, x in given.items()}
    keywords = dict(dropout_p=0.5, rng_state=place(rng_state(1, 2)), **given)
    with pytest.raises(ja.InvalidArgumentError, match=f"{name}: .*dropout") as refusal:
        ja.attention(q, k, v, **keywords)
    assert refusal.value.field == name
    if name in ("split_keys", "page_table"):
        return
    with pytest.raises(ja.InvalidArgumentError, match=f"{name}: .*dropout"):
        ja.attention_backward(do, q, k, v, o, lse, **keywords)
