"""Calls with requests of many queries and of few: two kernels share them, one of them in two halves. Against double
precision, request by request. In pages that are nobody's lie NaNs, and results are 7 before a call."""

import jit_attention as ja
import numpy
import pytest
from exact_attention import exact_attention
from request_batches import BF16, boundaries, causal, int32, paged, requests
from seeded import some

SHARE = 12  # kernels take long to compile

FEW = 64  # a request of more queries has many
# Both sides of the boundary, requests without queries and without keys, and the most that a tile of rows or queries holds.
LENGTHS_Q = [200, 1, FEW + 1, FEW, 0, 150, 3, 1, 128]
LENGTHS_K = [290, 700, FEW + 1, 100, 30, 90, 3, 0, 500]


@pytest.fixture(autouse=True)
def _on_hopper():
    if ja.devices()[0].arch != "sm_90a":
        pytest.skip("calls take two kernels on sm_90a")


class Engine:
    """Calls of one spec, and what was written where."""

    def __init__(self, place, fetch, arrays, *, config=None, ratio=4, head_dim=64, head_dim_v=None, **spec):
        self.place, self.fetch, self.arrays = place, fetch, arrays
        spec |= {"sequences_q": "varlen", "gqa_ratio": ratio, "head_dim": head_dim,
                 "head_dim_v": head_dim_v or head_dim}
        if "page_table" in arrays:
            spec |= {"sequences_kv": "paged", "page_size": arrays["k"].shape[1]}
        elif "cu_seqlens_k" in arrays:
            spec |= {"sequences_kv": "varlen"}
        self.prepared = ja.prepare(ja.AttentionSpec(sinks="sinks" in arrays, **spec), config=config)

    def arguments(self, q, lengths_q, **options):
        places = {name: self.place(array) for name, array in (self.arrays | options).items()
                  if isinstance(array, numpy.ndarray)}
        places |= {name: value for name, value in options.items() if not isinstance(value, numpy.ndarray)}
        places["cu_seqlens_q"] = self.place(boundaries(lengths_q))
        return self.place(q), places.pop("k"), places.pop("v"), places

    def __call__(self, q, lengths_q, **options):
        q, k, v, places = self.arguments(q, lengths_q, **options)
        out = self.place(numpy.full((*q.shape[:2], v.shape[-1]), 7, BF16))
        o, lse = self.prepared(q, k, v, **places, out=out, return_lse=True)
        return self.fetch(o), self.fetch(lse)

    def kernel(self, q, lengths_q):
        q, k, v, places = self.arguments(q, lengths_q)
        return self.prepared.kernel(q, k, v, **places)


def is_mixed(kernel):
    return "requests=few_queries" in repr(kernel) and "requests=many_queries" in kernel.why


def mixed_case(rng, place, fetch, page_size=16, **spec):
    widths = {name: spec[name] for name in ("ratio", "head_dim", "head_dim_v") if name in spec}
    batch = requests(rng, LENGTHS_Q, LENGTHS_K, **widths)
    return batch, numpy.concatenate(batch.q), Engine(place, fetch, paged(rng, batch, page_size), **spec)


@pytest.mark.parametrize("page_size", some([8, 48]))
def test_pages(rng, place, fetch, page_size):
    batch, q, engine = mixed_case(rng, place, fetch, page_size, mask=ja.mask.causal())
    assert is_mixed(engine.kernel(q, LENGTHS_Q))
    batch.check(*engine(q, LENGTHS_Q), keep=causal)


@pytest.mark.parametrize("ratio, head_dim, head_dim_v", some([(8, 64, 64), (3, 80, 128)]))
def test_heads(rng, place, fetch, ratio, head_dim, head_dim_v):
    batch, q, engine = mixed_case(rng, place, fetch, ratio=ratio, head_dim=head_dim, head_dim_v=head_dim_v)
    assert is_mixed(engine.kernel(q, LENGTHS_Q))
    batch.check(*engine(q, LENGTHS_Q))


def test_varlen_keys(rng, place, fetch):
    batch = requests(rng, LENGTHS_Q, LENGTHS_K)
    arrays = {"k": numpy.concatenate(batch.k), "v": numpy.concatenate(batch.v), "cu_seqlens_k": boundaries(LENGTHS_K)}
    batch.check(*Engine(place, fetch, arrays, mask=ja.mask.causal())(numpy.concatenate(batch.q), LENGTHS_Q), keep=causal)


def test_either_kind_alone(rng, place, fetch):
    """The device knows lengths: a call may have no request of one kind, or queries of neither. Its bits are those that
    each request has in the whole batch: its kernel sees no other one."""
    batch, q, engine = mixed_case(rng, place, fetch, mask=ja.mask.causal())
    together = engine(q, LENGTHS_Q)
    begins = boundaries(LENGTHS_Q)
    kinds = [lambda n: n > FEW, lambda n: n <= FEW, lambda n: False]
    for has_queries in kinds:
        used = int32([n if has_queries(n) else 0 for n in LENGTHS_Q])
        alone = engine(q, LENGTHS_Q, seqused_q=used)
        rows = numpy.concatenate([numpy.arange(b, b + n) for b, n in zip(begins, used)]).astype(int)
        assert (alone[0][rows] == together[0][rows]).all() and (alone[1][:, rows] == together[1][:, rows]).all()
        assert (numpy.delete(alone[0], rows, axis=0) == 7).all()
    again = engine(q, LENGTHS_Q)  # mailboxes and counters are left as they were
    assert all((a == b).all() for a, b in zip(again, together))


def test_zero_padding(rng, place, fetch):
    batch, q, engine = mixed_case(rng, place, fetch)
    used = int32([199, 1, 60, 0, 0, 150, 2, 1, 128])
    o, lse = engine(q, LENGTHS_Q, seqused_q=used, zero_padding=True)
    begins = boundaries(LENGTHS_Q)
    rows = numpy.concatenate([numpy.arange(b, b + n) for b, n in zip(begins, used)]).astype(int)
    assert (numpy.delete(o, rows, axis=0) == 0).all() and numpy.isneginf(numpy.delete(lse, rows, axis=1)).all()
    batch.q = [x[:n] for x, n in zip(batch.q, used)]
    batch.check(o[rows], lse[:, rows])


def test_sinks(rng, place, fetch):
    batch = requests(rng, LENGTHS_Q, LENGTHS_K)
    sinks = rng.standard_normal(8).astype(numpy.float32)
    o, lse = Engine(place, fetch, paged(rng, batch, 16) | {"sinks": sinks})(numpy.concatenate(batch.q), LENGTHS_Q)
    for i in (0, 1):  # one of each kernel
        rows = slice(sum(LENGTHS_Q[:i]), sum(LENGTHS_Q[:i + 1]))
        plain = exact_attention(batch.q[i][None], batch.k[i][None], batch.v[i][None])
        total = numpy.logaddexp(plain.lse[0], sinks[:, None])
        assert numpy.abs(lse[:, rows] - total).max() < 1e-3
        assert numpy.abs(o[rows] - plain.o[0] * numpy.exp(plain.lse[0] - total).T[..., None]).max() < 0.02


@pytest.mark.parametrize("num_splits", some([1, 3]))
def test_splits(rng, place, fetch, num_splits):
    batch, q, engine = mixed_case(rng, place, fetch, mask=ja.mask.causal())
    batch.check(*engine(q, LENGTHS_Q, num_splits=num_splits), keep=causal)


def test_one_long_request_of_few_queries(rng, place, fetch):
    """Its keys are shared by the blocks of both halves."""
    lengths_q, lengths_k = [300, 2], [300, 6000]
    batch = requests(rng, lengths_q, lengths_k, heads_kv=1)
    engine = Engine(place, fetch, paged(rng, batch, 16))
    batch.check(*engine(numpy.concatenate(batch.q), lengths_q))


def test_many_requests(rng, place, fetch):
    """More than a warp looks at at once."""
    lengths_q = rng.permutation([*rng.integers(0, 4, 70), 65, 300, 64])
    lengths_k = lengths_q + rng.integers(0, 50, 73)
    batch = requests(rng, lengths_q, lengths_k, heads_kv=1)
    engine = Engine(place, fetch, paged(rng, batch, 16), mask=ja.mask.causal())
    assert is_mixed(engine.kernel(numpy.concatenate(batch.q), lengths_q))
    batch.check(*engine(numpy.concatenate(batch.q), lengths_q), keep=causal)


def test_masks_of_requests(rng, place, fetch):
    batch, q, engine = mixed_case(rng, place, fetch, mask=ja.mask.causal_per_request())
    is_causal = int32(rng.integers(0, 2, len(LENGTHS_Q)))
    result = engine(q, LENGTHS_Q, tensors={"is_causal": place(is_causal)})
    batch.check(*result, keep=lambda b, *at: numpy.full(numpy.broadcast(*at[1:3]).shape, True) if not is_causal[b]
                else causal(b, *at))


def test_checked(rng, place, fetch):
    for request in some([0, 1]):  # each kernel looks at the pages of its own
        batch, q, engine = mixed_case(rng, place, fetch, checked=True)
        engine.arrays["page_table"][request, 2] = -5
        with pytest.raises(ja.InvalidArgumentError, match=rf"page_table: element \[{request}, 2\]"):
            engine(q, LENGTHS_Q)


def test_calls_of_one_kernel(rng, place, fetch):
    """Requests of one query each, too few to be worth it, a single request, and split_keys; with a given config."""
    calls = [([1] * 300, {}), ([4] * 32, {}), ([600], {}), ([700, 700], {}), ([300, 1], {"split_keys": 512}),
             ([300, 1], {"config": "family=forward_split_wgmma tile_rows=64 tile_kv=64"})]
    for lengths_q, spec in some(calls):
        batch = requests(rng, lengths_q, lengths_q, heads_kv=1)
        engine = Engine(place, fetch, paged(rng, batch, 16), **spec)
        kernel = engine.kernel(numpy.concatenate(batch.q), lengths_q)
        assert "requests=few" not in repr(kernel) and "requests=many" not in repr(kernel)


def test_other_kernels_serve_what_tma_cannot_map(rng, place, fetch):
    """Pages of 7 rows: no kernel for requests of many queries reads them, so that one computes all."""
    batch, q, engine = mixed_case(rng, place, fetch, 7)
    assert "forward_split_kv" in repr(engine.kernel(q, LENGTHS_Q))
    batch.check(*engine(q, LENGTHS_Q))


def test_configs_of_half_a_call_are_refused():
    spec = ja.AttentionSpec(head_dim=64, sequences_q="varlen")
    with pytest.raises(ja.Error, match="requests must be all"):
        ja.prepare(spec, config="family=forward_wgmma tile_q=128 requests=many_queries")
