"""Scores of keys by an indexer: Σ over heads of weight · relu(q · k), times the key's scale."""

import jit_attention as ja
import ml_dtypes
import numpy
import pytest
from jit_attention import _core
from seeded import some

SHARE = 7  # kernels take long to compile
POISON = -12345.0
E4M3 = ml_dtypes.float8_e4m3fn


def exact(q, k, weights, k_scale=None):
    """(tokens, keys) in double precision, of keys (keys, head_dim)."""
    products = numpy.einsum("thd,kd->thk", q.astype(numpy.float64), k.astype(numpy.float64))
    scores = numpy.einsum("thk,th->tk", numpy.maximum(products, 0), weights.astype(numpy.float64))
    return scores if k_scale is None else scores * k_scale.astype(numpy.float64)


def close(got, wanted, q):
    """Products of e4m3 are summed with 14 bits or so."""
    scale = numpy.abs(wanted[numpy.isfinite(wanted)]).max(initial=1)
    numpy.testing.assert_allclose(got, wanted, rtol=0, atol=(2e-3 if q.dtype == E4M3 else 2e-5) * scale)


def problem(rng, tokens, keys, heads, head_dim, dtype):
    q = rng.standard_normal((tokens, heads, head_dim)).astype(dtype)
    k = rng.standard_normal((*keys, head_dim)).astype(dtype)
    return q, k, rng.standard_normal((tokens, heads)).astype(numpy.float32), rng.uniform(0.5, 2, keys).astype(numpy.float32)


def poisoned(tokens, keys):
    return numpy.full((tokens, keys), POISON, numpy.float32)


def seen(starts, ends, tokens, keys):
    starts = numpy.zeros(tokens, int) if starts is None else starts
    ends = numpy.full(tokens, keys) if ends is None else ends
    return (numpy.arange(keys) >= starts[:, None]) & (numpy.arange(keys) < ends[:, None])


@pytest.mark.parametrize("dtype", [E4M3, ml_dtypes.bfloat16, numpy.float16])
@pytest.mark.parametrize("heads, head_dim", [(64, 128), (32, 128), (128, 64), (8, 128), (16, 64)])
def test_dense(rng, place, fetch, dtype, heads, head_dim):
    q, k, weights, k_scale = problem(rng, 5, (700,), heads, head_dim, dtype)
    out = place(poisoned(5, 700))
    scores = ja.score_keys(place(q), place(k), place(weights), k_scale=place(k_scale), out=out)
    assert scores is out
    close(fetch(scores), exact(q, k, weights, k_scale), q)
    again = ja.score_keys(place(q), place(k), place(weights), k_scale=place(k_scale))
    numpy.testing.assert_array_equal(fetch(again), fetch(scores))
    close(fetch(ja.score_keys(place(q), place(k), place(weights))), exact(q, k, weights), q)


@pytest.mark.parametrize("heads", [64, 16])
def test_starts_and_ends(rng, place, fetch, heads):
    """Tokens of several requests, each of which sees keys of its own up to its position; some see none."""
    tokens, keys = 40, 2600
    q, k, weights, k_scale = problem(rng, tokens, (keys,), heads, 128, E4M3)
    starts = numpy.sort(rng.integers(0, keys, tokens)).astype(numpy.int32)
    ends = (starts + rng.integers(-9, 900, tokens)).astype(numpy.int32)
    starts[:3], ends[:3] = [-7, 0, keys + 5], [900, keys + 99, keys + 9]
    out = place(poisoned(tokens, keys))
    scores = fetch(ja.score_keys(place(q), place(k), place(weights), k_scale=place(k_scale), starts=place(starts),
                                 ends=place(ends), out=out))
    is_seen = seen(starts, ends, tokens, keys)
    close(numpy.where(is_seen, scores, 0), numpy.where(is_seen, exact(q, k, weights, k_scale), 0), q)
    assert (scores[~is_seen] == POISON).all()


@pytest.mark.parametrize("tokens_of_entry, heads", [(1, 64), (3, 64), (2, 32)])
def test_pages_with_their_scales_behind(rng, place, fetch, tokens_of_entry, heads):
    """An index cache of 64 × 132 bytes a page, and pages that do not exist."""
    entries, table_pages, pages = 3, 9, 30
    tokens, keys = entries * tokens_of_entry, table_pages * 64
    q, k, weights, k_scale = problem(rng, tokens, (pages, 64), heads, 128, E4M3)
    cache = numpy.concatenate([k.reshape(pages, -1).view(numpy.uint8), k_scale.view(numpy.uint8)], 1)
    assert cache.shape == (pages, 64 * 132)
    cache = place(cache)
    if isinstance(cache, numpy.ndarray):
        views = cache[:, :8192].view(E4M3), cache[:, 8192:].view(numpy.float32)
    else:
        import torch

        views = cache[:, :8192].view(torch.float8_e4m3fn), cache[:, 8192:].view(torch.float32)
    keys_view = views[0].reshape(pages, 64, 128) if isinstance(cache, numpy.ndarray) else views[0].unflatten(1, (64, 128))
    table = rng.permutation(pages)[: entries * table_pages].reshape(entries, table_pages).astype(numpy.int32)
    table[0, 3], table[1, 0], table[2, 8] = -1, pages, 2**31 - 1
    ends = rng.integers(300, keys + 40, tokens).astype(numpy.int32)
    out = place(poisoned(tokens, keys))
    scores = fetch(ja.score_keys(place(q), keys_view, place(weights), k_scale=views[1], ends=place(ends),
                                 page_table=place(table), out=out))
    is_page = (table >= 0) & (table < pages)
    for token in range(tokens):
        own = numpy.where(is_page, table, 0)[token // tokens_of_entry]
        wanted = exact(q[token:token + 1], k[own].reshape(keys, 128), weights[token:token + 1], k_scale[own].reshape(keys))[0]
        wanted[~numpy.repeat(is_page[token // tokens_of_entry], 64)] = -numpy.inf
        end = min(ends[token], keys)
        close(scores[token, :end], wanted[:end], q)
        assert (scores[token, end:] == POISON).all()


@pytest.mark.parametrize("heads", [32, 64, 128])
def test_two_levels(rng, place, fetch, heads):
    """As DeepSeek-V4.1: the largest scores of blocks of 8 keys choose what a second indexer scores."""
    tokens, keys, blocks, best = 9, 4003, 40, 64
    q, k, weights, k_scale = problem(rng, tokens, (keys,), heads, 128, E4M3)
    starts = rng.integers(0, 500, tokens).astype(numpy.int32)
    ends = rng.integers(900, keys, tokens).astype(numpy.int32)
    ends[0], ends[1] = starts[0], keys
    number = (keys + 7) // 8
    out, block_out = place(poisoned(tokens, keys)), place(poisoned(tokens, number))
    scores = ja.score_keys(place(q), place(k), place(weights), k_scale=place(k_scale), starts=place(starts),
                                    ends=place(ends), out=out, block_out=block_out)
    largest = block_out
    assert scores is out
    is_seen = seen(starts, ends, tokens, keys)
    wide = numpy.full((tokens, number * 8), -numpy.inf)
    wide[:, :keys] = numpy.where(is_seen, fetch(scores), -numpy.inf)
    wanted = wide.reshape(tokens, number, 8).max(-1)
    numpy.testing.assert_array_equal(fetch(largest), numpy.where(numpy.isinf(wanted), POISON, wanted))

    # The second level: keys in pages of 8, of which each token has a list.
    first_blocks, block_ends = starts // 8, (ends + 7) // 8
    lists, counts = ja.top_k(largest, blocks, starts=place(first_blocks), ends=place(block_ends.astype(numpy.int32)))
    q2, k2, weights2, _ = problem(rng, tokens, (number * 8,), heads, 128, E4M3)
    compact = ja.score_keys(place(q2), place(k2.reshape(number, 8, 128)), place(weights2), page_table=lists)
    chosen, chosen_counts = ja.top_k(compact, best, page_table=lists, page_size=8)
    exact2, lists, counts = exact(q2, k2, weights2), fetch(lists).astype(int), fetch(counts).astype(int)
    for token in range(tokens):
        own = lists[token, : counts[token]]
        places = (own[:, None] * 8 + numpy.arange(8)).reshape(-1)
        close(fetch(compact)[token, : len(places)], exact2[token, places], q2)
        assert numpy.isneginf(fetch(compact)[token, len(places):]).all()
        order = numpy.argsort(-fetch(compact)[token, : len(places)], kind="stable")[:best]
        assert fetch(chosen_counts)[token] == len(order)
        numpy.testing.assert_array_equal(fetch(chosen)[token, : len(order)], places[numpy.sort(order)])


def test_more_work_than_blocks(rng, place, fetch):
    """Blocks take several items, of other tokens, and rings go round."""
    tokens, keys = 300, 5000
    q, k, weights, k_scale = problem(rng, tokens, (keys,), 64, 64, E4M3)
    scores = fetch(ja.score_keys(place(q), place(k), place(weights), k_scale=place(k_scale)))
    close(scores, exact(q, k, weights, k_scale), q)


def test_nan_stays(rng, place, fetch):
    q, k, weights, _ = problem(rng, 2, (300,), 8, 64, ml_dtypes.bfloat16)
    k[17] = numpy.nan
    scores = fetch(ja.score_keys(place(q), place(k), place(weights)))
    assert numpy.isnan(scores[:, 17]).all() and numpy.isfinite(numpy.delete(scores, 17, 1)).all()


def test_choose_from_scores(rng, place, fetch):
    """Scores and top_k of the same ranges: what was not written is not chosen."""
    tokens, keys, k_best = 6, 3000, 64
    q, k, weights, k_scale = problem(rng, tokens, (keys,), 64, 128, E4M3)
    ends = rng.integers(10, keys, tokens).astype(numpy.int32)
    out = place(numpy.full((tokens, keys), numpy.inf, numpy.float32))
    scores = ja.score_keys(place(q), place(k), place(weights), k_scale=place(k_scale), ends=place(ends), out=out)
    indices, counts = (fetch(x) for x in ja.top_k(scores, k_best, ends=place(ends)))
    for token in range(tokens):
        own = fetch(scores)[token, : ends[token]]
        wanted = numpy.sort(numpy.argsort(-own, kind="stable")[:k_best])
        assert counts[token] == len(wanted)
        numpy.testing.assert_array_equal(indices[token, : len(wanted)], wanted)


def test_columns_behind_the_table_have_no_keys(rng, place, fetch):
    q, k, weights = (rng.standard_normal(shape).astype(numpy.float32) for shape in ((2, 8, 64), (3, 64, 64), (2, 8)))
    out = place(numpy.full((2, 200), 7, numpy.float32))
    bf16 = lambda x: place(x.astype(ml_dtypes.bfloat16))  # noqa: E731
    ja.score_keys(bf16(q), bf16(k), place(weights), page_table=place(numpy.int32([[2, 0]])), out=out)
    scores = fetch(out)
    assert numpy.isfinite(scores[:, :128]).all() and numpy.isneginf(scores[:, 128:]).all()
    with pytest.raises(ja.InvalidArgumentError, match="k: has no pages"):
        ja.score_keys(bf16(q), bf16(k[:0]), place(weights), page_table=place(numpy.int32([[2, 0]])), out=out)


def test_nothing_to_do(place):
    bf16 = ml_dtypes.bfloat16
    weights = numpy.zeros((2, 8), numpy.float32)
    assert ja.score_keys(place(numpy.zeros((2, 8, 64), bf16)), place(numpy.zeros((0, 64), bf16)), place(weights)).shape == (2, 0)


@pytest.mark.parametrize("change, match", [
    (dict(q=(2, 12, 64)), "must be 8, 16, 32, 64 or 128"), (dict(q=(2, 8, 96), k=(40, 96)), "64 or 128"),
    (dict(k=(40, 128)), "k"), (dict(k=(40, 1, 64)), "k"), (dict(k_scale=(39,)), "k_scale"), (dict(starts=(3,)), "starts"),
    (dict(weights=(2, 9)), "weights"), (dict(out=(2, 41)), "out"), (dict(block_out=(2, 6)), "block_out"),
    (dict(k=(4, 48, 64), page_table=(2, 4)), "multiple of 64"), (dict(k=(4, 64, 64), page_table=(3, 4)), "entries"),
])
def test_bad_arguments(place, change, match):
    types = dict(q=ml_dtypes.bfloat16, k=ml_dtypes.bfloat16, starts=numpy.int32, page_table=numpy.int32)
    sizes = dict(q=(2, 8, 64), k=(40, 64), weights=(2, 8)) | change
    arrays = {name: place(numpy.zeros(size, types.get(name, numpy.float32))) for name, size in sizes.items()}
    with pytest.raises(ja.Error, match=match):
        ja.score_keys(**arrays)


@pytest.mark.parametrize("tokens_of_entry", some([0, 1, 5]))
def test_choosing_in_turns(rng, place, fetch, tokens_of_entry):
    """Of keys with many equal scores; a turn holds some tokens, one, or those of several entries of a page table."""
    tokens, pages, table_pages = 15, 12, 7
    is_paged, columns = tokens_of_entry > 0, 400
    q, k, weights, k_scale = problem(rng, tokens, (pages, 64), 16, 64, ml_dtypes.bfloat16)
    q, k, weights = numpy.sign(q), numpy.sign(k) * (rng.random(k.shape) < 0.05), numpy.ones_like(weights)
    k, options = k.astype(q.dtype), {}
    if is_paged:
        options["page_table"] = place(rng.integers(-1, pages, (tokens // tokens_of_entry, table_pages)).astype(numpy.int32))
    else:
        k, k_scale = k.reshape(-1, 64), k_scale.reshape(-1)
    options |= dict(starts=place(rng.integers(0, 90, tokens).astype(numpy.int32)), ends=place(rng.integers(50, columns + 1, tokens).astype(numpy.int32)))
    k_scale = numpy.ones_like(k_scale)
    q, k, weights, k_scale = (place(x) for x in (q, k, weights, k_scale))
    scores = place(numpy.zeros((tokens, 64 * (table_pages if is_paged else pages)), numpy.float32))  # where none is written
    ja.score_keys(q, k, weights, k_scale=k_scale, out=scores, **options)
    fewer = options | dict(ends=place(numpy.minimum(fetch(options["ends"]), 98).astype(numpy.int32)))
    wanted = {seen: [fetch(x) for x in ja.top_k(scores[:, None], 33, page_size=64 if is_paged else 0, **given)]
              for seen, given in ((-1, options), (98, fewer))}
    assert len(numpy.unique(fetch(scores))) < fetch(scores).size // 8 and wanted[-1][1].max() == 33 > wanted[98][1].min()
    for held in (1 << 28, 7 * 4 * columns, 4 * columns, 1):
        for seen, right in wanted.items():
            got = _core._choose_keys(q, k, weights, 33, k_scale=k_scale, columns=seen, score_bytes=held, **options)
            for one, other in zip(got, right, strict=True):
                numpy.testing.assert_array_equal(fetch(one), other)
    with pytest.raises(ja.InvalidArgumentError, match="columns: is 9999; at most the"):
        ja.sparse.choose_keys(q, k, weights, 33, columns=9999, **options)
    for match, change in (("q: has 2 dimensions", dict(q=q[0])), ("weights", dict(weights=weights[:, 1:])), ("starts", dict(starts=options["starts"][1:])), ("k_scale", dict(k_scale=k_scale[1:])),
                          ("k: .*head_dim", dict(k=k[..., :32])), ("count: .*must be from 1 to 2048", dict(count=0))):
        with pytest.raises(ja.Error, match=match):
            ja.sparse.choose_keys(**dict(q=q, k=k, weights=weights, count=33, k_scale=k_scale) | options | change)
