"""Masses of listed keys, and the loss of an indexer with its gradients, against double precision."""

import jit_attention as ja
import numpy
import pytest
from jit_attention import _core
from request_batches import BF16
from seeded import some


def wild_lists(rng, tokens, entries, keys):
    """Any order, some twice, some that are none; a list is empty, one has only what is none."""
    lists = rng.integers(-2, keys + 2, (tokens, 1, entries)).astype(numpy.int32)
    lists[rng.random(lists.shape) < 0.03] = rng.choice(numpy.int32([-(2**31), 2**31 - 1]))
    counts = rng.integers(-1, entries + 3, (tokens, 1)).astype(numpy.int32)
    counts[0], counts[1] = 0, entries
    lists[1] = -1
    return lists, counts


def named(lists, counts, token, keys):
    """Places in the list that name keys, and these."""
    own = lists[token, 0, : max(0, int(counts[token, 0]))].astype(numpy.int64)
    places = numpy.flatnonzero((own >= 0) & (own < keys))
    return places, own[places]


def random(rng, *shape, dtype=BF16):
    return rng.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("heads,kv_heads,head_dim,dtype", some([(40, 1, 576, BF16), (128, 1, 72, numpy.float16), (3, 2, 128, BF16), (20, 3, 64, numpy.float16)]))
def test_masses(rng, place, fetch, heads, kv_heads, head_dim, dtype):
    tokens, keys, entries = 4, 150, 75
    q, k = random(rng, tokens, heads * kv_heads, head_dim, dtype=dtype), random(rng, keys, kv_heads, head_dim, dtype=dtype)
    lists, counts = wild_lists(rng, tokens, entries, keys)
    lse = rng.uniform(1, 3, (heads * kv_heads, tokens)).astype(numpy.float32)
    lse[rng.integers(len(lse)), 2] = -numpy.inf
    right = numpy.zeros(lists.shape)
    for token in range(tokens):
        places, rows = named(lists, counts, token, keys)
        for head in range(heads * kv_heads):
            if lse[head, token] > -numpy.inf:
                scores = k[rows, head // heads].astype(float) @ q[token, head].astype(float) * 0.1
                right[token, 0, places] += numpy.exp(scores - lse[head, token])
    runs = [fetch(_core._list_mass(place(q), place(k), place(lse), place(lists), place(counts), softmax_scale=0.1)) for _ in range(2)]
    assert numpy.array_equal(*runs)
    assert runs[0].shape == lists.shape and numpy.abs(runs[0] - right).max() <= 1e-4 * right.max()
    assert not runs[0][right == 0].any()


def exact_loss(q, k, weights, lists, targets, counts, d_loss):
    """The loss, then dq, dk and the gradient of weights."""
    tokens = len(q)
    q, k, weights, targets, d_loss = (x.astype(float) for x in (q, k, weights, targets, d_loss))
    loss, dq, dk, dw = numpy.zeros(tokens), numpy.zeros(q.shape), numpy.zeros(k.shape), numpy.zeros(weights.shape)
    for token in range(tokens):
        places, rows = named(lists, counts, token, len(k))
        total = targets[token, 0, places].sum()
        if not len(places) or total == 0:
            continue
        products = q[token] @ k[rows].T
        scores = weights[token] @ numpy.maximum(products, 0)
        log_softmax = scores - scores.max()
        log_softmax -= numpy.log(numpy.exp(log_softmax).sum())
        p = targets[token, 0, places] / total
        loss[token] = (p[p > 0] * (numpy.log(p[p > 0]) - log_softmax[p > 0])).sum()
        slopes = d_loss[token] * (numpy.exp(log_softmax) - p)
        active = weights[token][:, None] * (products > 0) * slopes
        dq[token] = active @ k[rows]
        dw[token] = numpy.maximum(products, 0) @ slopes
        numpy.add.at(dk, rows, active.T @ q[token])
    return loss, dq, dk, dw


def problem(rng, tokens, heads, head_dim, keys, entries, dtype):
    q, k = random(rng, tokens, heads, head_dim, dtype=dtype), random(rng, keys, head_dim, dtype=dtype)
    weights = (rng.standard_normal((tokens, heads)) / (heads * head_dim) ** 0.5).astype(numpy.float32)
    lists, counts = wild_lists(rng, tokens, entries, keys)
    targets = rng.exponential(size=lists.shape).astype(numpy.float32)
    targets[rng.random(lists.shape) < 0.2] = 0
    targets[2] = 0
    return q, k, weights, lists, targets, counts


def assert_near(ours, right, tolerance, name):
    assert numpy.isfinite(ours).all(), name
    error = numpy.abs(ours.astype(float) - right).max(initial=0)
    assert error <= tolerance * numpy.abs(right).max(initial=0) + 1e-6, f"{name} is off by {error}"


@pytest.mark.parametrize("tokens,heads,head_dim,entries,dtype", some(
    [(6, 64, 128, 130, BF16), (5, 8, 64, 200, numpy.float16), (9, 20, 128, 63, BF16), (4, 128, 64, 70, numpy.float16)]))
def test_loss_and_gradients(rng, place, fetch, tokens, heads, head_dim, entries, dtype):
    """Equal in two runs, and where tokens take turns."""
    arrays = problem(rng, tokens, heads, head_dim, 160, entries, dtype)
    d_loss = (rng.standard_normal(tokens) * float(rng.choice([1, 1e-6]))).astype(numpy.float32)
    loss, *right = exact_loss(*arrays, d_loss)
    given = [place(x) for x in arrays]
    assert_near(fetch(_core._index_loss(*given)), loss, 1e-4, "loss")
    gradients = [fetch(x) for x in _core._index_loss(*given, d_loss=place(d_loss))]
    scale = 1 / numpy.abs(d_loss).max()
    for name, ours, exact, tolerance in zip(("dq", "dk", "d_weights"), gradients, right, (0.01, 0.01, 1e-3)):
        if dtype == numpy.float16 and scale > 1e3 and name != "d_weights":  # below what fp16 holds
            continue
        assert_near(ours.astype(float) * scale, exact * scale, tolerance, name)
    for bytes_of_parts in (1, 2 * entries * head_dim * 4, 1 << 30):
        again = _core._index_loss(*given, d_loss=place(d_loss), part_bytes=bytes_of_parts)
        assert all(numpy.array_equal(a, fetch(b)) for a, b in zip(gradients, again))
    assert numpy.array_equal(fetch(_core._index_loss(*given, part_bytes=1)), fetch(_core._index_loss(*given)))


def test_numbers_that_are_none(rng, place, fetch):
    """NaN stays in its token; a call without tokens clears gradients of keys."""
    q, k, weights, lists, targets, counts = problem(rng, 4, 8, 64, 40, 30, BF16)
    lists[:], counts[:] = rng.integers(0, 40, lists.shape), 30
    targets[2] = 1
    clean = _core._index_loss(*(place(x) for x in (q, k, weights, lists, targets, counts)))
    q[3, 0, 0] = numpy.nan
    loss = fetch(_core._index_loss(*(place(x) for x in (q, k, weights, lists, targets, counts))))
    assert numpy.isnan(loss[3]) and numpy.array_equal(loss[:3], fetch(clean)[:3])
    none = [place(x[:0]) for x in (q, weights, lists, targets)]
    _, dk, _ = _core._index_loss(none[0], place(k), *none[1:], d_loss=place(numpy.zeros(0, numpy.float32)))
    assert fetch(dk).shape == k.shape and not fetch(dk).any()


def test_targets_below_normal_numbers(place, fetch):
    """They count for nothing, where scores leave no other gradient, too."""
    q, k = numpy.ones((2, 1, 64), BF16), numpy.ones((2, 64), BF16)
    k[1] = -1  # has score 0
    weights, lists = numpy.full((2, 1), 3, numpy.float32), numpy.int32([[[0, 1]], [[0, 1]]])
    targets = numpy.float32([[[1, 1e-39]], [[1e-39, 1]]])
    given = [place(x) for x in (q, k, weights, lists, targets, numpy.int32([[2], [2]]))]
    loss = fetch(_core._index_loss(*given))
    assert loss[0] == 0 and abs(loss[1] - 192) < 0.01
    for gradient, right in zip(_core._index_loss(*given, d_loss=place(numpy.ones(2, numpy.float32))), (3, 3, 64)):
        gradient = fetch(gradient)
        assert numpy.isfinite(gradient).all() and numpy.abs(gradient).max() == right


def test_what_is_refused(rng, place):
    q, k, weights, lists, targets, counts = (place(x) for x in problem(rng, 4, 8, 64, 40, 30, BF16))
    for match, arrays in (("q: has 2 dimensions", (q[0], k, weights, lists, targets)),
                          ("targets", (q, k, weights, lists, targets[:, :, 1:])), ("k: .*head_dim", (q, k[:, :32], weights, lists, targets)),
                          ("indices.*int32", (q, k, weights, targets, targets)), ("weights", (q, k, weights[:, 1:], lists, targets))):
        with pytest.raises(ja.InvalidArgumentError, match=match):
            ja.sparse.indexer_loss(*arrays)
    with pytest.raises(ja.InvalidSpecError, match="head_dim"):
        ja.sparse.indexer_loss(q[..., :48], k[:, :48], weights, lists, targets)
    lse = place(numpy.zeros((8, 4), numpy.float32))
    for match, arrays in (("q: has 8 heads; they must be a multiple of k's 3", (q, place(random(rng, 40, 3, 64)), lse, lists)),
                          ("k: has 2 dimensions", (q, k, lse, lists)), ("lse", (q, k[:, None], lse[:, 1:], lists))):
        with pytest.raises(ja.InvalidArgumentError, match=match):
            ja.sparse.list_mass(*arrays)
