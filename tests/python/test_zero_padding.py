"""Rows that are no query's: left alone, or zeros where a call wants them."""

import jit_attention as ja
import numpy
import pytest
from request_batches import BF16, boundaries, call, causal, int32, paged, requests

SHARE = 3  # kernels take long to compile
POISON = 7


def outputs(rows, heads=8, width=64):
    return numpy.full((rows, heads, width), POISON, BF16)


def check(batch, o, lse, begins, *, padding):
    """Rows of each request begin where `begins` says; all others are `padding` of o and of lse."""
    places = [numpy.arange(begin, begin + n) for begin, n in zip(begins, batch.lengths_q)]
    rows = numpy.concatenate(places).astype(int)
    batch.check(o[rows], lse[:, rows], keep=causal)
    rest = numpy.delete(numpy.arange(len(o)), rows)
    assert len(rest) > 0
    assert (o[rest] == padding[0]).all()
    if padding[1] is not None:
        assert (lse[:, rest] == padding[1]).all()


@pytest.mark.parametrize("zero_padding", [True, False])
@pytest.mark.parametrize("alignment", [16, 2])
def test_varlen_queries(rng, place, fetch, zero_padding, alignment):
    """Padding before the first request, between two, in a request's own room, and behind the last."""
    batch = requests(rng, [2, 0, 5, 1], [30, 9, 44, 17])
    begins, used = [3, 7, 7, 14], int32(batch.lengths_q)
    arrays = paged(rng, batch, 16) | {"cu_seqlens_q": int32([*begins, 20]), "seqused_q": used}
    q = numpy.full((50, 8, 64), numpy.nan, BF16)
    for begin, rows in zip(begins, batch.q):
        q[begin : begin + len(rows)] = rows
    wide = numpy.full((50, 8, 65), POISON, BF16)
    out = place(wide)[..., 1:] if alignment == 2 else place(outputs(50))
    o, lse = call(place, q, arrays, mask=ja.mask.causal(), out=out, return_lse=True, zero_padding=zero_padding)
    padding = (0, -numpy.inf) if zero_padding else (POISON, None)
    check(batch, fetch(o), fetch(lse), begins, padding=padding)
    if alignment == 2 and type(out) is numpy.ndarray:
        assert (wide[..., 0] == POISON).all()


def test_dense_queries(rng, place, fetch):
    batch = requests(rng, [3, 0, 6], [40, 12, 25])
    arrays = paged(rng, batch, 16) | {"seqused_q": int32(batch.lengths_q)}
    q = numpy.full((3, 6, 8, 64), numpy.nan, BF16)
    for b, rows in enumerate(batch.q):
        q[b, : len(rows)] = rows
    out = place(numpy.full_like(q, POISON))
    o, lse = call(place, q, arrays, mask=ja.mask.causal(), out=out, return_lse=True, zero_padding=True)
    o, lse = fetch(o), fetch(lse)
    o, lse = o.reshape(18, 8, 64), lse.transpose(1, 0, 2).reshape(8, 18)
    check(batch, o, lse, [0, 6, 12], padding=(0, -numpy.inf))


def test_a_batch_that_is_filled_up(rng, place, fetch):
    """As for a captured graph: requests without queries, more of them than a warp has lanes, and rows behind the last."""
    batch = requests(rng, [1] * 5 + [0] * 60, [20] * 5 + [0] * 60)
    arrays = paged(rng, batch, 16) | {"cu_seqlens_q": boundaries(batch.lengths_q)}
    q = numpy.concatenate([*batch.q, numpy.full((300, 8, 64), numpy.nan, BF16)])
    out = place(outputs(305))
    o, lse = call(place, q, arrays, mask=ja.mask.causal(), out=out, return_lse=True, zero_padding=True)
    check(batch, fetch(o), fetch(lse), boundaries(batch.lengths_q)[:-1], padding=(0, -numpy.inf))


def test_sinks_are_no_part_of_padding(rng, place, fetch):
    batch = requests(rng, [1], [0])
    sinks = rng.standard_normal(8).astype(numpy.float32)
    arrays = paged(rng, batch, 16) | {"cu_seqlens_q": int32([0, 1]), "sinks": sinks}
    q = numpy.concatenate([batch.q[0], batch.q[0]])
    _, lse = call(place, q, arrays, return_lse=True, zero_padding=True)
    assert numpy.abs(fetch(lse)[:, 0] - sinks).max() < 1e-3
    assert numpy.isneginf(fetch(lse)[:, 1]).all()


def test_without_lse_and_with_more_width(rng, place, fetch):
    batch = requests(rng, [2], [30], head_dim=64, head_dim_v=136)
    arrays = paged(rng, batch, 16) | {"cu_seqlens_q": int32([0, 2])}
    q = numpy.concatenate([batch.q[0], batch.q[0]])
    o = fetch(call(place, q, arrays, out=place(outputs(4, width=136)), zero_padding=True))
    batch.check(o[:2])
    assert (o[2:] == 0).all()


def test_o_before_an_output_functor(rng, place, fetch):
    batch = requests(rng, [2, 3], [30, 9])
    arrays = paged(rng, batch, 16) | {"cu_seqlens_q": boundaries(batch.lengths_q)}
    q = numpy.concatenate([*batch.q, numpy.full((7, 8, 64), numpy.nan, BF16)])
    tensors = {"scale": place(numpy.full((1, 8), 2, numpy.float32))}
    raw = place(outputs(12))
    o, _ = call(place, q, arrays, mask=ja.mask.causal(), output=ja.output.scale(), tensors=tensors, out=place(outputs(12)),
                return_aux={"o_raw": raw}, zero_padding=True)
    batch.check(fetch(raw)[:5], keep=causal)
    assert (fetch(o)[:5] == 2 * fetch(raw)[:5]).all()
    assert (fetch(o)[5:] == 0).all() and (fetch(raw)[5:] == 0).all()


def test_batches_without_requests(place, fetch):
    pages = numpy.zeros((3, 16, 2, 64), BF16)
    arrays = {"k": pages, "v": pages, "seqused_k": int32([]), "page_table": numpy.zeros((0, 2), numpy.int32)}
    arrays["cu_seqlens_q"] = int32([0])
    out = place(outputs(5))
    o, lse = call(place, numpy.ones((5, 8, 64), BF16), arrays, out=out, return_lse=True, zero_padding=True)
    assert (fetch(o) == 0).all() and numpy.isneginf(fetch(lse)).all()


def test_wild_boundaries_write_nothing_else(rng, place, fetch):
    batch = requests(rng, [4, 4], [32, 32])
    arrays = paged(rng, batch, 16) | {"cu_seqlens_q": int32([-5, 4, 1 << 30]), "seqused_q": int32([-3, 1 << 30])}
    wide = numpy.full((12, 8, 64), POISON, BF16)
    out = place(wide)[2:10]
    o = fetch(call(place, numpy.concatenate(batch.q), arrays, out=out, zero_padding=True))
    assert (o[:4] == 0).all()  # a negative length is 0
    batch.q, batch.k, batch.v = batch.q[1:], batch.k[1:], batch.v[1:]
    batch.check(o[4:])
    if type(out) is numpy.ndarray:
        assert (wide[:2] == POISON).all() and (wide[10:] == POISON).all()


def test_dense_calls_have_no_padding(rng, place, fetch):
    batch = requests(rng, [5, 5], [40, 40])
    arrays = {"k": numpy.stack(batch.k), "v": numpy.stack(batch.v)}
    o = call(place, numpy.stack(batch.q), arrays, mask=ja.mask.causal(), zero_padding=True)
    batch.check(fetch(o).reshape(10, 8, 64), keep=causal)
