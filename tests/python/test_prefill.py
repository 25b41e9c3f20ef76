"""Family forward_wgmma with lengths on the device: varlen and paged sequences, request by request, against double
precision. Between requests, behind their last keys and in pages that are nobody's lie NaNs."""

import jit_attention as ja
import numpy
import pytest
from exact_attention import exact_attention
from request_batches import BF16, causal, int32, paged, requests
from seeded import paired, some

SHARE = 9  # kernels take long to compile

CONFIGS = {
    "turns": "tile_q=128 tile_kv=64 stages_q=2 stages_k=2 stages_v=2 order=ping_pong rescale=on_overflow",
    "direct": "tile_q=64 tile_kv=32 stages_k=2 stages_v=1 output=direct",
    "three": "tile_q=192 tile_kv=48 stages_q=1 stages_k=3 stages_v=3 output=separate order=free rescale=lazy",
}


@pytest.fixture(autouse=True)
def _on_hopper():
    if ja.devices()[0].arch != "sm_90a":
        pytest.skip("family forward_wgmma is for sm_90a")


def with_gaps(rows, gaps):
    """Rows of requests one after another, gaps of NaNs before each and behind the last; and where each begins."""
    heads, width = rows[0].shape[1:]
    parts, begins, at = [], [], 0
    for own, gap in zip([*rows, rows[0][:0]], gaps, strict=True):
        parts += [numpy.full((gap, heads, width), numpy.nan, rows[0].dtype), own]
        begins.append(at + gap)
        at += gap + len(own)
    return numpy.concatenate(parts), int32(begins)


def varlen_keys(batch, gaps):
    k, begins = with_gaps(batch.k, gaps)
    v, _ = with_gaps(batch.v, gaps)
    return {"k": k, "v": v, "cu_seqlens_k": begins, "seqused_k": int32(batch.lengths_k)}


def compute(place, fetch, batch, arrays, *, config="turns", gaps=None, lse=True, tensors=None, **spec):
    """O and LSE of the requests' rows, without the gaps between them, which must be left alone."""
    gaps = gaps or [2] * (len(batch.q) + 1)
    q, begins = with_gaps(batch.q, gaps)
    options = {"sequences_q": "varlen", "head_dim": q.shape[2], "gqa_ratio": q.shape[1] // arrays["k"].shape[-2]}
    options["head_dim_v"] = arrays["v"].shape[-1]
    if "page_table" in arrays:
        options |= {"sequences_kv": "paged", "page_size": arrays["k"].shape[1]}
    elif "cu_seqlens_k" in arrays:
        options["sequences_kv"] = "varlen"
    prepared = ja.prepare(
        ja.AttentionSpec(**options, sinks="sinks" in arrays, **spec), config="family=forward_wgmma " + CONFIGS[config]
    )
    out = place(numpy.full((*q.shape[:2], options["head_dim_v"]), 7, BF16))
    places = {name: place(array) for name, array in arrays.items()}
    places |= {"cu_seqlens_q": place(begins), "seqused_q": place(int32(batch.lengths_q))}
    given = {"tensors": {name: place(array) for name, array in tensors.items()}} if tensors else {}
    o, lse = prepared(place(q), places.pop("k"), places.pop("v"), **places, **given, out=out, return_lse=True)
    o, lse = fetch(o), fetch(lse)
    own = numpy.concatenate([numpy.arange(b, b + n) for b, n in zip(begins, batch.lengths_q)]).astype(int)
    assert (numpy.delete(o, own, axis=0) == 7).all()
    return o[own], lse[:, own]


@pytest.mark.parametrize("config, masked", some(paired(CONFIGS, [True, False])))
def test_varlen(rng, place, fetch, config, masked):
    """More queries than keys, no queries, no keys, one of each, and tiles that end where a request does."""
    batch = requests(rng, [130, 0, 1, 64, 200, 3], [70, 9, 1, 64, 300, 0], ratio=2)
    arrays = varlen_keys(batch, [3, 0, 5, 1, 0, 2, 70])
    mask = {"mask": ja.mask.causal()} if masked else {}
    result = compute(place, fetch, batch, arrays, config=config, gaps=[5, 0, 0, 1, 2, 0, 66], **mask)
    batch.check(*result, keep=causal if masked else None)


@pytest.mark.parametrize("page_size, layout", some(paired([8, 16, 48, 256], ["NHD", "HND"])))
def test_pages(rng, place, fetch, page_size, layout):
    batch = requests(rng, [77, 1, 0, 190], [150, 37, 5, 300], ratio=3)
    arrays = paged(rng, batch, page_size, layout=layout)
    config = "three" if page_size == 48 else "turns"
    batch.check(*compute(place, fetch, batch, arrays, config=config, mask=ja.mask.causal()), keep=causal)


@pytest.mark.parametrize("head_dim, head_dim_v", some([(64, 64), (128, 128), (80, 128), (16, 64), (256, 256)]))
def test_head_dims(rng, place, fetch, head_dim, head_dim_v):
    batch = requests(rng, [70, 9], [90, 33], ratio=1, head_dim=head_dim, head_dim_v=head_dim_v)
    config = "direct" if head_dim != head_dim_v or head_dim == 256 else "turns"
    batch.check(*compute(place, fetch, batch, paged(rng, batch, 16), config=config))


def test_many_requests_of_few_tokens(rng, place, fetch):
    """More than a warp looks at at once, with empty ones among them."""
    lengths = rng.integers(0, 4, 75)
    batch = requests(rng, lengths, lengths * rng.integers(0, 6, 75), heads_kv=1, ratio=2)
    arrays = varlen_keys(batch, rng.integers(0, 2, 76))
    result = compute(place, fetch, batch, arrays, gaps=rng.integers(0, 2, 76).tolist(), mask=ja.mask.causal())
    batch.check(*result, keep=causal)


def test_long_and_short_requests(rng, place, fetch):
    """Tiles that see more than a quarter of the longest request's keys come first in the list, then all others."""
    batch = requests(rng, [40, 150, 600, 1], [1300, 150, 1400, 1100], heads_kv=1, ratio=2)
    for mask, keep in [({}, None), ({"mask": ja.mask.causal()}, causal)]:
        batch.check(*compute(place, fetch, batch, paged(rng, batch, 64), **mask), keep=keep)


def test_dense_queries_over_pages(rng, place, fetch):
    batch = requests(rng, [70, 0, 128], [90, 12, 130])
    arrays = paged(rng, batch, 16)
    q = numpy.full((3, 130, 8, 64), numpy.nan, BF16)
    for b, rows in enumerate(batch.q):
        q[b, : len(rows)] = rows
    spec = ja.AttentionSpec(head_dim=64, gqa_ratio=4, sequences_kv="paged", page_size=16, mask=ja.mask.causal())
    prepared = ja.prepare(spec, config="family=forward_wgmma " + CONFIGS["turns"])
    places = {name: place(array) for name, array in arrays.items()}
    out = place(numpy.full_like(q, 7))
    o, lse = prepared(
        place(q), places.pop("k"), places.pop("v"), **places, seqused_q=place(int32(batch.lengths_q)), out=out,
        return_lse=True,
    )
    o, lse = fetch(o), fetch(lse)
    batch.check(
        numpy.concatenate([o[b, :n] for b, n in enumerate(batch.lengths_q)]),
        numpy.concatenate([lse[b, :, :n] for b, n in enumerate(batch.lengths_q)], axis=1),
        keep=causal,
    )
    assert all((o[b, n:] == 7).all() for b, n in enumerate(batch.lengths_q))


def test_varlen_queries_over_a_dense_cache_with_leftpad(rng, place, fetch):
    pads, lengths = [3, 0, 10], [150, 1, 10]  # the last request has no keys
    batch = requests(rng, [66, 2, 2], [n - p for n, p in zip(lengths, pads)])
    k, v = (numpy.full((3, 160, 2, 64), numpy.nan, BF16) for _ in range(2))
    for b in range(3):
        k[b, pads[b] : lengths[b]], v[b, pads[b] : lengths[b]] = batch.k[b], batch.v[b]
    arrays = {"k": k, "v": v, "seqused_k": int32(lengths), "cache_leftpad": int32(pads)}
    batch.check(*compute(place, fetch, batch, arrays, mask=ja.mask.causal()), keep=causal)


@pytest.mark.parametrize("config", some(["turns", "direct"]))
def test_sinks(rng, place, fetch, config):
    batch = requests(rng, [70, 3], [90, 0])
    sinks = numpy.concatenate([rng.standard_normal(6), [-numpy.inf, 200]]).astype(numpy.float32)
    o, lse = compute(place, fetch, batch, paged(rng, batch, 16) | {"sinks": sinks}, config=config)
    plain = exact_attention(batch.q[0][None], batch.k[0][None], batch.v[0][None])
    total = numpy.logaddexp(plain.lse[0], sinks[:, None])
    assert numpy.abs(lse[:, :70] - total).max() < 1e-3
    assert numpy.abs(o[:70] - plain.o[0] * numpy.exp(plain.lse[0] - total).T[..., None]).max() < 0.01
    assert (o[70:] == 0).all()
    assert (lse[:6, 70:] == sinks[:6, None]).all() and numpy.isneginf(lse[6, 70:]).all()


def test_zero_padding(rng, place, fetch):
    batch = requests(rng, [70, 0, 5], [30, 9, 44])
    q, begins = with_gaps(batch.q, [3, 0, 4, 40])
    arrays = {name: place(array) for name, array in paged(rng, batch, 16).items()}
    spec = ja.AttentionSpec(head_dim=64, gqa_ratio=4, sequences_q="varlen", sequences_kv="paged", page_size=16)
    prepared = ja.prepare(spec, config="family=forward_wgmma " + CONFIGS["turns"])
    o, lse = prepared(
        place(q), arrays.pop("k"), arrays.pop("v"), **arrays, cu_seqlens_q=place(begins),
        seqused_q=place(int32(batch.lengths_q)), out=place(numpy.full_like(q, 7)), return_lse=True, zero_padding=True,
    )
    o, lse = fetch(o), fetch(lse)
    own = numpy.concatenate([numpy.arange(b, b + n) for b, n in zip(begins, batch.lengths_q)]).astype(int)
    batch.check(o[own], lse[:, own])
    assert (numpy.delete(o, own, axis=0) == 0).all()
    assert numpy.isneginf(numpy.delete(lse, own, axis=1)).all()


def window(b, h, i, j, seqlen_q, seqlen_k):
    place = i + seqlen_k - seqlen_q
    return (j <= place) & (j >= place - 20)


MASKS = {
    "window": (lambda: ja.mask.sliding_window(20, 0), window),
    "inverse": (lambda: ~ja.mask.causal(), lambda *at: ~causal(*at)),
    "text": (
        lambda: ja.mask.text("return (q + seqlen_kv - seqlen_q - k) % 3 != h % 2;", name="stripes"),
        lambda b, h, i, j, m, n: numpy.fmod(i + n - m - j, 3) != h % 2,  # C++'s remainder has the sign of the dividend
    ),
}


@pytest.mark.parametrize("name, lies", some(paired(MASKS, ["paged", "varlen"])))
def test_masks_see_positions_of_their_own_request(rng, place, fetch, name, lies):
    mask, keep = MASKS[name]
    batch = requests(rng, [1, 90, 70], [130, 20, 164])
    arrays = paged(rng, batch, 16) if lies == "paged" else varlen_keys(batch, [0, 3, 1, 4])
    batch.check(*compute(place, fetch, batch, arrays, mask=mask()), keep=keep)


def test_documents(rng, place, fetch):
    batch = requests(rng, [100, 70], [180, 75])
    ids_q, ids_kv = (numpy.sort(rng.integers(0, 5, (2, n)), axis=1).astype(numpy.int32) for n in (100, 180))
    arrays = varlen_keys(batch, [2, 3, 4])
    q_room, k_room = 2 * 3 + 170, 2 + 3 + 4 + 255  # what requests could have
    tensors = {"document_ids_q": numpy.zeros((2, q_room), numpy.int32)}
    tensors["document_ids_kv"] = numpy.zeros((2, k_room), numpy.int32)
    tensors["document_ids_q"][:, :100], tensors["document_ids_kv"][:, :180] = ids_q, ids_kv
    result = compute(place, fetch, batch, arrays, mask=ja.mask.document(), tensors=tensors)
    batch.check(*result, keep=lambda b, h, i, j, m, n: ids_q[b][i] == ids_kv[b][j])


def test_causal_where_the_request_is(rng, place, fetch):
    batch = requests(rng, [70, 90], [100, 95])
    tensors = {"is_causal": int32([0, 1])}
    result = compute(place, fetch, batch, paged(rng, batch, 16), mask=ja.mask.causal_per_request(), tensors=tensors)
    batch.check(*result, keep=lambda b, h, i, j, m, n: (j <= i + n - m) | (b == 0))


def test_scores(rng, place, fetch):
    batch = requests(rng, [70, 5], [77, 130])
    slopes = (0.5 ** numpy.arange(1, 9)).astype(numpy.float32)
    arrays, options = paged(rng, batch, 16), {"mask": ja.mask.causal(), "score": ja.score.alibi()}
    result = compute(place, fetch, batch, arrays, config="three", tensors={"alibi_slopes": slopes}, **options)
    batch.check(*result, keep=causal, score=lambda s, b, h, i, j, m, n: s - slopes[h] * numpy.abs(i + n - m - j))


@pytest.mark.parametrize("config", some(["turns", "three"]))
def test_bits_depend_on_nothing_but_the_request(rng, place, fetch, config):
    """Not on pages, on gaps, on what lies in them, on requests beside it, nor on which block computes what."""
    batch = requests(rng, [100, 150, 31], [160, 150, 200])
    results = []
    for page_size in (16, 48, 64):
        if config == "turns" or page_size != 64:
            arrays = paged(rng, batch, page_size)
            results.append(compute(place, fetch, batch, arrays, config=config, mask=ja.mask.causal()))
    arrays = varlen_keys(batch, [1, 0, 7, 2])
    results.append(compute(place, fetch, batch, arrays, config=config, gaps=[0, 1, 0, 3], mask=ja.mask.causal()))
    for _ in range(2):
        results.append(compute(place, fetch, batch, arrays, config=config, gaps=[0, 0, 0, 0], mask=ja.mask.causal()))
    for o, lse in results[1:]:
        assert (o == results[0][0]).all() and (lse == results[0][1]).all()
    alone = requests(rng, [], [])
    alone.q, alone.k, alone.v = batch.q[1:2], batch.k[1:2], batch.v[1:2]
    alone.__post_init__()
    o, lse = compute(place, fetch, alone, paged(rng, alone, 16), config=config, mask=ja.mask.causal())
    assert (o == results[0][0][100:250]).all() and (lse == results[0][1][:, 100:250]).all()


def test_wild_values_on_the_device_read_and_write_nothing_else(rng, place, fetch):
    batch = requests(rng, [80, 80], [32, 32])
    arrays = {name: place(array) for name, array in paged(rng, batch, 16).items() if name != "seqused_k"}
    spec = ja.AttentionSpec(head_dim=64, gqa_ratio=4, sequences_q="varlen", sequences_kv="paged", page_size=16)
    prepared = ja.prepare(spec, config="family=forward_wgmma " + CONFIGS["turns"])
    q = place(numpy.concatenate(batch.q))
    o, lse = prepared(
        q, arrays.pop("k"), arrays.pop("v"), **arrays, cu_seqlens_q=place(int32([-5, 80, 1 << 30])),
        seqused_k=place(int32([1 << 30, -7])), return_lse=True,
    )
    o, lse = fetch(o), fetch(lse)
    exact = exact_attention(batch.q[0][None], batch.k[0][None], batch.v[0][None])
    exact.check(o[None, :80])  # a length beyond the table is the table's
    assert (o[80:] == 0).all() and numpy.isneginf(lse[:, 80:]).all()  # a negative one is 0


def test_pages_that_do_not_exist_are_zeros(rng, place, fetch):
    batch = requests(rng, [65], [100])
    arrays = paged(rng, batch, 16)
    arrays["page_table"][0, 1:3] = [1 << 30, -3]
    batch.k[0][16:48] = batch.v[0][16:48] = 0
    batch.check(*compute(place, fetch, batch, arrays))


def test_what_the_family_cannot_do_is_refused():
    options = {"head_dim": 64, "sequences_q": "varlen", "sequences_kv": "paged"}
    with pytest.raises(ja.errors.Error, match="common divisor of 8 or more"):
        ja.prepare(ja.AttentionSpec(**options, page_size=4), config="family=forward_wgmma tile_q=128 tile_kv=64")
