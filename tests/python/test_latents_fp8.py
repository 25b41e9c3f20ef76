"""8-bit latents, rows of 656, 584 and 528 bytes: against double precision over the numbers that they stand for."""

import jit_attention as ja
import numpy
import pytest
from exact_attention import exact_attention
from latents import FORMATS, head_dim, pool, put, rounded, view_of
from request_batches import BF16, boundaries, int32
from seeded import paired

SHARE = 6  # kernels take long to compile
HEADS = 16

pytestmark = pytest.mark.skipif(not ja.devices()[0].arch.startswith("sm_90"), reason="latents are of sm_90a")


def filled(rng, name, lengths, page_size, seed_scale=1.0):
    """(memory, table, numbers of each request)."""
    most = max(1, -(-max(lengths) // page_size))
    memory = pool(rng, name, len(lengths) * most + 2, page_size)
    table = int32(rng.permutation(len(memory))[: len(lengths) * most].reshape(len(lengths), most))
    numbers = []
    for b, length in enumerate(lengths):
        spread = rng.uniform(0.1, 2, (length, 1)) * seed_scale
        codes, scales, rotated, exact = rounded(name, rng.standard_normal((length, head_dim(name))) * spread)
        for i in range(length):
            put(name, memory, page_size, table[b, i // page_size], i % page_size, codes[i], scales[i], rotated[i])
        numbers.append(exact)
        table[b, -(-length // page_size) :] = -1
    return memory, table, numbers


@pytest.mark.parametrize("name, page_size", paired(FORMATS, [64, 1, 16]))
def test_decode_and_drafts(rng, place, fetch, name, page_size):
    lengths_q, lengths_k = [1, 3, 0, 2], [70, 130, 4, 1]
    memory, table, numbers = filled(rng, name, lengths_k, page_size)
    q = (rng.standard_normal((sum(lengths_q), HEADS, head_dim(name))) / 4).astype(BF16)
    o, lse = ja.attention(
        place(q),
        view_of(place(memory), name, page_size),
        head_dim_v=512,
        kv_dtype=name,
        page_table=place(table),
        seqused_k=place(int32(lengths_k)),
        cu_seqlens_q=place(boundaries(lengths_q)),
        mask=ja.mask.causal(),
        return_lse=True,
    )
    o, lse, begin = fetch(o), fetch(lse), 0
    for length, keys in zip(lengths_q, numbers):
        rows = slice(begin, begin + length)
        keys = keys.astype(BF16).astype(float)[:, None]
        shift = len(keys) - length
        exact = exact_attention(
            q[None, rows], keys[None], keys[None, ..., :512], keep=lambda b, h, i, j, s=shift: j <= i + s
        )
        exact.check(o[None, rows], lse[None, :, rows])
        begin += length


def refused(place, match, memory, name, view, width=512):
    q = numpy.zeros((1, 1, HEADS, width), BF16)
    with pytest.raises(ja.errors.Error, match=match):
        ja.attention(place(q), view(place(memory)), head_dim_v=512, kv_dtype=name, page_table=place(int32([[0]])),
                     seqused_k=place(int32([1])))


def test_refusals(rng, place):
    memory = pool(rng, "latent_656", 2, 16)
    refused(place, "latent_656.*576 and head_dim_v 512", memory, "latent_656", lambda m: view_of(m, "latent_656", 16))
    refused(place, "row 528.*656|656.*528|must be 528", memory, "latent_528", lambda m: view_of(m, "latent_656", 16))
    unpadded = numpy.zeros((2, 16, 1, 584), numpy.uint8)
    refused(place, "multiple of 576", unpadded, "latent_584", lambda m: m[:, :15])
    wide = numpy.zeros((2, 16, 1, 600), numpy.uint8)
    refused(place, "rows every 600 bytes", wide, "latent_584", lambda m: m[..., :584])
    with pytest.raises(ja.errors.InvalidSpecError, match="values_in_keys.*must be true"):
        ja.prepare(ja.AttentionSpec(head_dim=512, kv_dtype="latent_528"))
    with pytest.raises(ja.errors.InvalidArgumentError, match="kv_dtype.*latent_656"):
        ja.attention(*(place(numpy.zeros((1, 1, 1, 576), BF16)),) * 2, head_dim_v=512, kv_dtype="latent_999")


@pytest.mark.parametrize("name, dtype", paired(FORMATS, [BF16, numpy.dtype(numpy.float16)]))
def test_append(rng, place, fetch, name, dtype):
    """Bytes of rows as NumPy finds them; nothing else is written."""
    values, page_size = (512 if name == "latent_656" else 448), 16
    k, v = (rng.standard_normal((5, 1, width)).astype(dtype) for width in (64, values))
    v[1, 0, 3] = 300
    slots = numpy.array([3, 20, -1, 47, 16], numpy.int64)
    memory = pool(rng, name, 3, page_size)
    expected = memory.copy()
    rows = rounded(name, numpy.concatenate([v[:, 0], k[:, 0]], 1).astype(numpy.float32))
    for i, slot in enumerate(slots):
        if slot >= 0:
            put(name, expected, page_size, slot // page_size, slot % page_size, *(part[i] for part in rows[:3]))
    held = place(memory)
    ja.append(place(k), place(v), view_of(held, name, page_size), None, slot_mapping=place(slots), cache_dtype=name)
    difference = numpy.abs(fetch(held) - expected)
    assert (difference != 0).mean() < 1e-3 and difference.max() <= 1


def test_append_refusals(rng, place):
    view = view_of(place(pool(rng, "latent_656", 2, 16)), "latent_656", 16)
    k, v = (place(numpy.zeros((1, 1, width), BF16)) for width in (64, 512))
    slots = place(numpy.zeros(1, numpy.int64))
    with pytest.raises(ja.errors.InvalidArgumentError, match="v_cache.*k_cache has whole rows"):
        ja.append(k, v, view, view, slot_mapping=slots, cache_dtype="latent_656")
    with pytest.raises(ja.errors.InvalidSpecError, match="must be 448"):
        ja.append(k, v, view, None, slot_mapping=slots, cache_dtype="latent_528")
    unpadded = place(numpy.zeros((2, 15, 1, 584), numpy.uint8))
    with pytest.raises(ja.errors.InvalidArgumentError, match="multiple of 576"):
        ja.append(
            k, place(numpy.zeros((1, 1, 448), BF16)), unpadded, None, slot_mapping=slots, cache_dtype="latent_584"
        )
