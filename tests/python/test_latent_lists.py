"""Lists of 8-bit latents: chosen rows are converted where they are copied; against double precision over the numbers that
rows stand for."""

import jit_attention as ja
import numpy
import pytest
from exact_attention import exact_attention
from latents import FORMATS, head_dim, places, pool, put, rounded, view_of
from request_batches import BF16, boundaries, int32
from seeded import paired, some

pytestmark = pytest.mark.skipif(not ja.devices()[0].arch.startswith("sm_90"), reason="latents are of sm_90a")

SHARE = 2  # kernels take long to compile

WILD = int32([-(2**31), -1, 2**31 - 1, 2**31 - 64])


def filled(rng, name, pages, page_size):
    """(memory of pages, numbers of all rows)."""
    memory = pool(rng, name, pages, page_size)
    rows = pages * page_size
    codes, scales, rotated, exact = rounded(name, rng.standard_normal((rows, head_dim(name))) * rng.uniform(0.1, 2, (rows, 1)))
    for row in range(rows):
        put(name, memory, page_size, row // page_size, row % page_size, codes[row], scales[row], rotated[row])
    return memory, exact


def check(q, o, lse, keys, lists):
    for row, at in enumerate(lists):
        own = keys[at].astype(q.dtype).astype(float)[:, None]
        exact_attention(q[None, row : row + 1], own[None], own[None, ..., :512]).check(
            o[None, row : row + 1], lse[None, :, row : row + 1])


def chosen(indices, counts, rows):
    """Rows that entries name."""
    return [at[(at >= 0) & (at < rows)] for at in (own[0, : max(0, n)] for own, n in zip(indices, counts[:, 0]))]


def random_lists(rng, tokens, entries, rows):
    lists = int32(rng.integers(-3, rows + 5, (tokens, 1, entries)))
    wild = rng.random(lists.shape) < 0.1
    lists[wild] = rng.choice(WILD, lists.shape)[wild]
    counts = int32(rng.integers(-1, entries + 3, (tokens, 1)))
    counts[rng.integers(tokens)] = 0
    return lists, counts


@pytest.mark.parametrize("name, page_size", paired(FORMATS, [64, 16, 3]))
def test_slots(rng, place, fetch, name, page_size):
    """Entries of any number; rows that no query chose hold scales that are no numbers."""
    heads, dtype = some([8, 64, 128])[0], some([BF16, numpy.dtype(numpy.float16)])[0]
    memory, exact = filled(rng, name, -(-200 // page_size), page_size)
    rows = len(exact)
    lists, counts = random_lists(rng, 4, 150, rows)
    seen = chosen(lists, counts, rows)
    for row in set(range(rows)) - set(numpy.concatenate(seen).tolist()):
        begin = places(name, page_size, row % page_size)[1]
        memory[row // page_size, begin : begin + (16 if name != "latent_584" else 7)] = 255
    q = (rng.standard_normal((4, heads, head_dim(name))) / 4).astype(dtype)
    o, lse = ja.sparse.dsa(place(q), view_of(place(memory), name, page_size), place(lists), place(counts),
                           kv_dtype=name, return_lse=True)
    check(q, fetch(o), fetch(lse), exact, seen)


@pytest.mark.parametrize("name", some(FORMATS))
def test_pairs_of_blocks(rng, place, fetch, name):
    """Two blocks that convert half of the rows each compute what each of them does by itself, bit for bit."""
    memory, exact = filled(rng, name, 4, 64)
    lists, counts = random_lists(rng, 3, 200, len(exact))
    q = (rng.standard_normal((3, 128, head_dim(name))) / 4).astype(BF16)
    spec = ja.AttentionSpec(head_dim=head_dim(name), head_dim_v=512, gqa_ratio=128, sequences_q="varlen", sequences_kv="paged",
                            page_size=64, values_in_keys=True, kv_dtype=name, list_block=1, list_slots=True)
    results = [[fetch(x) for x in ja.prepare(spec, config=f"family=forward_mla_wgmma stages=2 copies=cp_async pair={pair}")(
        place(q), view_of(place(memory), name, 64), None, return_lse=True, num_splits=1, cu_seqlens_q=place(int32([0, 3])),
        page_table=place(int32([[0]])), seqused_k=place(int32([0])),
        tensors={"key_lists": place(lists), "key_counts": place(counts)})] for pair in ("false", "true")]
    assert all((x == y).all() for x, y in zip(*results))
    check(q, *results[1], exact, chosen(lists, counts, len(exact)))


@pytest.mark.parametrize("name", some(FORMATS))
def test_positions_and_masks(rng, place, fetch, name):
    """Entries that are positions, in pages of a table, some of which do not exist."""
    page_size, lengths_q, lengths_k = 16, [3, 0, 2], [150, 20, 40]
    memory, exact = filled(rng, name, 30, page_size)
    table = int32(rng.permutation(30).reshape(3, 10))
    lists, counts = random_lists(rng, 5, 90, 150)
    q = (rng.standard_normal((5, 16, head_dim(name))) / 4).astype(BF16)
    o, lse = ja.sparse.dsa(
        place(q), view_of(place(memory), name, page_size), place(lists), place(counts), kv_dtype=name, return_lse=True,
        page_table=place(table), seqused_k=place(int32(lengths_k)), cu_seqlens_q=place(boundaries(lengths_q)),
        mask=ja.mask.causal())
    seen = []
    for row, at in enumerate(chosen(lists, counts, 2**31 - 1)):
        b, i = (0, row) if row < 3 else (2, row - 3)
        at = at[at <= lengths_k[b] - lengths_q[b] + i]
        seen.append(table[b, at // page_size] * page_size + at % page_size)
    check(q, fetch(o), fetch(lse), exact, seen)


@pytest.mark.parametrize("name", some(FORMATS))
def test_neighbors(rng, place, fetch, name):
    """Rows that share a union of lists."""
    memory, exact = filled(rng, name, 8, 16)
    lists, _ = random_lists(rng, 5, 70, 128)
    q = (rng.standard_normal((5, 8, head_dim(name))) / 4).astype(BF16)
    o, lse = ja.sparse.dsa(place(q), view_of(place(memory), name, 16), place(lists), kv_dtype=name, queries=4,
                           return_lse=True)
    seen = [numpy.unique(at) for at in chosen(lists, numpy.full((5, 1), 70), 128)]
    check(q, fetch(o), fetch(lse), exact, seen)


def test_numbers_that_are_none(rng, place, fetch):
    """A scale that is no number, of the first row, makes those queries that chose it none, and no others. fp16 saturates."""
    memory, _ = filled(rng, "latent_656", 4, 16)
    nan, large = 0, 30
    memory[0].reshape(16, 656)[nan, 512:516] = 255
    codes = numpy.full(512, 0x7E, numpy.uint8)  # 448
    put("latent_656", memory, 16, large // 16, large % 16, codes, numpy.full(4, 1e4, numpy.float32),
        numpy.zeros(128, numpy.uint8))
    lists = int32([[[nan, 3]], [[large, -1]], [[4, 5]]])
    q = numpy.zeros((3, 16, 576), numpy.float16)
    o = fetch(ja.sparse.dsa(place(q), view_of(place(memory), "latent_656", 16), place(lists), kv_dtype="latent_656"))
    assert numpy.isnan(o[0, :, :128]).all()
    assert (o[1] == 65504).all()
    assert numpy.isfinite(o[2]).all()


@pytest.mark.parametrize("name", some(FORMATS))
def test_rows_without_lists(rng, place, fetch, name):
    """Whoever copies rows converts them: as if they had been upcast ahead, bit for bit."""
    memory, _ = filled(rng, name, 8, 16)
    spec = ja.AttentionSpec(head_dim=head_dim(name), head_dim_v=512, gqa_ratio=16, values_in_keys=True, kv_dtype=name,
                            sequences_kv="paged", page_size=16, mask=ja.mask.causal())
    q = place((rng.standard_normal((2, 2, 16, head_dim(name))) / 4).astype(BF16))
    arrays = dict(page_table=place(int32(rng.permutation(8).reshape(2, 4))), seqused_k=place(int32([61, 2])),
                  num_splits=1)
    o = [fetch(ja.prepare(spec, config=f"family=forward_mla_wgmma stages=2 copies={copies}")(
        q, view_of(place(memory), name, 16), None, **arrays)) for copies in ("cp_async", "tma")]
    if name == "latent_656":  # its keys behind the values are multiplied among others: another order of sums
        numpy.testing.assert_allclose(o[0].astype(float), o[1].astype(float), rtol=2**-6, atol=2**-7)
    else:
        assert (o[0] == o[1]).all()


def test_refusals(rng, place):
    memory, _ = filled(rng, "latent_656", 2, 16)
    q = numpy.zeros((1, 16, 512), BF16)
    with pytest.raises(ja.errors.InvalidSpecError, match="latent_656.*head_dim 576"):
        ja.sparse.dsa(place(q), view_of(place(memory), "latent_656", 16), place(int32([[[0]]])), kv_dtype="latent_656")
    with pytest.raises(ja.errors.InvalidSpecError, match="list_block.*or are latents"):
        ja.prepare(ja.AttentionSpec(head_dim=64, kv_dtype="int8", sequences_q="varlen", sequences_kv="varlen",
                                    list_block=1))
