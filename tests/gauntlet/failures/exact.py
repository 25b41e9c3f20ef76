"""Attention and its gradients in double precision, and what an implementation in 16 bits gets wrong."""

from dataclasses import dataclass

import ml_dtypes
import numpy

from .problem import Outcome, Problem

FACTOR = 2  #: errors are at most so many times those of a plain implementation with the same roundings


@dataclass
class Sequence:
    """One sequence of a problem: where its rows lie, and its own arrays (rows, heads, head_dim)."""

    entry: int
    queries: tuple  #: index of its rows in o and dq
    keys: tuple  #: index of its rows in dk and dv; None where keys are pages
    q: numpy.ndarray
    k: numpy.ndarray
    v: numpy.ndarray


def sequences(problem):
    """The sequences of a problem, those that are compared."""
    p = problem
    batch = len(p.cu_seqlens_q) - 1 if p.cu_seqlens_q is not None else p.q.shape[0]
    for place, b in enumerate(range(batch) if p.only is None else p.only):
        queries, keys = _rows(p.cu_seqlens_q, p.seqused_q, p.q, b), _rows(p.cu_seqlens_k, p.seqused_k, p.k, b)
        values = p.v if p.head_dim_v is None else p.k[..., : p.head_dim_v]
        if p.page_table is None:
            k, v = p.k[keys], values[keys]
        else:
            size, count = p.k.shape[1], int(p.seqused_k[b])
            pages = p.page_table[b, : -(-count // size)]
            k, v = (pool[pages].reshape(-1, *pool.shape[2:])[:count] for pool in (p.k, values))
            keys = None
        q = p.q[queries]
        if p.only is not None:  # only dense sequences, whose results are of these entries alone
            queries, keys = (place, queries[1]), (place, keys[1])
        if p.cache_leftpad is not None:
            k, v = k[p.cache_leftpad[b] :], v[p.cache_leftpad[b] :]
        yield Sequence(b, queries, keys, q, _scaled(k, p.k_descale, b), _scaled(v, p.v_descale, b))


def _rows(boundaries, used, array, b):
    if boundaries is None:
        return b, slice(0, array.shape[1] if used is None else int(used[b]))
    begin = int(boundaries[b])
    return slice(begin, int(boundaries[b + 1]) if used is None else begin + int(used[b]))


def _scaled(rows, descale, b):
    if descale is None:
        return rows
    scales = descale if descale.ndim == 1 else descale[min(b, len(descale) - 1)]
    return rows.astype(numpy.float64) * scales[:, None]


def scores_of(problem: Problem, one: Sequence):
    """Scores (heads, queries, keys) with −inf where a query does not see a key, and their derivative by q·k·scale."""
    p = problem
    q, k = (x.astype(numpy.float64).transpose(1, 0, 2) for x in (one.q, one.k))
    scale = p.q.shape[-1] ** -0.5 if p.softmax_scale is None else p.softmax_scale
    scores = scale * (q @ numpy.repeat(k, p.ratio, 0).transpose(0, 2, 1))
    slope = 1.0
    if p.softcap:
        bent = numpy.tanh(scores / p.softcap)
        scores, slope = p.softcap * bent, 1 - bent**2
    m, n = scores.shape[1:]
    i, j = numpy.ogrid[:m, :n]
    place = i + n - m  # the key that a query stands at
    if p.alibi_slopes is not None:
        scores = scores - p.alibi_slopes[:, None, None].astype(numpy.float64) * abs(place - j)
    if p.bias is not None:
        scores = scores + p.bias[min(one.entry, len(p.bias) - 1)].astype(numpy.float64)
    keep = numpy.ones((m, n), bool)
    if p.causal:
        keep = keep & (j <= place)
    for side, bound in zip((-1, 1), p.window or (-1, -1)):
        keep = keep & ((bound < 0) | (side * (j - place) <= bound))
    if p.blocks is not None:
        keep = keep & numpy.kron(p.blocks[0], numpy.ones((p.blocks[1],) * 2, bool))[:m, :n]
    if p.keep is not None:
        keep = keep & p.keep[min(one.entry, len(p.keep) - 1)]
    return numpy.where(keep, scores, -numpy.inf), slope


def solve(problem, rounded=False):
    """The Outcome in double precision; rounded: with P, dS and the results in q's type, sums exact."""
    p = problem
    narrow = (lambda x: x.astype(p.q.dtype).astype(numpy.float64)) if rounded else (lambda x: x)
    width = p.head_dim_v or p.v.shape[-1]
    shape = lambda x: x.shape if p.only is None else (len(p.only), *x.shape[1:])
    found = Outcome(
        o=numpy.full((*shape(p.q)[:-1], width), numpy.nan), lse=numpy.full(_lse_shape(shape(p.q)), numpy.nan)
    )
    if p.d_o is not None:
        found.dq, found.dk, found.dv = (numpy.full(shape(x), numpy.nan) for x in (p.q, p.k, p.v))
        found.d_bias = None if p.bias is None else numpy.zeros(p.bias.shape)
        found.d_sinks = None if p.sinks is None else numpy.zeros(p.sinks.shape)
    for one in sequences(p):
        scores, slope = scores_of(p, one)
        scale = p.q.shape[-1] ** -0.5 if p.softmax_scale is None else p.softmax_scale
        largest = scores.max(-1, keepdims=True, initial=-numpy.inf)
        if p.sinks is not None:
            largest = numpy.maximum(largest, p.sinks[:, None, None])
        finite = numpy.where(numpy.isneginf(largest), 0, largest)
        shifted = scores - finite
        shifted[shifted < -600] = -numpy.inf  # numbers below the normal ones take processors long
        weights = numpy.exp(shifted)
        total = weights.sum(-1, keepdims=True)
        sink = 0.0 if p.sinks is None else numpy.exp(p.sinks[:, None, None] - finite)
        total = total + sink
        with numpy.errstate(divide="ignore"):
            lse = (numpy.log(total) + finite)[..., 0]
        divisor = numpy.where(total == 0, 1, total)
        v = numpy.repeat(one.v.astype(numpy.float64).transpose(1, 0, 2), p.ratio, 0)
        o = narrow((narrow(weights) @ v) / divisor)
        found.o[one.queries] = o.transpose(1, 0, 2)
        rows = (one.queries[0], slice(None), one.queries[1]) if found.lse.ndim == 3 else (slice(None), one.queries)
        found.lse[rows] = lse
        if p.d_o is None:
            continue
        d_o = (
            p.d_o[(one.entry, one.queries[1]) if p.q.ndim == 4 else one.queries]
            .astype(numpy.float64)
            .transpose(1, 0, 2)
        )
        q, k = (x.astype(numpy.float64).transpose(1, 0, 2) for x in (one.q, one.k))
        probabilities = weights / divisor
        delta = (d_o * o).sum(-1, keepdims=True)
        d_scores = probabilities * (d_o @ v.transpose(0, 2, 1) - delta)
        inner = narrow(d_scores * slope)
        shared = lambda x: x.reshape(-1, p.ratio, *x.shape[1:]).sum(1).transpose(1, 0, 2)
        found.dq[one.queries] = narrow(scale * inner @ numpy.repeat(k, p.ratio, 0)).transpose(1, 0, 2)
        found.dk[one.keys] = narrow(shared(scale * inner.transpose(0, 2, 1) @ q))
        found.dv[one.keys] = narrow(shared(narrow(probabilities).transpose(0, 2, 1) @ d_o))
        if found.d_bias is not None:
            into = found.d_bias[min(one.entry, len(found.d_bias) - 1)]
            axes = tuple(axis for axis in range(3) if into.shape[axis] == 1 < d_scores.shape[axis])
            into += d_scores.sum(axes, keepdims=True)
        if found.d_sinks is not None:
            found.d_sinks += (-(sink / divisor) * delta).sum((1, 2))
    return found


def _lse_shape(shape):
    return (shape[0], shape[2], shape[1]) if len(shape) == 4 else (shape[1], shape[0])


def compare(problem, got: Outcome, *, factor=FACTOR):
    """Asserts that what a library gave is finite where it should be, and as near to double precision as an
    implementation of its precision is. What it did not tell is not compared."""
    exact, plain = solve(problem), solve(problem, rounded=True)
    unit = float(ml_dtypes.finfo(problem.q.dtype).eps)
    for name in ("o", "dq", "dk", "dv", "d_bias", "d_sinks"):
        result, right, near = (getattr(one, name) for one in (got, exact, plain))
        if result is None or right is None:
            continue
        assert result.shape == right.shape, f"{name} is of shape {result.shape}, not {right.shape}"
        here = ~numpy.isnan(right)  # rows that belong to no sequence are not compared
        bad = int((~numpy.isfinite(result[here])).sum())
        assert not bad, f"{name} has {bad} of {int(here.sum())} elements that are not finite"
        error = numpy.abs(result[here] - right[here]).max(initial=0)
        rough = numpy.abs(near[here] - right[here]).max(initial=0)
        allowed = factor * rough + unit * numpy.abs(right[here]).max(initial=0) + 1e-7
        assert error <= allowed, f"{name} is off by {error:.3g}, a plain implementation by {rough:.3g}"
    if got.lse is not None:
        compare_lse(got.lse, exact.lse)


def compare_lse(got, right):
    here = ~numpy.isnan(right)
    got, right = got[here], right[here]
    empty = numpy.isneginf(right)
    wrong = int((numpy.isneginf(got) != empty).sum())
    assert not wrong, f"lse is −inf in {int(numpy.isneginf(got).sum())} rows, not in {int(empty.sum())}"
    error = numpy.abs(got[~empty] - right[~empty])
    within = error <= 1e-3 + 1e-6 * numpy.abs(right[~empty])
    assert within.all(), f"lse is off by {error.max():.3g}"
