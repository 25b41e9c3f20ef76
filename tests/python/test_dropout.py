"""Dropout against double precision, with random numbers that NumPy makes on its own."""

import jit_attention as ja
import numpy
import pytest
from exact_attention import random_qkv
from request_batches import boundaries, int32
from test_backward import check as check_gradients
from test_backward import packed, random_problem, varlen

SHARE = 9  # kernels take long to compile

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


def exact(problem, keep, rate, visible=None, sinks=None):
    """o, lse and gradients of q, k, v, and of sinks, in double precision, of (batch, seqlen, heads, head_dim)."""
    do, q, k, v = (x.astype(numpy.float64).transpose(0, 2, 1, 3) for x in problem)
    ratio = q.shape[1] // k.shape[1]
    ks, vs = numpy.repeat(k, ratio, 1), numpy.repeat(v, ratio, 1)
    scale = q.shape[-1] ** -0.5
    scores = scale * q @ ks.swapaxes(-1, -2)
    if visible is not None:
        scores = numpy.where(visible, scores, -numpy.inf)
    total = numpy.exp(scores).sum(-1)
    if sinks is not None:
        total = total + numpy.exp(sinks)[:, None]
    with numpy.errstate(divide="ignore"):
        lse = numpy.log(total)
    p = numpy.exp(scores) / numpy.where(total == 0, 1, total)[..., None]
    weights = keep / (1 - rate)
    dp = weights * (do @ vs.swapaxes(-1, -2))
    delta = (p * dp).sum(-1)
    ds = p * (dp - delta[..., None])

    def per_kv_head(x):
        return x.reshape(x.shape[0], k.shape[1], ratio, *x.shape[2:]).sum(2)

    results = ((p * weights) @ vs, scale * ds @ ks, per_kv_head(scale * ds.swapaxes(-1, -2) @ q),
               per_kv_head((p * weights).swapaxes(-1, -2) @ do))
    o, *gradients = (x.transpose(0, 2, 1, 3) for x in results)
    if sinks is not None:
        gradients.append(-(numpy.exp(sinks[:, None] - lse) * delta).sum((0, 2)))
    return o, lse, gradients


def check_forward(o, lse, expected, lse_expected):
    """Attention in double precision; LSE is over all keys."""
    assert o.shape == expected.shape and lse.shape == lse_expected.shape
    assert numpy.abs(o - expected).max(initial=0) <= 4e-3 * numpy.abs(expected).max(initial=0)
    assert numpy.array_equal(numpy.isinf(lse), numpy.isinf(lse_expected))
    finite = numpy.isfinite(lse)
    assert numpy.abs(lse[finite] - lse_expected[finite]).max(initial=0) < 1e-3


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


@pytest.mark.parametrize("rate, has_sinks", [(0.1, False), (0.75, False), (0.3, True)])
def test_forward_and_backward_equal_double_precision(rng, place, fetch, rate, has_sinks):
    sizes = dict(batch=2, seqlen_q=50, seqlen_kv=75, heads_q=4, heads_kv=2, head_dim=32, head_dim_v=24)
    problem = random_problem(rng, "fp16", **sizes)
    seed, offset = (int(word) for word in rng.integers(2**63, size=2))
    i, j = numpy.ogrid[:50, :75]
    keep = kept((2, 4, 50, 75), rate, seed, offset)
    sinks = rng.standard_normal(4).astype(numpy.float32) if has_sinks else None
    expected, lse_expected, gradients = exact(problem, keep, rate, visible=j <= i + 25, sinks=sinks)
    do, q, k, v = map(place, problem)
    keywords = dict(mask=ja.mask.causal(), dropout_p=rate, rng_state=place(rng_state(seed, offset)),
                    sinks=place(sinks) if has_sinks else None)
    o, lse = ja.attention(q, k, v, return_lse=True, **keywords)
    check_forward(fetch(o), fetch(lse), expected, lse_expected)
    got = [fetch(x) for x in ja.attention_backward(do, q, k, v, o, lse, **keywords, d_sinks=has_sinks)]
    check_gradients(got, gradients)
    if has_sinks:
        assert numpy.abs(got[3] - gradients[3]).max() <= 0.01 * numpy.abs(gradients[3]).max()
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


LENGTHS = [33, 0, 70, 5], [40, 9, 65, 0]  # queries, keys


def expect_requests(results, batch, do, keep, rate, spare=0, sinks=None):
    """`results` are o, lse and gradients of varlen arrays, in double precision. Returns the gradients of sinks."""
    o, lse, *gradients = results
    begin_q = begin_k = 0
    of_sinks = 0
    for b, problem in enumerate(zip(do, batch.q, batch.k, batch.v)):
        count_q, count_k = len(problem[1]), len(problem[2])
        queries, keys = slice(begin_q, begin_q + count_q), slice(begin_k, begin_k + count_k)
        i, j = numpy.ogrid[:count_q, :count_k]
        own_keep = keep[b : b + 1, :, :count_q, :count_k]
        visible = j <= i + count_k - count_q
        right, right_lse, exact_gradients = exact([x[None] for x in problem], own_keep, rate, visible, sinks)
        check_forward(o[None, queries], lse[None, :, queries], right, right_lse)
        check_gradients([x[None, at] for x, at in zip(gradients, (queries, keys, keys))], exact_gradients)
        of_sinks += exact_gradients[3] if sinks is not None else 0
        begin_q, begin_k = queries.stop + spare, keys.stop + spare
    return of_sinks


@pytest.mark.parametrize("spare, has_sinks, deterministic", [(0, False, True), (0, True, False), (6, True, True)])
def test_varlen_sequences_equal_double_precision(rng, place, fetch, spare, has_sinks, deterministic):
    """Rows of nobody between requests change nothing, and a sink is never dropped."""
    batch, do = varlen(rng, *LENGTHS, heads_kv=2, ratio=2, head_dim=32, head_dim_v=24, dtype=numpy.float16)
    seed, offset = (int(word) for word in rng.integers(2**63, size=2))
    sinks = rng.standard_normal(4).astype(numpy.float32) if has_sinks else None
    arrays = dict(zip(("cu_seqlens_q", "cu_seqlens_k"), (boundaries([n + spare for n in side]) for side in LENGTHS)))
    if spare:
        arrays |= {"seqused_q": int32(LENGTHS[0]), "seqused_k": int32(LENGTHS[1])}
    if has_sinks:
        arrays["sinks"] = sinks
    options = {name: place(x) for name, x in arrays.items()}
    options |= dict(mask=ja.mask.causal(), dropout_p=0.3, rng_state=place(rng_state(seed, offset)))
    q, k, v, gradient = (packed(place, rows, spare) for rows in (batch.q, batch.k, batch.v, do))
    o, lse = ja.attention(q, k, v, return_lse=True, **options)
    keep = kept((4, 4, 70, 65), 0.3, seed, offset)
    wanted = dict(d_sinks=has_sinks, deterministic=deterministic)
    got = ja.attention_backward(gradient, q, k, v, o, lse, **options, **wanted)
    d_sinks = expect_requests(map(fetch, (o, lse, *got[:3])), batch, do, keep, 0.3, spare, sinks)
    if has_sinks:
        assert numpy.abs(fetch(got[-1]) - d_sinks).max() <= 0.01 * max(1, numpy.abs(d_sinks).max())
    if spare == 0:  # else there are rows of nobody, which hold anything
        assert numpy.array_equal(fetch(ja.attention(q, k, v, **options)), fetch(o))
        again = ja.attention_backward(gradient, q, k, v, o, lse, **options, **wanted)
        assert not deterministic or all(numpy.array_equal(fetch(x), fetch(y)) for x, y in zip(got, again))


def test_rows_in_use_of_dense_arrays_equal_double_precision(rng, place, fetch):
    batch, do = varlen(rng, *LENGTHS, heads_kv=1, ratio=2, head_dim=32, dtype=numpy.float16)

    def rows_of_all(rows):
        padded = numpy.full((len(rows), 70, *rows[0].shape[1:]), numpy.nan, rows[0].dtype)
        for own, target in zip(rows, padded):
            target[: len(own)] = own
        return padded

    used = [place(int32(side)) for side in LENGTHS]
    options = dict(seqused_q=used[0], seqused_k=used[1], mask=ja.mask.causal(), dropout_p=0.3,
                   rng_state=place(rng_state(3, 5)), tuning="off")
    q, k, v, gradient = (place(rows_of_all(rows)) for rows in (batch.q, batch.k, batch.v, do))
    o, lse = ja.attention(q, k, v, return_lse=True, zero_padding=True, **options)
    dq, dk, dv = ja.attention_backward(gradient, q, k, v, o, lse, **options)
    results = [fetch(x) for x in (o, lse, dq, dk, dv)]
    for b, count in enumerate(LENGTHS[0]):
        assert not results[0][b, count:].any() and numpy.isneginf(results[1][b, :, count:]).all()

    def of_requests(x, lengths):
        return numpy.concatenate([x[b, :count] for b, count in enumerate(lengths)])

    lse_rows = numpy.concatenate([results[1][b, :, :count] for b, count in enumerate(LENGTHS[0])], 1)
    keys = [of_requests(x, LENGTHS[1]) for x in results[3:]]
    rows = [of_requests(results[0], LENGTHS[0]), lse_rows, of_requests(results[2], LENGTHS[0]), *keys]
    expect_requests(rows, batch, do, kept((4, 2, 70, 65), 0.3, 3, 5), 0.3)


def test_padding_before_keys_is_none_of_their_positions(rng, place, fetch):
    q, k, v = random_qkv(rng, batch=2, seqlen_q=20, seqlen_kv=70, head_dim=32)
    drawn = dict(dropout_p=0.3, rng_state=place(rng_state(3, 5)))
    o = ja.attention(*map(place, (q, k, v)), cache_leftpad=place(int32([9, 9])), **drawn)
    short = ja.attention(place(q), place(k[:, 9:].copy()), place(v[:, 9:].copy()), **drawn)
    assert numpy.abs(fetch(o) - fetch(short)).max() <= 4e-3 * numpy.abs(fetch(short)).max()


@pytest.mark.parametrize("sequences, rows", [(0, 5), (2, 5)])
def test_rows_of_nobody_are_zeros_where_that_is_asked_for(place, fetch, sequences, rows):
    q = place(numpy.ones((rows, 2, 16), numpy.float16))
    ends = place(int32([0] * (sequences + 1)))
    o, lse = ja.attention(q, q, q, cu_seqlens_q=ends, cu_seqlens_k=ends, dropout_p=0.5,
                          rng_state=place(rng_state(1, 2)), zero_padding=True, return_lse=True)
    assert not fetch(o).any() and numpy.isneginf(fetch(lse)).all()


CONFIGS = {"forward_mma_sync": "tile_q=32 tile_kv=32 warps=2", "forward_wgmma": "tile_q=128 tile_kv=64 output=direct"}


@pytest.mark.parametrize("family", CONFIGS)
def test_every_bit_of_varlen_sequences_is_flash_attentions(rng, place, fetch, family):
    """Dropped scores equal those of the dense call, and where lengths differ those of a sequence's own positions."""
    if family == "forward_wgmma" and ja.devices()[0].arch != "sm_90a":
        pytest.skip("kernels of forward_wgmma are for sm_90a")
    config = f"family={family} {CONFIGS[family]}"
    q, k, v, do = probe(70, 110)
    seed, offset = (int(word) for word in rng.integers(2**64, size=2, dtype=numpy.uint64))
    drawn = dict(dropout_p=0.25, rng_state=place(rng_state(seed, offset)))
    spec = dict(dtype="fp16", head_dim=16, head_dim_v=128, dropout=True)
    dense = ja.prepare(ja.AttentionSpec(**spec), config=config)
    attention = ja.prepare(ja.AttentionSpec(sequences_q="varlen", sequences_kv="varlen", **spec), config=config)
    whole = [x.reshape(-1, *x.shape[2:]) for x in (q, k, v)]
    ends = dict(cu_seqlens_q=place(int32([0, 70, 140])), cu_seqlens_k=place(int32([0, 110, 220])))
    o = fetch(dense(place(q), place(k), place(v), **drawn))
    assert numpy.array_equal(fetch(attention(*map(place, whole), **ends, **drawn)), o.reshape(-1, *o.shape[2:]))

    keep = kept((2, 2, 70, 110), 0.25, seed, offset)
    lengths = [(40, 70), (110, 33)]
    parts = [numpy.concatenate([x[b, :n] for b, n in enumerate(side)])
             for x, side in zip((q, k, v), lengths + lengths[1:])]
    ends = dict(zip(("cu_seqlens_q", "cu_seqlens_k"), (place(boundaries(side)) for side in lengths)))
    here = list(map(place, parts))
    o, lse = attention(*here, **ends, **drawn, return_lse=True)
    gradient = numpy.concatenate([do[b, :n] for b, n in enumerate(lengths[0])])
    _, _, dv = ja.attention_backward(place(gradient), *here, o, lse, **ends, **drawn)
    begin_q = begin_k = 0
    for b, (count_q, count_k) in enumerate(zip(*lengths)):
        own = keep[b, :, :count_q, :count_k]
        of_queries, of_keys = fetch(o)[begin_q : begin_q + count_q], fetch(dv)[begin_k : begin_k + count_k]
        assert numpy.array_equal(of_queries[..., :count_k].transpose(1, 0, 2) > 0, own)
        assert numpy.array_equal(of_keys[..., :count_q].transpose(1, 2, 0) > 0, own)
        begin_q, begin_k = begin_q + count_q, begin_k + count_k


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


BESIDE = {  # by the name that the error has
    "page_table": dict(page_table=numpy.array([[0]], numpy.int32)),
    "split_keys": dict(split_keys=64),
}


@pytest.mark.parametrize("name", BESIDE)
def test_what_there_is_no_dropout_with_is_named(rng, place, name):
    _, q, k, v = map(place, random_problem(rng, "fp16", seqlen_q=4, seqlen_kv=4, heads_q=2, head_dim=16))
    given = {key: place(x) if isinstance(x, numpy.ndarray) else x for key, x in BESIDE[name].items()}
    with pytest.raises(ja.InvalidArgumentError, match=f"{name}: .*dropout") as refusal:
        ja.attention(q, k, v, dropout_p=0.5, rng_state=place(rng_state(1, 2)), **given)
    assert refusal.value.field == name
