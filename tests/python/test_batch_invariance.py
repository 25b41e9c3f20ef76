"""With split_keys the bits of a request depend on the request alone."""

import jit_attention as ja
import numpy
import pytest
from request_batches import BF16, boundaries, call, causal, paged, requests
from seeded import paired, some

SHARE = 9  # kernels take long to compile

SPAN = 64


def bits(array):
    return numpy.ascontiguousarray(array).view(numpy.uint8)


class Engine:
    """Computes chosen queries of requests in a call each, over pages that lie anywhere, and keeps the bits."""

    def __init__(self, rng, place, fetch, page_size=16, **options):
        self.rng, self.place, self.page_size = rng, place, page_size
        self.fetch = fetch
        self.options = dict(mask=ja.mask.causal(), split_keys=SPAN) | options

    def __call__(self, pieces, *, room=0, pads=None, **changes):
        """`pieces`: of each request q, k, v and the range of queries that are computed, all keys before its end seen.
        `room`: rows of the page table beyond what is needed. `pads`: rows of NaN before the keys of each. Returns o (queries, heads, head_dim) and lse (heads,
        queries) of each."""
        qs = [q[begin:end] for q, _, _, begin, end in pieces]
        keys = [len(k) - (len(q) - end) for q, k, _, _, end in pieces]
        batch = type("", (), {})()
        batch.k = [k[:n] for (_, k, _, _, _), n in zip(pieces, keys)]
        batch.v = [v[:n] for (_, _, v, _, _), n in zip(pieces, keys)]
        if pads is not None:
            batch.k, batch.v = ([numpy.concatenate([numpy.full_like(x, numpy.nan, shape=(pad, *x.shape[1:])), x])
                                 for pad, x in zip(pads, xs)] for xs in (batch.k, batch.v))
            keys = [pad + n for pad, n in zip(pads, keys)]
        batch.lengths_k = keys
        arrays = paged(self.rng, batch, self.page_size, spare=int(self.rng.integers(1, 9)))
        table = arrays["page_table"]
        arrays["page_table"] = numpy.pad(table, ((0, 0), (0, room)), constant_values=-1)
        arrays["cu_seqlens_q"] = boundaries([len(q) for q in qs])
        if pads is not None:
            arrays["cache_leftpad"] = numpy.asarray(pads, numpy.int32)
        o, lse = call(self.place, numpy.concatenate(qs), arrays, return_lse=True, **(self.options | changes))
        o, lse = self.fetch(o), self.fetch(lse)
        ends = arrays["cu_seqlens_q"]
        return [(o[a:b], lse[:, a:b]) for a, b in zip(ends, ends[1:])]


def one(batch, b, begin=0, end=None):
    q = batch.q[b]
    return q, batch.k[b], batch.v[b], begin, len(q) if end is None else end


def same(result, expected):
    for got, wanted in zip(result, expected):
        assert not numpy.isnan(got).any()
        assert (bits(got) == bits(wanted)).all(), f"differ by {numpy.abs(got - wanted).max()}"


@pytest.fixture
def engine(rng, place, fetch):
    return Engine(rng, place, fetch)


def test_alone_and_in_batches(rng, engine):
    batch = requests(rng, [1, 5, 1, 40, 1, 2], [700, 300, 64, 130, 1, 1500])
    alone = [engine([one(batch, b)])[0] for b in range(6)]
    for order in ([0, 1, 2, 3, 4, 5], [5, 3, 0], [1, 0, 0, 0, 0, 0, 5]):
        for b, result in zip(order, engine([one(batch, b) for b in order])):
            same(result, alone[b])
    o = numpy.concatenate([o for o, _ in alone])
    lse = numpy.concatenate([lse for _, lse in alone], axis=1)
    batch.check(o, lse, keep=causal)


def test_rows_before_the_cache(rng, engine):
    """Which TMA does not read in pages: another kernel serves such calls, with the same bits."""
    batch = requests(rng, [1, 5, 1], [300, 170, 64])
    alone = [engine([one(batch, b)], pads=[pad])[0] for b, pad in enumerate((3, 0, 20))]
    for b, result in enumerate(alone):
        same(result, engine([one(batch, b)])[0])
    for order, pads in (([0, 1, 2], [0, 7, 1]), ([2, 0], [16, 33])):
        for b, result in zip(order, engine([one(batch, b) for b in order], pads=pads)):
            same(result, alone[b])
    o = numpy.concatenate([o for o, _ in alone])
    lse = numpy.concatenate([lse for _, lse in alone], axis=1)
    batch.check(o, lse, keep=causal)


def test_room_and_splits(rng, engine):
    batch = requests(rng, [1, 3], [900, 200], heads_kv=1)
    alone = [engine([one(batch, b)])[0] for b in range(2)]
    for options in ({"room": 100}, {"num_splits": 1}, {"num_splits": 3}, {"room": 1, "num_splits": 7}):
        for b, result in enumerate(engine([one(batch, b) for b in range(2)], **options)):
            same(result, alone[b])


@pytest.mark.parametrize("mask", some(["causal", "window"]))
def test_prefill_in_chunks(rng, place, fetch, mask):
    masks = {"causal": ja.mask.causal(), "window": ja.mask.sliding_window(150, 0)}
    engine = Engine(rng, place, fetch, mask=masks[mask])
    batch = requests(rng, [170, 1], [270, 300])  # the first 100 keys are another call's
    whole = engine([one(batch, 0)])[0]
    for size in (1, 37, 64, 128):
        first = 0 if size > 1 else 160
        for begin in range(first, 170, size):
            end = min(begin + size, 170)
            pieces = [one(batch, 1), one(batch, 0, begin, end)][size % 2 :]  # with a neighbor and without
            o, lse = engine(pieces)[-1]
            same((o, lse), (whole[0][begin:end], whole[1][:, begin:end]))
    keep = {"causal": causal, "window": lambda b, h, i, j, m, n: causal(b, h, i, j, m, n) & (j >= i + n - m - 150)}
    other = engine([one(batch, 1)])[0]
    batch.check(numpy.concatenate([whole[0], other[0]]), numpy.concatenate([whole[1], other[1]], 1), keep=keep[mask])


def test_cached_prefixes(rng, engine):
    # Two requests begin with the same 130 keys, whose pages one of them has computed; the other has only the rest of
    # its queries left.
    batch = requests(rng, [180], [180])
    whole = engine([one(batch, 0)])[0]
    rest = engine([one(batch, 0, 130), one(batch, 0, 100, 131)])
    same(rest[0], (whole[0][130:], whole[1][:, 130:]))
    same(rest[1], (whole[0][100:131], whole[1][:, 100:131]))


@pytest.mark.parametrize("page_size", some([8, 16, 256]))
def test_pages(rng, place, fetch, engine, page_size):
    batch = requests(rng, [1, 4], [200, 90])
    expected = engine([one(batch, b) for b in range(2)])
    for b, result in enumerate(Engine(rng, place, fetch, page_size)([one(batch, b) for b in range(2)])):
        same(result, expected[b])


@pytest.mark.parametrize("sizes, dtype", some(paired([(1, 64), (7, 128), (24, 40), (2, 256)], ["bf16", "fp16"])))
def test_shapes(rng, engine, sizes, dtype):
    ratio, head_dim = sizes
    dtype = BF16 if dtype == "bf16" else numpy.float16
    batch = requests(rng, [1, 40, 2], [300, 120, 200], ratio=ratio, head_dim=head_dim, dtype=dtype)
    together = engine([one(batch, b) for b in range(3)])
    for b in range(3):
        same(engine([one(batch, b)])[0], together[b])
    same(engine([one(batch, 1, 17, 40)])[0], (together[1][0][17:], together[1][1][:, 17:]))
    batch.check(numpy.concatenate([o for o, _ in together]), keep=causal)


def test_sinks_and_scores(rng, engine):
    batch = requests(rng, [1, 9], [700, 90])
    sinks = rng.standard_normal(8).astype(numpy.float32)
    slopes = (0.5 ** numpy.arange(1, 9)).astype(numpy.float32)
    options = dict(
        sinks=engine.place(sinks),
        score=ja.score.alibi(),
        tensors={"alibi_slopes": engine.place(slopes)},
    )
    together = engine([one(batch, b) for b in range(2)], **options)
    for b in range(2):
        same(engine([one(batch, b)], **options)[0], together[b])


def test_varlen_keys_and_dense_queries(rng, place, fetch):
    batch = requests(rng, [2, 2], [300, 190])
    arrays = {"k": numpy.concatenate(batch.k), "v": numpy.concatenate(batch.v)}
    arrays["cu_seqlens_k"] = boundaries(batch.lengths_k)
    together = fetch(call(place, numpy.stack(batch.q), arrays, mask=ja.mask.causal(), split_keys=SPAN))
    for b in range(2):
        own = {"k": batch.k[b], "v": batch.v[b], "cu_seqlens_k": boundaries([batch.lengths_k[b]])}
        alone = fetch(call(place, batch.q[b][None], own, mask=ja.mask.causal(), split_keys=SPAN))
        assert (bits(alone[0]) == bits(together[b])).all()


def test_dense_calls(rng, place, fetch):
    q, k, v = (rng.standard_normal((3, n, h, 64)).astype(BF16) for n, h in ((130, 4), (200, 2), (200, 2)))
    o = fetch(ja.attention(*map(place, (q, k, v)), mask=ja.mask.causal(), split_keys=128))
    for b in range(3):
        alone = fetch(ja.attention(*(place(x[b : b + 1]) for x in (q, k, v)), mask=ja.mask.causal(), split_keys=128))
        assert (bits(alone[0]) == bits(o[b])).all()
    last = fetch(ja.attention(place(q[:1, -1:]), place(k[:1]), place(v[:1]), mask=ja.mask.causal(), split_keys=128))
    assert (bits(last[0]) == bits(o[0, -1:])).all()


def test_empty_requests(rng, engine):
    batch = requests(rng, [1, 3, 0, 2], [100, 0, 5, 1])  # the last one's first query sees no key
    together = engine([one(batch, b) for b in range(4)])
    same(together[0], engine([one(batch, 0)])[0])
    assert (together[1][0] == 0).all() and numpy.isneginf(together[1][1]).all()
    assert (together[3][0][0] == 0).all() and numpy.isneginf(together[3][1][:, 0]).all()


def test_kernels_of_calls_have_tiles_alike(rng, place):
    spec = ja.AttentionSpec(head_dim=64, gqa_ratio=4, sequences_q="varlen", sequences_kv="paged", page_size=16,
                            split_keys=256)
    prepared = ja.prepare(spec)
    configs = [prepared.kernel().config]
    for lengths_q, lengths_k in (([1], [10]), ([2000] * 8, [2000] * 8), ([1] * 50, [2000] * 50)):
        batch = requests(rng, lengths_q, lengths_k)
        arrays = {name: place(array) for name, array in paged(rng, batch, 16).items()}
        arrays["cu_seqlens_q"] = place(boundaries(lengths_q))
        configs.append(prepared.kernel(place(numpy.concatenate(batch.q)), **arrays).config)
    is_hopper = str(ja.devices()[0].arch).startswith("sm_90")
    assert {config["tile_kv"] for config in configs} == {128 if is_hopper else 64}
    families = {"forward_split_wgmma", "forward_wgmma"} if is_hopper else {"forward_split_kv"}
    assert {config["family"] for config in configs} == families


@pytest.mark.parametrize("split_keys", [-64, 32, 100])
def test_refused(split_keys):
    with pytest.raises(ja.errors.InvalidSpecError, match="multiple of 64"):
        ja.AttentionSpec(split_keys=split_keys)


def test_tiles_that_lie_in_two_spans_are_refused():
    spec = ja.AttentionSpec(head_dim=64, kv_dtype="fp8_e4m3", split_keys=128)  # of one config, whatever it is
    with pytest.raises(ja.errors.NoValidConfigError, match="multiple of tile_kv"):
        ja.compile(spec, "sm_80", config="family=forward_split_kv tile_kv=96 key_warps=2")
