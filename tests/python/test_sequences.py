"""Varlen and paged sequences, lengths on the device, sinks: against double precision, request by request."""

import jit_attention as ja
import numpy
import pytest
from exact_attention import exact_attention
from fp8_caches import cached
from request_batches import BF16, boundaries, call, causal, int32, paged, requests
from seeded import some

SHARE = 9  # kernels take long to compile


@pytest.mark.parametrize("page_size", some([1, 7, 16, 256]))
def test_pages_of_any_size(rng, place, fetch, page_size):
    batch = requests(rng, [1, 3, 0, 17], [100, 37, 5, 300])
    arrays = paged(rng, batch, page_size) | {"cu_seqlens_q": boundaries(batch.lengths_q)}
    o, lse = call(place, numpy.concatenate(batch.q), arrays, mask=ja.mask.causal(), return_lse=True)
    batch.check(fetch(o), fetch(lse), keep=causal)


@pytest.mark.parametrize("layout", ["NHD", "HND"])
@pytest.mark.parametrize(
    "ratio, head_dim, head_dim_v", some([(1, 64, 64), (12, 128, 128), (3, 80, 128), (2, 256, 256)])
)
def test_heads_and_layouts(rng, place, fetch, layout, ratio, head_dim, head_dim_v):
    batch = requests(rng, [1, 2], [90, 33], ratio=ratio, head_dim=head_dim, head_dim_v=head_dim_v)
    arrays = paged(rng, batch, 16, layout=layout) | {"cu_seqlens_q": boundaries(batch.lengths_q)}
    o = call(place, numpy.concatenate(batch.q), arrays)
    batch.check(fetch(o))


def test_keys_and_values_side_by_side(rng, place, fetch):
    batch = requests(rng, [1, 4], [70, 40])
    arrays = paged(rng, batch, 16)
    both = place(numpy.ascontiguousarray(numpy.concatenate([arrays["k"], arrays["v"]], -1)))
    o = ja.attention(
        place(numpy.concatenate(batch.q)),
        both[..., :64],
        both[..., 64:],
        cu_seqlens_q=place(boundaries(batch.lengths_q)),
        page_table=place(arrays["page_table"]),
        seqused_k=place(arrays["seqused_k"]),
    )
    batch.check(fetch(o))


def test_varlen_keys(rng, place, fetch):
    batch = requests(rng, [5, 40, 1], [2, 40, 130])  # more queries than keys, too
    arrays = {"k": numpy.concatenate(batch.k), "v": numpy.concatenate(batch.v)}
    arrays |= {"cu_seqlens_q": boundaries(batch.lengths_q), "cu_seqlens_k": boundaries(batch.lengths_k)}
    o, lse = call(place, numpy.concatenate(batch.q), arrays, mask=ja.mask.causal(), return_lse=True)
    batch.check(fetch(o), fetch(lse), keep=causal)


def test_dense_cache_with_lengths_and_leftpad(rng, place, fetch):
    pads, lengths = [3, 0, 10], [50, 1, 10]  # the last request has no keys
    batch = requests(rng, [2, 2, 2], [n - p for n, p in zip(lengths, pads)])
    k, v = (numpy.full((3, 64, 2, 64), numpy.nan, BF16) for _ in range(2))
    for b in range(3):
        k[b, pads[b] : lengths[b]], v[b, pads[b] : lengths[b]] = batch.k[b], batch.v[b]
    arrays = {"k": k, "v": v, "seqused_k": int32(lengths), "cache_leftpad": int32(pads)}
    o = call(place, numpy.stack(batch.q), arrays, mask=ja.mask.causal())
    batch.check(fetch(o).reshape(6, 8, 64), keep=causal)


def test_used_queries_alone_are_written(rng, place, fetch):
    batch = requests(rng, [2, 5], [30, 30])
    arrays = paged(rng, batch, 16) | {"cu_seqlens_q": int32([0, 4, 12]), "seqused_q": int32([2, 5])}
    q = numpy.zeros((14, 8, 64), BF16)
    q[0:2], q[4:9] = batch.q
    out = place(numpy.full_like(q, 7))
    o = fetch(call(place, q, arrays, out=out))
    batch.check(numpy.concatenate([o[0:2], o[4:9]]))
    assert (numpy.delete(o, [0, 1, *range(4, 9)], axis=0) == 7).all()


def test_sinks(rng, place, fetch):
    batch = requests(rng, [1, 3], [40, 0])
    sinks = rng.standard_normal(8).astype(numpy.float32)
    arrays = paged(rng, batch, 16) | {"cu_seqlens_q": boundaries(batch.lengths_q), "sinks": sinks}
    o, lse = call(place, numpy.concatenate(batch.q), arrays, return_lse=True)
    o, lse = fetch(o), fetch(lse)
    plain = exact_attention(batch.q[0][None], batch.k[0][None], batch.v[0][None])
    total = numpy.logaddexp(plain.lse[0, :, 0], sinks)
    assert numpy.abs(lse[:, 0] - total).max() < 1e-3
    assert numpy.abs(o[0] - plain.o[0, 0] * numpy.exp(plain.lse[0, :, 0] - total)[:, None]).max() < 0.01
    assert (o[1:] == 0).all() and numpy.abs(lse[:, 1:] - sinks[:, None]).max() < 1e-3


def window(b, h, i, j, seqlen_q, seqlen_k):
    place = i + seqlen_k - seqlen_q
    return (j <= place) & (j >= place - 20)


MASKS = [
    ("window", lambda: ja.mask.sliding_window(20, 0), window),
    ("inverse", lambda: ~ja.mask.causal(), lambda *at: ~causal(*at)),
    (
        "text",
        lambda: ja.mask.text("return (q + seqlen_kv - seqlen_q - k) % 3 != h % 2;", name="stripes"),
        lambda b, h, i, j, m, n: numpy.fmod(i + n - m - j, 3) != h % 2,  # C++'s remainder has the sign of the dividend
    ),
]


@pytest.mark.parametrize("name, mask, keep", some(MASKS))
def test_masks_see_positions_of_their_own_request(rng, place, fetch, name, mask, keep):
    batch = requests(rng, [1, 9, 3], [130, 20, 64])
    arrays = paged(rng, batch, 16) | {"cu_seqlens_q": boundaries(batch.lengths_q)}
    o, lse = call(place, numpy.concatenate(batch.q), arrays, mask=mask(), return_lse=True)
    batch.check(fetch(o), fetch(lse), keep=keep)


def test_scores_see_the_head_of_their_row(rng, place, fetch):
    batch = requests(rng, [1, 5], [77, 30])
    slopes = (0.5 ** numpy.arange(1, 9)).astype(numpy.float32)
    arrays = paged(rng, batch, 16) | {"cu_seqlens_q": boundaries(batch.lengths_q)}
    o = call(
        place,
        numpy.concatenate(batch.q),
        arrays,
        mask=ja.mask.causal(),
        score=ja.score.alibi(),
        tensors={"alibi_slopes": place(slopes)},
    )
    batch.check(
        fetch(o), keep=causal, score=lambda s, b, h, i, j, m, n: s - slopes[h] * numpy.abs(i + n - m - j)
    )


def test_bits_do_not_depend_on_pages(rng, place, fetch):
    batch = requests(rng, [1, 4], [200, 90])
    results = []
    for page_size in (8, 16, 64):  # of 8 and more keys: the same family on every GPU
        arrays = paged(rng, batch, page_size) | {"cu_seqlens_q": boundaries(batch.lengths_q)}
        results.append(fetch(call(place, numpy.concatenate(batch.q), arrays, mask=ja.mask.causal())))
    assert all((result == results[0]).all() for result in results)


@pytest.mark.parametrize("num_splits", [1, 2, 5])
def test_splits(rng, place, fetch, num_splits):
    batch = requests(rng, [1, 2], [900, 60], heads_kv=1)
    arrays = paged(rng, batch, 16) | {"cu_seqlens_q": boundaries(batch.lengths_q)}
    o = call(place, numpy.concatenate(batch.q), arrays, num_splits=num_splits)
    batch.check(fetch(o))


@pytest.mark.parametrize("kv_dtype", [None, "fp8_e4m3"])
@pytest.mark.parametrize(
    "config",
    some(
        [
            "family=forward_split_kv",
            "family=forward_split_kv copies=tma row_warps=1 key_warps=2 tile_kv=64",
            "family=forward_split_cluster",
            "family=forward_split_wgmma tile_rows=64 tile_kv=32 stages=1",
            "family=forward_split_wgmma tile_rows=64 tile_kv=32 stages=3",
            "family=forward_wgmma tile_q=64 tile_kv=64 output=direct",
        ]
    ),
)
def test_tiles_without_keys_between_others(rng, place, fetch, config, kv_dtype):
    """Queries before the first key, and requests without any: blocks have several of them, one after another."""
    lengths_q, lengths_k = [1, 300, 1, 1, 1, 200, 1], [70, 20, 5, 0, 40, 30, 64]
    batch = cached(rng, lengths_q, lengths_k, "fp8_e4m3", "none")
    arrays = {name: numpy.concatenate(codes) for name, codes in batch.codes.items()}
    if kv_dtype is None:
        arrays = {name: codes.astype(BF16) for name, codes in arrays.items()}
    elif "wgmma" in config:  # the cluster and forward_split_kv read what is stored
        config += " stages_stored=1" + " converter_warps=4" * config.startswith("family=forward_wgmma")
    spec = ja.AttentionSpec(head_dim=64, gqa_ratio=4, sequences_q="varlen", sequences_kv="varlen",
                            kv_dtype=kv_dtype, mask=ja.mask.causal())
    if config != "family=forward_split_kv" and ja.devices()[0].arch != "sm_90a":
        pytest.skip("kernels of sm_90a")
    arrays |= {"cu_seqlens_q": boundaries(lengths_q), "cu_seqlens_k": boundaries(lengths_k)}
    arrays = {name: place(array) for name, array in arrays.items()}
    q, k, v = place(numpy.concatenate(batch.q)), arrays.pop("k"), arrays.pop("v")
    o, lse = ja.prepare(spec, config=config)(q, k, v, return_lse=True, num_splits=2, **arrays)
    batch.check(fetch(o), fetch(lse), keep=causal)


def test_wild_values_on_the_device_read_and_write_nothing_else(rng, place, fetch):
    batch = requests(rng, [4, 4], [32, 32])
    arrays = paged(rng, batch, 16) | {"cu_seqlens_q": int32([-5, 4, 1 << 30])}
    arrays["seqused_k"] = int32([1 << 30, -7])
    out = place(numpy.full((8, 8, 64), 7, BF16))
    o, lse = call(place, numpy.concatenate(batch.q), arrays, return_lse=True, out=out)
    o = fetch(o)
    exact = exact_attention(batch.q[0][None], batch.k[0][None], batch.v[0][None])
    exact.check(o[None, :4])  # a length beyond the table is the table's
    assert (o[4:] == 0).all() and numpy.isneginf(fetch(lse)[:, 4:]).all()  # a negative one is 0


def test_pages_that_do_not_exist_are_zeros(rng, place, fetch):
    batch = requests(rng, [1], [40])
    arrays = paged(rng, batch, 16) | {"cu_seqlens_q": int32([0, 1])}
    arrays["page_table"][0, 1] = 1 << 30
    batch.k[0][16:32] = batch.v[0][16:32] = 0
    batch.check(fetch(call(place, numpy.concatenate(batch.q), arrays)))


def test_empty_batches(place, fetch):
    q, pages = numpy.zeros((0, 4, 64), BF16), numpy.zeros((3, 16, 2, 64), BF16)
    arrays = {"k": pages, "v": pages, "seqused_k": int32([]), "page_table": numpy.zeros((0, 2), numpy.int32)}
    assert fetch(call(place, q, arrays | {"cu_seqlens_q": int32([0])})).shape == (0, 4, 64)
    arrays = {"k": pages, "v": pages, "seqused_k": int32([0]), "page_table": numpy.zeros((1, 0), numpy.int32)}
    o = call(place, numpy.ones((2, 4, 64), BF16), arrays | {"cu_seqlens_q": int32([0, 2])})
    assert (fetch(o) == 0).all()


def refused(place, argument, text, **changes):
    arrays = {
        "k": numpy.zeros((3, 16, 2, 64), BF16),
        "v": numpy.zeros((3, 16, 2, 64), BF16),
        "cu_seqlens_q": int32([0, 2]),
        "seqused_k": int32([5]),
        "page_table": int32([[0, 1]]),
    }
    arrays |= changes
    options = {name: arrays.pop(name) for name in ("num_splits",) if name in arrays}
    q = arrays.pop("q", numpy.zeros((2, 4, 64), BF16))
    arrays = {name: array for name, array in arrays.items() if array is not None}
    with pytest.raises(ja.errors.InvalidArgumentError, match=text) as caught:
        call(place, q, arrays, **options)
    assert caught.value.field == argument


def test_refusals_name_the_argument(place):
    refused(place, "page_table", "is fp32; it must be int32", page_table=numpy.zeros((1, 2), numpy.float32))
    refused(place, "page_table", "batch = 2; it must be 1", page_table=int32([[0, 1], [0, 1]]))
    refused(place, "seqused_k", "batch = 2; it must be 1", seqused_k=int32([5, 5]))
    refused(place, "seqused_k", "1 dimensions|dimensions", seqused_k=int32([[5]]))
    refused(place, "cu_seqlens_q", "has no element", cu_seqlens_q=int32([]))
    refused(place, "q", "3 beside cu_seqlens", q=numpy.zeros((1, 2, 4, 64), BF16))
    refused(place, "v", "page_size = 8; it must be 16", v=numpy.zeros((3, 8, 2, 64), BF16))
    refused(place, "k", "has pages of no row", k=numpy.zeros((3, 0, 2, 64), BF16), v=numpy.zeros((3, 0, 2, 64), BF16))
    refused(place, "sinks", "heads = 3; it must be 4", sinks=numpy.zeros(3, numpy.float32))
    refused(place, "page_table", "not both", cu_seqlens_k=int32([0, 5]), k=numpy.zeros((5, 2, 64), BF16),
            v=numpy.zeros((5, 2, 64), BF16))
    refused(place, "num_splits", "is -1", num_splits=-1)


def test_a_given_config_reads_lengths_or_is_refused(rng, place, fetch):
    batch = requests(rng, [1, 1], [20, 40])
    k, v = (numpy.full((2, 64, 2, 64), numpy.nan, BF16) for _ in range(2))
    for b in range(2):
        k[b, : batch.lengths_k[b]], v[b, : batch.lengths_k[b]] = batch.k[b], batch.v[b]
    arrays = [place(numpy.stack(batch.q)), place(k), place(v)]
    used = place(int32(batch.lengths_k))
    spec = ja.AttentionSpec(head_dim=64, gqa_ratio=4)
    dense = ja.prepare(spec, config="family=forward_mma_sync tile_q=64 tile_kv=32 warps=4")
    with pytest.raises(ja.errors.InvalidArgumentError, match="not read by kernels of family=forward_mma_sync") as caught:
        dense(*arrays, seqused_k=used)
    assert caught.value.field == "seqused_k"
    split = ja.prepare(spec, config="family=forward_split_kv")
    batch.check(fetch(split(*arrays, seqused_k=used)).reshape(2, 8, 64))


def test_prepared_calls(rng, place, fetch):
    batch = requests(rng, [1, 3], [70, 33])
    arrays = {name: place(array) for name, array in paged(rng, batch, 16).items()}
    arrays["cu_seqlens_q"] = place(boundaries(batch.lengths_q))
    spec = ja.AttentionSpec(
        head_dim=64, gqa_ratio=4, sequences_q="varlen", sequences_kv="paged", page_size=16, mask=ja.mask.causal()
    )
    q = place(numpy.concatenate(batch.q))
    prepared = ja.prepare(spec, q, **arrays)
    batch.check(fetch(prepared(q, **arrays)), keep=causal)
    assert prepared.kernel(q, **arrays).config["family"] in (
        "forward_split_kv", "forward_split_wgmma", "forward_split_cluster")
    with pytest.raises(ja.errors.InvalidArgumentError, match="without q, k and v"):
        ja.prepare(spec, page_table=arrays["page_table"])



def test_checked_calls_name_the_element(rng, place, fetch):
    batch = requests(rng, [1, 3], [70, 33])
    spec = ja.AttentionSpec(
        head_dim=64, gqa_ratio=4, sequences_q="varlen", sequences_kv="paged", page_size=16, mask=ja.mask.causal(),
        checked=True,
    )
    attention = ja.prepare(spec)
    arrays = paged(rng, batch, 16) | {"cu_seqlens_q": boundaries(batch.lengths_q)}
    pages = len(arrays["k"])

    def compute(**changes):
        return attention(
            place(numpy.concatenate(batch.q)), **{n: place(array) for n, array in (arrays | changes).items()}
        )

    batch.check(fetch(compute()), keep=causal)  # pages that no key needs hold anything
    wild = arrays["page_table"].copy()
    wild[1, 2] = pages
    wild_page = rf"element \[1, 2\], of request 1, is {pages}; it must be from 0 to {pages - 1}"
    for changes, field, text in (
        ({"page_table": wild}, "page_table", wild_page),
        ({"seqused_k": int32([70, 10**6])}, "seqused_k", r"element \[1\], of request 1, is 1000000"),
        ({"cu_seqlens_q": int32([0, 3, 1])}, "cu_seqlens_q", r"element \[2\], of request 1, is 1; it must be from 3 to 4"),
    ):
        with pytest.raises(ja.errors.InvalidArgumentError, match=text) as caught:
            compute(**changes)
        assert caught.value.field == field
    batch.check(fetch(compute()), keep=causal)


def test_emulated_devices_tell_of_pages_that_do_not_exist(rng, place, emulated, caplog):
    if not emulated:
        pytest.skip("a GPU looks where it is asked to")
    batch = requests(rng, [1], [40])
    arrays = paged(rng, batch, 16) | {"cu_seqlens_q": int32([0, 1])}
    arrays["page_table"][0, 1] = 1 << 30
    call(place, numpy.concatenate(batch.q), arrays)
    assert "page_table: element [0, 1], of request 0, is 1073741824" in caplog.text
