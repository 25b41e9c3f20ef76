"""Lists of keys: each query sees those of its own, in every kernel family that reads them."""

import dataclasses

import jit_attention as ja
import ml_dtypes
import numpy
import pytest
from exact_attention import exact_attention
from request_batches import Requests, boundaries, int32, paged, requests
from seeded import some

SHARE = 9  # kernels take long to compile


def random_lists(rng, batch, entries, block, *, heads=None):
    """Entries in any order, some twice, some that name no key; counts from none to more than there is room for."""
    heads = heads or batch.k[0].shape[1]
    lists = [rng.integers(-2, -(-n // block) + 3, (len(q), heads, entries)) for q, n in zip(batch.q, batch.lengths_k)]
    lists = int32(numpy.concatenate(lists))
    wild = rng.random(lists.shape)
    lists[wild < 0.05] = rng.choice(int32([-(2**31), 2**31 - 1, (2**31 - 1) // block, -1]), lists.shape)[wild < 0.05]
    counts = rng.integers(-1, entries + 3, lists.shape[:2]).astype(numpy.int32)
    counts[rng.integers(len(lists))] = 0
    return lists, counts


def positions(entries, count, block, seqlen_k):
    """Where the keys of a list stand, as often as they are listed."""
    entries = entries[: max(count, 0)].astype(numpy.int64)
    at = (entries[:, None] * block + numpy.arange(block)).ravel()
    return at[(at >= 0) & (at < seqlen_k)]


def check(batch, o, lse, lists, counts, block, *, keep=None, score=None, sinks=None):
    row = 0
    for q, k, v in zip(batch.q, batch.k, batch.v):
        ratio = q.shape[1] // k.shape[1]
        for i in range(len(q)):
            for kv_head in range(k.shape[1]):
                at = positions(lists[row, kv_head % lists.shape[1]], counts[row, kv_head % lists.shape[1]], block, len(k))
                if keep is not None:
                    at = at[keep(i, at, len(q), len(k))]
                heads = slice(kv_head * ratio, (kv_head + 1) * ratio)
                own_score = score and (lambda s, b, h, _, j, i=i, at=at, q=q, k=k: score(s, i, at[j], len(q), len(k)))
                exact = exact_attention(q[None, i : i + 1, heads], k[None, at, kv_head : kv_head + 1],
                                        v[None, at, kv_head : kv_head + 1], score=own_score)
                if sinks is not None:
                    with numpy.errstate(over="ignore"):
                        total = numpy.logaddexp(exact.lse, sinks[heads][None, :, None])
                        exact.o *= numpy.exp(exact.lse - total).transpose(0, 2, 1)[..., None]
                    exact.lse = total
                exact.check(o[None, row : row + 1, heads], lse[None, heads, row : row + 1])
            row += 1


def call(place, batch, arrays, lists, counts, block, **options):
    """The spec's fields and the call's own arrays are told apart by their names."""
    is_latent = options.pop("latent", False)
    fields = {name: options.pop(name) for name in ("mask", "score", "list_slots") if name in options}
    config = options.pop("config", None)
    k = arrays["k"]
    head_dim, head_dim_v = batch.q[0].shape[-1], batch.v[0].shape[-1]
    is_paged = "page_table" in arrays or k.ndim == 4
    spec = ja.AttentionSpec(
        head_dim=head_dim, head_dim_v=head_dim_v, gqa_ratio=batch.q[0].shape[1] // batch.k[0].shape[1],
        sequences_q="varlen", sequences_kv="paged" if is_paged else "varlen", page_size=k.shape[1] if is_paged else 0,
        values_in_keys=is_latent, list_block=block, sinks="sinks" in arrays, **fields)
    arrays = {name: place(array) for name, array in arrays.items() if not (is_latent and name == "v")}
    k, v = arrays.pop("k"), arrays.pop("v", None)
    tensors = {"key_lists": place(lists), "key_counts": place(counts)}
    members = options.pop("members", None)
    if members is not None:
        tensors["key_members"] = place(members)
        spec = dataclasses.replace(spec, list_queries=-(-sum(batch.lengths_q) // len(lists)))
    attention = ja.prepare(spec, config=config)
    return attention(place(numpy.concatenate(batch.q)), k, v, tensors=tensors, return_lse=True,
                     cu_seqlens_q=place(boundaries(batch.lengths_q)), **arrays, **options)


def latents(rng, lengths_q, lengths_k, *, heads=16, head_dim=448, head_dim_v=384):
    batch = requests(rng, lengths_q, lengths_k, heads_kv=1, ratio=heads, head_dim=head_dim)
    return Requests(batch.q, batch.k, [k[..., :head_dim_v] for k in batch.k])


@pytest.mark.parametrize("block", some([1, 4, 48, 128]))
def test_latents_in_pages(rng, place, fetch, block):
    batch = latents(rng, [1, 0, 3, 2], [70, 9, 300, 131])
    lists, counts = random_lists(rng, batch, -(-90 // block), block)
    o, lse = call(place, batch, paged(rng, batch, some([1, 16, 64])[0]), lists, counts, block, latent=True)
    check(batch, fetch(o), fetch(lse), lists, counts, block)


@pytest.mark.parametrize("heads,head_dim,head_dim_v", some([(128, 576, 512), (64, 512, 512), (8, 576, 512)]))
def test_deepseek(rng, place, fetch, heads, head_dim, head_dim_v):
    batch = latents(rng, [2, 1], [90, 140], heads=heads, head_dim=head_dim, head_dim_v=head_dim_v)
    lists, counts = random_lists(rng, batch, 75, 1)
    arrays = {"k": numpy.concatenate(batch.k), "cu_seqlens_k": boundaries(batch.lengths_k)}
    arrays["sinks"] = rng.standard_normal(heads).astype(numpy.float32)
    o, lse = call(place, batch, arrays, lists, counts, 1, latent=True)
    check(batch, fetch(o), fetch(lse), lists, counts, 1, sinks=arrays["sinks"])


@pytest.mark.parametrize("block", some([1, 64]))
def test_masks_and_scores_of_positions(rng, place, fetch, block):
    batch = latents(rng, [40, 3], [130, 77])
    lists, counts = random_lists(rng, batch, -(-100 // block), block)
    o, lse = call(place, batch, paged(rng, batch, 16), lists, counts, block, latent=True,
                  mask=ja.mask.sliding_window(60), score=ja.score.text("return score * 0.5f + 0.01f * (k - q);", name="apart"))

    def window(i, j, seqlen_q, seqlen_k):
        at = i + seqlen_k - seqlen_q
        return (j <= at) & (j >= at - 60)

    check(batch, fetch(o), fetch(lse), lists, counts, block, keep=window,
          score=lambda s, i, j, *_: s * 0.5 + 0.01 * (j - i))


@pytest.mark.parametrize("page_size", some([0, 64]))
def test_slots(rng, place, fetch, page_size):
    """Entries that name rows where they lie; rows of q behind the last sequence have o = 0."""
    slots, heads, block = 256, 16, some([1, 32])[0]
    batch = latents(rng, [7], [slots], heads=heads)
    k = batch.k[0].reshape(-1, page_size, 1, 448) if page_size else batch.k[0]
    lists, counts = random_lists(rng, batch, -(-70 // block), block)
    arrays = {"k": k, "cu_seqlens_k": int32([0, slots])}
    if page_size:
        arrays = {"k": k, "page_table": int32([[0]])}
    o, lse = call(place, batch, arrays, lists, counts, block, latent=True, list_slots=True)
    check(batch, fetch(o), fetch(lse), lists, counts, block)


def alike(b_i, j, seqlen_q, seqlen_k):
    return j <= b_i + seqlen_k - seqlen_q


@pytest.mark.parametrize("block,page_size", some([(128, 128), (16, 64), (4, 0), (1, 1)]))
def test_blocks_of_heads(rng, place, fetch, block, page_size):
    """Each KV head of each query has a list of its own; the last block of a sequence ends behind it."""
    batch = requests(rng, [3, 1, 0, 6], [300, 17, 40, 129], heads_kv=2, ratio=8, head_dim=128)
    lists, counts = random_lists(rng, batch, max(2, 200 // block), block)
    arrays = paged(rng, batch, page_size) if page_size else {
        "k": numpy.concatenate(batch.k), "v": numpy.concatenate(batch.v), "cu_seqlens_k": boundaries(batch.lengths_k)}
    o, lse = call(place, batch, arrays, lists, counts, block, mask=ja.mask.causal())
    check(batch, fetch(o), fetch(lse), lists, counts, block, keep=alike)


@pytest.mark.parametrize("block,page_size,dtype", some([
    (128, 128, ml_dtypes.float8_e4m3fn), (16, 64, ml_dtypes.float8_e4m3fn), (64, 0, ml_dtypes.float8_e5m2)]))
def test_fp8_caches(rng, place, fetch, block, page_size, dtype):
    """Each sequence has scales of its own; rows that are no sequence's are NaN."""
    batch = requests(rng, [3, 1, 0, 6], [300, 17, 40, 129], heads_kv=2, ratio=8, head_dim=128)
    scales = rng.uniform(0.5, 1.5, (2, 4, 2)).astype(numpy.float32)
    stored = Requests(batch.q, *([x.astype(dtype) for x in rows] for rows in (batch.k, batch.v)))
    exact = Requests(batch.q, *([x.astype(numpy.float32) * own[:, None] for x, own in zip(rows, by)]
                                for rows, by in zip((stored.k, stored.v), scales)))
    lists, counts = random_lists(rng, batch, max(2, 200 // block), block)
    arrays = paged(rng, stored, page_size) if page_size else {
        "k": numpy.concatenate(stored.k), "v": numpy.concatenate(stored.v), "cu_seqlens_k": boundaries(batch.lengths_k)}
    arrays = {name: place(array) for name, array in arrays.items()}
    o, lse = ja.sparse.block_top_k(
        place(numpy.concatenate(batch.q)), arrays.pop("k"), arrays.pop("v"), place(lists), place(counts), block=block,
        mask=ja.mask.causal(), return_lse=True, cu_seqlens_q=place(boundaries(batch.lengths_q)), k_descale=place(scales[0]),
        v_descale=place(scales[1]), **arrays)
    check(exact, fetch(o), fetch(lse), lists, counts, block, keep=alike)


def test_latents_of_neighbors(rng, place, fetch):
    """Queries that share a list see the entries whose bit is theirs, those behind a sequence's end none."""
    queries, block, heads = some([2, 4, 7])[0], some([1, 16])[0], some([8, 32])[0]
    batch = latents(rng, [3 * queries, 2 * queries - 1], [130, 77], heads=heads)
    groups = Requests([q[::queries] for q in batch.q], batch.k, batch.v)
    lists, counts = random_lists(rng, groups, -(-100 // block), block)
    members = rng.integers(-(2**31), 2**31, lists.shape).astype(numpy.int32)
    members[rng.integers(len(members))] = -1
    o, lse = call(place, batch, paged(rng, batch, 16), lists, counts, block, latent=True, mask=ja.mask.causal(),
                  members=members)
    own = [(lists[g], counts[g], members[g] >> i & 1) for g in range(len(lists)) for i in range(queries)]
    own = own[: sum(batch.lengths_q)]
    seen = int32([numpy.where(bits, entries, -1) for entries, _, bits in own])
    check(batch, fetch(o), fetch(lse), seen, int32([count for _, count, _ in own]), block, keep=alike)


@pytest.mark.parametrize("block,page_size,tile_rows,tile_kv",
                         some([(128, 128, 64, 128), (64, 16, 128, 64), (64, 0, 64, 32), (128, 64, 64, 64)]))
def test_blocks_by_wgmma(rng, place, fetch, block, page_size, tile_rows, tile_kv):
    """Tiles of one entry by TMA: shared by four queries of eight heads each, or of one."""
    if ja.devices()[0].arch != "sm_90a":
        pytest.skip("forward_split_wgmma is of sm_90a")
    for queries in (1, 4):
        batch = requests(rng, [2 * queries, 0, 3 * queries], [300, 17, 141], heads_kv=2, ratio=8, head_dim=64)
        groups = Requests([q[::queries] for q in batch.q], batch.k, batch.v)
        lists, counts = random_lists(rng, groups, 2 if queries == 1 else 6, block)  # fewer keys than pages have, or more
        members = rng.integers(-(2**31), 2**31, lists.shape).astype(numpy.int32)
        arrays = paged(rng, batch, page_size) if page_size else {
            "k": numpy.concatenate(batch.k), "v": numpy.concatenate(batch.v), "cu_seqlens_k": boundaries(batch.lengths_k)}
        arrays["sinks"] = rng.standard_normal(16).astype(numpy.float32)
        o, lse = call(place, batch, arrays, lists, counts, block, members=members if queries > 1 else None,
                      mask=ja.mask.causal() if queries > 1 else ja.mask.none(),
                      config=f"family=forward_split_wgmma tile_rows={tile_rows} tile_kv={tile_kv} stages=2")
        if queries > 1:
            rows = [(lists[g], counts[g], members[g] >> i & 1) for g in range(len(lists)) for i in range(queries)]
            lists = int32([numpy.where(bits, entries, -1) for entries, _, bits in rows])
            counts = int32([count for _, count, _ in rows])
        check(batch, fetch(o), fetch(lse), lists, counts, block, keep=alike if queries > 1 else None, sinks=arrays["sinks"])
