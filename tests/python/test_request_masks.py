"""Masks that differ from request to request, over dense, varlen and paged sequences: against double precision."""

import jit_attention as ja
import numpy
import pytest
from request_batches import BF16, boundaries, call, causal, int32, paged, requests
from seeded import paired, some

SHARE = 9  # kernels take long to compile


def random_tree(rng, nodes):
    """bool (nodes, nodes): each node sees itself and its ancestors."""
    sees = numpy.eye(nodes, dtype=bool)
    for node in range(1, nodes):
        sees[node] |= sees[rng.integers(node)]
    return sees


def packed(sees, words=None):
    """int32 (rows, words) of bool (rows, columns), as the documentation packs them."""
    words = words or -(-sees.shape[-1] // 32)
    padded = numpy.zeros((*sees.shape[:-1], 32 * words), bool)
    padded[..., : sees.shape[-1]] = sees
    return numpy.packbits(padded, axis=-1, bitorder="little").view(numpy.int32)


def keep_draft(drafts):
    def keep(b, h, i, j, seqlen_q, seqlen_k):
        own = j - (seqlen_k - seqlen_q)
        sees = drafts[b]
        if sees is None:
            return own <= i
        # A column for the keys before the draft, at the end, where -1 finds it.
        return numpy.concatenate([sees, numpy.ones((len(sees), 1), bool)], 1)[i, numpy.maximum(own, -1)]

    return keep


def draft_batch(rng, lengths_q, lengths_k, prompts=(), **options):
    """Requests with a random tree for each, but for chunks of prompts, which have none; and all rows of bits."""
    batch = requests(rng, lengths_q, lengths_k, **options)
    drafts = [None if b in prompts else random_tree(rng, n) for b, n in enumerate(lengths_q)]
    most = max(-(-len(sees) // 32) for sees in drafts if sees is not None)
    rows = [rng.integers(-(2**31), 2**31, (n, most), numpy.int32) for n in lengths_q]  # what a prompt has is not read
    for b, sees in enumerate(drafts):
        if sees is not None:
            rows[b] = packed(sees, most)
    return batch, drafts, numpy.concatenate(rows)


def varlen_queries(rng, batch, sequences_kv):
    """All arrays of a call but q, whose rows lie one behind another."""
    if sequences_kv == "paged":
        arrays = paged(rng, batch, 16)
    else:
        arrays = {"k": numpy.concatenate(batch.k), "v": numpy.concatenate(batch.v)}
        arrays["cu_seqlens_k"] = boundaries(batch.lengths_k)
    return arrays | {"cu_seqlens_q": boundaries(batch.lengths_q)}


@pytest.mark.parametrize("sequences_kv", some(["varlen", "paged"]))
def test_drafts_of_different_sizes_and_a_prompt(rng, place, fetch, sequences_kv):
    batch, drafts, bits = draft_batch(rng, [5, 1, 70, 0, 40], [100, 64, 90, 30, 44], prompts=[2])
    assert bits.shape[1] == 2  # the draft of 40 takes two words, and the prompt has more queries than these have bits
    arrays = varlen_queries(rng, batch, sequences_kv)
    o, lse = call(
        place,
        numpy.concatenate(batch.q),
        arrays,
        mask=ja.mask.draft_tree(),
        tensors={"draft_tree": place(bits)},
        return_lse=True,
    )
    batch.check(fetch(o), fetch(lse), keep=keep_draft(drafts))


@pytest.mark.parametrize(
    "family, mask",
    paired(["forward_split_kv", "forward_split_wgmma"], [ja.mask.draft_tree(), ja.mask.causal_per_request()]),
    ids=str,
)
def test_every_family_of_split_keys(rng, place, fetch, family, mask):
    if family == "forward_split_wgmma" and ja.devices()[0].arch != "sm_90a":
        pytest.skip("forward_split_wgmma runs on sm_90a")
    batch, drafts, bits = draft_batch(rng, [5, 1, 70, 0, 40], [200, 64, 90, 30, 44], prompts=[2])
    flags = int32([0, 1, 1, 0, 0])
    arrays = {name: place(array) for name, array in paged(rng, batch, 16).items()}
    arrays["cu_seqlens_q"] = place(boundaries(batch.lengths_q))
    spec = ja.AttentionSpec(
        head_dim=64, gqa_ratio=4, sequences_q="varlen", sequences_kv="paged", page_size=16, mask=mask
    )
    # Nine more rows are padding.
    q = numpy.concatenate([*batch.q, numpy.full((9, 8, 64), numpy.nan, BF16)])
    bits = numpy.concatenate([bits, bits[:9]])
    tensors = {"draft_tree": bits} if "draft_tree" in mask.tensors else {"is_causal": flags}
    out = place(numpy.full_like(q, 7))
    o, lse = ja.prepare(spec, config=f"family={family}")(
        place(q),
        **arrays,
        tensors={name: place(array) for name, array in tensors.items()},
        out=out,
        return_lse=True,
        zero_padding=True,
    )
    o, lse = fetch(o), fetch(lse)
    assert (o[116:] == 0).all() and numpy.isneginf(lse[:, 116:]).all()
    in_tree = keep_draft(drafts)
    keep = in_tree if "draft_tree" in tensors else lambda b, *at: causal(b, *at) if flags[b] else True
    batch.check(o[:116], lse[:, :116], keep=keep)


def test_drafts_are_the_last_keys_in_use(rng, place, fetch):
    """Rows of bits count as those of q do, with gaps between the requests, and strides."""
    batch, drafts, bits = draft_batch(rng, [3, 8], [50, 20])
    arrays = paged(rng, batch, 16) | {"cu_seqlens_q": int32([2, 8, 20]), "seqused_q": int32([3, 8])}
    q = numpy.full((20, 8, 64), numpy.nan, BF16)
    rows = rng.integers(-(2**31), 2**31, (20, 3), numpy.int32)
    q[2:5], q[8:16] = batch.q
    rows[2:5, :1], rows[8:16, :1] = bits[:3], bits[3:]
    o = fetch(call(place, q, arrays, mask=ja.mask.draft_tree(), tensors={"draft_tree": place(rows)[:, :1]}))
    batch.check(numpy.concatenate([o[2:5], o[8:16]]), keep=keep_draft(drafts))


@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
def test_drafts_of_one_length(rng, place, fetch, shared):
    batch, drafts, bits = draft_batch(rng, [6, 6, 6], [40, 6, 77])
    if shared:
        drafts, bits = [drafts[0]] * 3, bits[:6]
    arrays = paged(rng, batch, 16)
    tensors = {"draft_tree": place(bits if shared else bits.reshape(3, 6, 1))}
    o = call(place, numpy.stack(batch.q), arrays, mask=ja.mask.draft_tree(), tensors=tensors)
    batch.check(fetch(o).reshape(18, 8, 64), keep=keep_draft(drafts))


def dense_call(place, fetch, batch, **options):
    """Attention over dense arrays; results as of varlen queries."""
    arrays = [place(numpy.stack(rows)) for rows in (batch.q, batch.k, batch.v)]
    o, lse = ja.attention(*arrays, return_lse=True, **options)
    o, lse = fetch(o), fetch(lse)
    return o.reshape(-1, *o.shape[2:]), lse.transpose(1, 0, 2).reshape(lse.shape[1], -1)


@pytest.mark.parametrize("seqlen_q, seqlen_k", some([(70, 150), (6, 4), (90, 90)]))
def test_dense_drafts(rng, place, fetch, seqlen_q, seqlen_k):
    batch, drafts, bits = draft_batch(rng, [seqlen_q] * 2, [seqlen_k] * 2, ratio=2)
    tensors = {"draft_tree": place(bits.reshape(2, seqlen_q, -1))}
    o, lse = dense_call(place, fetch, batch, mask=ja.mask.draft_tree(), tensors=tensors)
    batch.check(o, lse, keep=keep_draft(drafts))


def test_drafts_in_a_window(rng, place, fetch):
    batch, drafts, bits = draft_batch(rng, [4, 9], [130, 60])
    arrays = paged(rng, batch, 16) | {"cu_seqlens_q": boundaries(batch.lengths_q)}
    in_tree = keep_draft(drafts)
    mask = ja.mask.draft_tree() & ja.mask.sliding_window(30)
    o = call(place, numpy.concatenate(batch.q), arrays, mask=mask, tensors={"draft_tree": place(bits)})
    batch.check(
        fetch(o),
        keep=lambda b, h, i, j, m, n: in_tree(b, h, i, j, m, n) & (j <= i + n - m) & (j >= i + n - m - 30),
    )


@pytest.mark.parametrize("sequences_kv", some(["varlen", "paged"], turn=1))
def test_requests_that_are_causal_and_others(rng, place, fetch, sequences_kv):
    batch = requests(rng, [30, 30, 1, 7, 0], [30, 45, 20, 5, 9])
    flags = int32([1, 0, -2, 1, 0])
    arrays = varlen_queries(rng, batch, sequences_kv)
    o, lse = call(
        place,
        numpy.concatenate(batch.q),
        arrays,
        mask=ja.mask.causal_per_request(),
        tensors={"is_causal": place(flags)},
        return_lse=True,
    )
    batch.check(fetch(o), fetch(lse), keep=lambda b, *at: causal(b, *at) if flags[b] else True)


def test_dense_requests_that_are_causal_and_others(rng, place, fetch):
    batch, flags = requests(rng, [40] * 3, [70] * 3, ratio=2), int32([0, 1, 0])
    tensors = {"is_causal": place(flags)}
    o, lse = dense_call(place, fetch, batch, mask=ja.mask.causal_per_request(), tensors=tensors)
    batch.check(o, lse, keep=lambda b, *at: causal(b, *at) if flags[b] else True)


def test_keys_that_no_draft_sees_are_not_read(rng, place, fetch):
    """Whole tiles of keys that the bits drop may hold anything: whatever tile_kv is, up to 224."""
    drafts = [numpy.zeros((480, 480), bool)]
    drafts[0][:, 0] = drafts[0][:, 479] = True
    batch = requests(rng, [480], [490], heads_kv=1, ratio=1)
    exact = [x.copy() for x in (batch.k[0], batch.v[0])]
    batch.k[0][224:256] = batch.v[0][224:256] = numpy.nan
    arrays = paged(rng, batch, 16) | {"cu_seqlens_q": int32([0, 480])}
    tensors = {"draft_tree": place(packed(drafts[0]))}
    o = call(place, batch.q[0], arrays, mask=ja.mask.draft_tree(), tensors=tensors)
    batch.k[0], batch.v[0] = exact
    batch.check(fetch(o), keep=keep_draft(drafts))


def test_refusals_name_the_array(rng, place):
    batch = requests(rng, [3, 4], [20, 20])
    arrays = paged(rng, batch, 16) | {"cu_seqlens_q": boundaries(batch.lengths_q)}
    for shape, text in [((2, 7, 1), "must be (total_q, words)"), ((6, 1), "total_q = 6; it must be 7"),
                        ((7, 0), "words = 0; it must be at least 1")]:
        with pytest.raises(ja.errors.InvalidArgumentError) as caught:
            call(place, numpy.concatenate(batch.q), arrays, mask=ja.mask.draft_tree(),
                 tensors={"draft_tree": place(numpy.zeros(shape, numpy.int32))})
        assert caught.value.field == "draft_tree" and text in caught.value.message
    with pytest.raises(ja.errors.InvalidArgumentError) as caught:
        call(place, numpy.concatenate(batch.q), arrays, mask=ja.mask.causal_per_request(),
             tensors={"is_causal": place(int32([1, 1, 1]))})
    assert caught.value.field == "is_causal" and "batch = 3; it must be 2" in caught.value.message


@pytest.mark.parametrize(
    "sequences_kv, blocks", some(paired(["varlen", "paged"], [((16, 32), True), ((64, 64), False)]))
)
def test_block_masks_stand_at_the_positions_of_each_request(rng, place, fetch, sequences_kv, blocks):
    sides, per_head = blocks
    batch = requests(rng, [1, 130, 0, 5], [300, 200, 50, 77])
    block_q, block_kv = sides
    heads = 8 if per_head else 1
    columns = -(-max(batch.lengths_k) // block_kv)
    seen = rng.random((len(batch.q), heads, -(-max(batch.lengths_q) // block_q), columns)) < 0.4
    words = packed(seen)
    table = numpy.stack([words, numpy.zeros_like(words)], -1).reshape(*words.shape[:-1], -1)  # none of them is full

    def keep(b, h, i, j, seqlen_q, seqlen_k):
        is_seen = seen[b, h if per_head else 0 * h, i // block_q, j // block_kv]
        return is_seen & causal(b, h, i, j, seqlen_q, seqlen_k)

    mask = ja.mask.block_mask(*sides, ja.mask.causal())
    arrays = varlen_queries(rng, batch, sequences_kv)
    tensors = {"block_mask": place(table)}
    o, lse = call(place, numpy.concatenate(batch.q), arrays, mask=mask, tensors=tensors, return_lse=True)
    batch.check(fetch(o), fetch(lse), keep=keep)


def test_block_masks_of_other_sizes_are_refused(rng, place):
    q, k = (place(rng.standard_normal((2, 100, 2, 64)).astype(BF16)) for _ in range(2))

    def attend(shape, dtype=numpy.int32):
        table = place(numpy.zeros(shape, dtype))
        return ja.attention(q, k, k, mask=ja.mask.block_mask(16, 16), tensors={"block_mask": table})

    attend((1, 1, 7, 2))
    attend((2, 2, 7, 2))
    for shape, message in [
        ((2, 2, 6, 2), "block_rows = 6; it must be 7"),
        ((2, 2, 7, 4), "block_words = 4; it must be 2"),
        ((3, 2, 7, 2), "batch = 3; it must be 2"),
        ((2, 3, 7, 2), "heads_q = 3; it must be 2"),
        ((7, 2), "has 2 dimensions"),
    ]:
        with pytest.raises(ja.errors.InvalidArgumentError, match=message):
            attend(shape)
    with pytest.raises(ja.errors.InvalidArgumentError, match="int32"):
        attend((1, 1, 7, 2), numpy.float32)
    with pytest.raises(ja.errors.InvalidSpecError, match="block_kv = 40 must be a multiple of 16"):
        ja.attention(q, k, k, mask=ja.mask.block_mask(16, 40), tensors={})


@pytest.mark.parametrize(("queries", "keys"), [(13, 0), (0, 13), (0, 0)])
def test_block_masks_of_no_rows_or_keys_are_empty_tables(rng, place, fetch, queries, keys):
    q = place(rng.standard_normal((queries, 2, 64)).astype(BF16))
    k = place(rng.standard_normal((keys, 2, 64)).astype(BF16))
    table = place(numpy.zeros((1, 2, -(-queries // 16), 2 * -(-keys // 512)), numpy.int32))
    lengths = {name: place(numpy.array([0, n], numpy.int32))
               for name, n in (("cu_seqlens_q", queries), ("cu_seqlens_k", keys))}
    o, lse = ja.attention(q, k, k, mask=ja.mask.block_mask(16, 16), tensors={"block_mask": table}, return_lse=True,
                          **lengths)
    assert not fetch(o).astype(numpy.float32).any() and (fetch(lse) == -numpy.inf).all()
