"""jit_attention.sparse: chosen latents, blocks of keys, blocks of videos; unions of lists."""

import jit_attention as ja
import numpy
import pytest
from exact_attention import exact_attention, random_qkv
from request_batches import int32, paged, requests
from seeded import some
from test_key_lists import alike, check, latents, random_lists

SHARE = 6  # kernels take long to compile


def distinct(rng, tokens, heads, count, limit):
    """Lists as block top-k leaves them: ascending, each key once, −1 behind."""
    lists = int32([[numpy.sort(rng.permutation(limit)[:count]) for _ in range(heads)] for _ in range(tokens)])
    lists[:, :, -1] = -1
    return lists


@pytest.mark.parametrize("queries", some([2, 8, 9, 17, 32]))
def test_unions(rng, place, fetch, queries):
    tokens, heads, entries, limit = 3 * queries + 1, 2, 40, some([50, 300, 70000])[0]
    lists = rng.integers(-3, limit + 3, (tokens, heads, entries)).astype(numpy.int32)
    counts = rng.integers(-1, entries + 3, (tokens, heads)).astype(numpy.int32)
    made = ja.sparse.union(place(lists), place(counts), queries=queries, limit=limit)
    united, members, united_counts = (
        fetch(made[name]).astype(numpy.int64) for name in ("key_lists", "key_members", "key_counts"))
    assert united.shape == (4, heads, min(limit, queries * entries))
    for group in range(4):
        for head in range(heads):
            bits = {}
            for i, row in enumerate(range(group * queries, min(tokens, (group + 1) * queries))):
                for entry in lists[row, head, : max(counts[row, head], 0)]:
                    if 0 <= entry < limit:
                        bits[entry] = bits.get(entry, 0) | 1 << i
            count = united_counts[group, head]
            assert united[group, head, :count].tolist() == sorted(bits)
            own = members[group, head, :count] & 0xFFFFFFFF
            assert own.tolist() == [bits[entry] for entry in sorted(bits)]


def test_unions_that_are_refused(place):
    lists = place(numpy.zeros((4, 1, 3), numpy.int32))
    with pytest.raises(ja.InvalidSpecError, match="queries = 33 must be from 2 to 32"):
        ja.sparse.union(lists, queries=33, limit=4)
    with pytest.raises(ja.InvalidArgumentError, match="limit: is -1"):
        ja.sparse.union(lists, queries=2, limit=-1)
    with pytest.raises(ja.InvalidArgumentError, match="counts"):
        ja.sparse.union(lists, place(numpy.zeros((5, 1), numpy.int32)), queries=2, limit=4)


@pytest.mark.parametrize("queries", some([1, 4]))
def test_latents(rng, place, fetch, queries):
    """Lists of all keys, and without counts."""
    if not ja.supports(None, head_dim=576, head_dim_v=512, values_in_keys=True):
        pytest.skip("latents are of sm_90a")
    batch = latents(rng, [9], [200], heads=8, head_dim=576, head_dim_v=512)
    lists = distinct(rng, 9, 1, 70, 200)
    o, lse = ja.sparse.dsa(place(batch.q[0]), place(batch.k[0]), place(lists), queries=queries, return_lse=True)
    check(batch, fetch(o), fetch(lse), lists, numpy.full((9, 1), 70), 1)


@pytest.mark.parametrize("queries", some([1, 3]))
def test_blocks_in_pages(rng, place, fetch, queries):
    batch = requests(rng, [6, 3], [700, 300], heads_kv=2, ratio=4)
    lists, counts = random_lists(rng, batch, 4, 128)
    if queries > 1:  # a union has each block once
        lists = distinct(rng, 9, 2, 4, 6)
    arrays = {name: place(array) for name, array in paged(rng, batch, 128).items()}
    o, lse = ja.sparse.block_top_k(
        place(numpy.concatenate(batch.q)), arrays.pop("k"), arrays.pop("v"), place(lists), place(counts), block=128,
        queries=queries, mask=ja.mask.causal(), cu_seqlens_q=place(int32([0, 6, 9])), return_lse=True, **arrays)
    check(batch, fetch(o), fetch(lse), lists, counts, 128, keep=alike)


@pytest.mark.parametrize("is_ragged", some([False, True]))
def test_video(rng, place, fetch, is_ragged):
    arrays = random_qkv(rng, seqlen_q=200, seqlen_kv=330, heads_q=2, head_dim=64)
    lists = rng.integers(-2, 8, (1, 2, 4, 5)).astype(numpy.int32)
    counts = rng.integers(0, 6, (1, 2, 4)).astype(numpy.int32)
    valid = rng.integers(0, 65, 6).astype(numpy.int32) if is_ragged else numpy.full(6, 64)
    blocks = numpy.zeros((2, 4, 6), bool)
    for h in range(2):
        for row in range(4):
            listed = lists[0, h, row, : counts[0, h, row]]
            blocks[h, row, listed[(listed >= 0) & (listed < 6)]] = True
    expected = exact_attention(
        *arrays, keep=lambda b, h, i, j: blocks[h, i // 64, j // 64] & (j % 64 < valid[j // 64]))
    o, lse = ja.sparse.video(*map(place, arrays), place(lists), place(counts), return_lse=True,
                             valid_rows=place(valid) if is_ragged else None)
    expected.check(fetch(o), fetch(lse))


@pytest.mark.parametrize("queries", [1, 2])
def test_slots_of_several_sequences(rng, place, fetch, queries):
    """Without counts, and with boundaries of sequences, which slots do not need."""
    q, k = rng.standard_normal((6, 2, 64)).astype(numpy.float16), rng.standard_normal((5, 16, 1, 64)).astype(numpy.float16)
    lists = distinct(rng, 6, 1, 7, 80)
    o = fetch(ja.sparse.block_top_k(place(q), place(k), place(k), place(lists), block=1, queries=queries, page_table=None,
                                    cu_seqlens_q=place(int32([0, 2, 6]))))
    for row in range(6):
        keys = k.reshape(80, 64)[lists[row, 0, :-1]].astype(float)
        scores = q[row].astype(float) @ keys.T / 8
        weights = numpy.exp(scores - scores.max(1, keepdims=True))
        numpy.testing.assert_allclose(o[row], weights @ keys / weights.sum(1, keepdims=True), rtol=0.01, atol=0.01)


def test_what_is_refused(place):
    q, k = place(numpy.ones((3, 2, 64), numpy.float16)), place(numpy.ones((40, 1, 64), numpy.float16))
    lists = place(numpy.zeros((3, 1, 4), numpy.int32))

    def refused(match, *arguments, kind=ja.InvalidArgumentError, **options):
        with pytest.raises(kind, match=match):
            ja.sparse.block_top_k(*arguments, **options)

    refused("q: has 2 dimensions; it must have 3", q[0], k, k, lists)
    refused("cu_seqlens_k: is missing", q, k, k, lists, cu_seqlens_q=place(int32([0, 1, 3])))
    for rows in ((2,), (1, 3)):
        with pytest.raises(ja.InvalidArgumentError, match="valid_rows: has the shape"):
            ja.sparse.video(q[None], k[None, :, :, :], k[None, :, :, :], lists[None, :1], block=16,
                            valid_rows=place(numpy.zeros(rows, numpy.int32)))
    refused("list_block = 129 must be from 0 to 128", q, k, k, lists, block=129, kind=ja.InvalidSpecError)
    refused("key_lists: has list_rows = 2", q, k, k, lists[:2], block=16)
    refused("key_counts", q, k, k, lists, place(numpy.zeros((2, 1), numpy.int32)), block=16)
    refused("key_lists.*int32", q, k, k, place(numpy.zeros((3, 1, 4), numpy.int64)), block=16)
    with pytest.raises(ja.InvalidSpecError, match="sequences_q is varlen"):
        ja.AttentionSpec(list_block=16)
    with pytest.raises(ja.InvalidSpecError, match="list_slots.*mask or score"):
        ja.AttentionSpec(sequences_q="varlen", sequences_kv="varlen", list_block=16, list_slots=True,
                         mask=ja.mask.causal())


@pytest.mark.parametrize("has_sinks", [False, True])
def test_two_scopes(rng, place, fetch, has_sinks):
    """A window of recent latents and a list, in pools of their own, by one softmax."""
    if not ja.supports(None, head_dim=576, head_dim_v=512, values_in_keys=True):
        pytest.skip("latents are of sm_90a")
    heads = 8
    batch = latents(rng, [5], [200], heads=heads, head_dim=576, head_dim_v=512)
    k = batch.k[0]
    window = int32([[[i + 20, i + 21, -1, i + 22]] for i in range(5)])
    lists, counts = distinct(rng, 5, 1, 40, 150), int32(rng.integers(0, 41, (5, 1)))
    window[1], counts[1] = -1, 0
    counts[2] = 0
    sinks = rng.standard_normal(heads).astype(numpy.float32) if has_sinks else None
    scopes = [ja.sparse.Scope(place(k[:30]), place(window)),
              ja.sparse.Scope(place(k[50:].reshape(-1, 2, 1, 576)), place(lists), place(counts))]
    out = place(numpy.full((5, heads, 512), numpy.nan, batch.q[0].dtype))
    o, lse = ja.sparse.scopes(place(batch.q[0]), *scopes, sinks=None if sinks is None else place(sinks), return_lse=True,
                              out=out)
    assert o is out
    both = numpy.full((5, 1, 44), -1, numpy.int32)
    both[..., :4] = window
    for row in range(5):
        both[row, 0, 4 : 4 + counts[row, 0]] = lists[row, 0, : counts[row, 0]] + 50 * (lists[row, 0, : counts[row, 0]] >= 0)
    check(batch, fetch(o), fetch(lse), both, numpy.full((5, 1), 44), 1, sinks=sinks)
    alone = ja.sparse.scopes(place(batch.q[0]), scopes[1])
    assert (fetch(alone) == fetch(ja.sparse.dsa(place(batch.q[0]), *scopes[1][:3]))).all()
    with pytest.raises(ja.InvalidArgumentError, match="pools: are none"):
        ja.sparse.scopes(place(batch.q[0]))


def test_largest_scores_of_lists(rng, place, fetch):
    if not ja.supports(None, head_dim=576, head_dim_v=512, values_in_keys=True):
        pytest.skip("latents are of sm_90a")
    batch = latents(rng, [6], [90], heads=8, head_dim=576, head_dim_v=512)
    q, k = -numpy.abs(batch.q[0]), numpy.abs(batch.k[0])  # no score is that of the zeros behind a list
    lists, counts = distinct(rng, 6, 1, 70, 90), int32([[70], [1], [0], [69], [33], [64]])
    o, lse, aux = ja.sparse.dsa(place(q), place(k), place(lists), place(counts), return_lse=True,
                                return_aux=("row_max", "max_logit"))
    scores = numpy.einsum("thd,td->th", q.astype(float), numpy.zeros((6, 576)))
    for row in range(6):
        at = lists[row, 0, : counts[row, 0]]
        own = q[row].astype(float) @ k[at[at >= 0], 0].astype(float).T / 24
        scores[row] = own.max(1, initial=-numpy.inf)
    numpy.testing.assert_allclose(fetch(aux["row_max"]), scores.T, rtol=1e-5)
    numpy.testing.assert_allclose(fetch(aux["max_logit"]), scores.max(0), rtol=1e-5)
    assert numpy.isneginf(fetch(lse)[:, 2]).all() and (fetch(o)[2] == 0).all()
    _, aux = ja.attention(place(q[None]), place(k[None]), head_dim_v=512, return_aux=("row_max",), num_splits=2)
    all_scores = numpy.einsum("thd,kd->htk", q.astype(float), k[:, 0].astype(float)) / 24
    numpy.testing.assert_allclose(fetch(aux["row_max"])[0], all_scores.max(2), rtol=1e-5)
