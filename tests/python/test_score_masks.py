"""Scores that return -INFINITY are masks: over dense, varlen and paged sequences, also where a query sees no key."""

import jit_attention as ja
import numpy
import pytest
from exact_attention import exact_attention
from request_batches import BF16, boundaries, call, paged, requests

FIRST_SEES_NOTHING = ja.score.text(
    "return k < q * 3 && k + 40 > q ? 0.5f * score : -INFINITY;", name="first_sees_nothing"
)


def is_seen(i, j):
    return (j < i * 3) & (j + 40 > i)


def halved(score, b, h, i, j, *lengths):
    return 0.5 * score


@pytest.mark.parametrize("sequences_kv", ["varlen", "paged"])
def test_requests(rng, place, fetch, sequences_kv):
    batch = requests(rng, [1, 130, 5], [70, 200, 33])
    if sequences_kv == "paged":
        arrays = paged(rng, batch, 16)
    else:
        arrays = {"k": numpy.concatenate(batch.k), "v": numpy.concatenate(batch.v)}
        arrays["cu_seqlens_k"] = boundaries(batch.lengths_k)
    arrays["cu_seqlens_q"] = boundaries(batch.lengths_q)
    o, lse = call(place, numpy.concatenate(batch.q), arrays, score=FIRST_SEES_NOTHING, return_lse=True)
    batch.check(fetch(o), fetch(lse), keep=lambda b, h, i, j, *lengths: is_seen(i, j), score=halved)
    for first in arrays["cu_seqlens_q"][:-1]:  # query 0 of each request
        assert (fetch(o)[first] == 0).all() and (fetch(lse)[:, first] == -numpy.inf).all()


def test_a_query_without_keys_has_no_gradient(rng, place, fetch):
    arrays = [rng.standard_normal((2, 150, heads, 64)).astype(BF16) for heads in (4, 4, 2, 2)]
    do, q, k, v = map(place, arrays)
    o, lse = ja.attention(q, k, v, score=FIRST_SEES_NOTHING, return_lse=True)
    exact_attention(*arrays[1:], keep=lambda b, h, i, j: is_seen(i, j), score=halved).check(fetch(o), fetch(lse))
    dq, dk, dv = map(fetch, ja.attention_backward(do, q, k, v, o, lse, score=FIRST_SEES_NOTHING))
    assert (fetch(o)[:, 0] == 0).all() and (fetch(lse)[..., 0] == -numpy.inf).all() and (dq[:, 0] == 0).all()
    masked = ja.mask.text("return k < q * 3 && k + 40 > q;", name="seen")
    half = ja.score.text("return 0.5f * score;", name="half")
    expected = ja.attention_backward(do, q, k, v, o, lse, mask=masked, score=half)
    for got, wanted in zip((dq, dk, dv), map(fetch, expected)):
        assert numpy.isfinite(got).all() and numpy.abs(wanted).max() > 0
        numpy.testing.assert_allclose(got, wanted, atol=0.02 * numpy.abs(wanted).max())
