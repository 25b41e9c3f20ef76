"""The mass of each key: its probabilities summed over queries."""

import jit_attention as ja
import ml_dtypes
import numpy
import pytest
from exact_attention import random_qkv
from request_batches import boundaries, causal, paged, requests

SHARE = 9  # kernels take long to compile


def exact_mass(q, k, lse, *, keep=None, score=None, softmax_scale=None, heads="kv"):
    """(batch, heads, seqlen_kv) in double precision."""
    qs, ks = (x.astype(numpy.float64).transpose(0, 2, 1, 3) for x in (q, k))
    ratio = qs.shape[1] // ks.shape[1]
    scores = (q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale) * (
        qs @ numpy.repeat(ks, ratio, 1).transpose(0, 1, 3, 2))
    places = numpy.ogrid[tuple(slice(size) for size in scores.shape)]
    if score is not None:
        scores = score(scores, *places)
    if keep is not None:
        scores = numpy.where(numpy.broadcast_to(keep(*places), scores.shape), scores, -numpy.inf)
    # numpy.where: a query without keys has LSE −inf
    mass = numpy.exp(scores - numpy.where(numpy.isneginf(lse), numpy.inf, lse)[..., None]).sum(2)
    return mass if heads == "q" else mass.reshape(mass.shape[0], k.shape[2], ratio, k.shape[1]).sum(2)  # there may be no key


def check(mass, exact, fetch):
    mass = fetch(mass)
    assert mass.shape == exact.shape
    numpy.testing.assert_allclose(mass, exact, rtol=1e-5, atol=1e-6)


CASES = {
    "plain": dict(),
    "causal": dict(mask=ja.mask.causal(), keep=lambda b, h, i, j: j <= i - 20),  # the first 20 see no key
    "window": dict(mask=ja.mask.sliding_window(9, 3), keep=lambda b, h, i, j: (j >= i - 29) & (j <= i - 17)),
    "softcap": dict(score=ja.score.softcap(3), applied=lambda s, b, h, i, j: 3 * numpy.tanh(s / 3)),
    "text": dict(score=ja.score.text("return score + 0.25f * (q - k);", name="slope"),
                 applied=lambda s, b, h, i, j: s + 0.25 * (i - j)),
    "scale": dict(softmax_scale=0.4),
}


@pytest.mark.parametrize("heads", ["kv", "q"])
@pytest.mark.parametrize("case", CASES)
def test_dense(rng, place, fetch, case, heads):
    options = dict(CASES[case])
    keep, applied = options.pop("keep", None), options.pop("applied", None)
    head_dim = int(rng.choice([40, 64, 128, 200, 256]))
    q, k, v = random_qkv(rng, batch=2, seqlen_q=150, seqlen_kv=130, heads_q=4, heads_kv=2, head_dim=head_dim, dtype="bf16")
    _, lse = ja.attention(place(q), place(k), place(v), return_lse=True, **options)
    mass = ja.key_mass(place(q), place(k), lse, heads=heads, **options)
    exact = exact_mass(q, k, fetch(lse), keep=keep, score=applied, softmax_scale=options.get("softmax_scale"), heads=heads)
    check(mass, exact, fetch)
    again = ja.key_mass(place(q), place(k), lse, heads=heads, **options)
    numpy.testing.assert_array_equal(fetch(again), fetch(mass))


@pytest.mark.parametrize("mask", [None, ja.mask.causal()], ids=str)
def test_rows_that_tma_does_not_copy(rng, place, fetch, mask):
    q, k, v = random_qkv(rng, seqlen_q=150, seqlen_kv=150, heads_q=4, heads_kv=2, dtype="bf16")
    q, k, v = (numpy.pad(x, ((0, 0),) * 3 + ((0, 4),))[..., :64] for x in (q, k, v))
    _, lse = ja.attention(place(q), place(k), place(v), mask=mask, return_lse=True)
    keep = None if mask is None else lambda b, h, i, j: j <= i
    check(ja.key_mass(place(q), place(k), lse, mask=mask), exact_mass(q, k, fetch(lse), keep=keep), fetch)


def test_tensors_that_functors_read(rng, place, fetch):
    q, k, v = random_qkv(rng, seqlen_q=70, seqlen_kv=70, heads_q=2, dtype="fp16")
    tensors = {"bias": rng.standard_normal((1, 2, 70, 70)).astype(numpy.float32),
               "document_ids_q": rng.integers(0, 3, (1, 70)).astype(numpy.int32)}
    tensors["document_ids_kv"] = tensors["document_ids_q"].copy()
    ids = tensors["document_ids_q"]
    options = dict(mask=ja.mask.document(), score=ja.score.bias(), tensors={name: place(x) for name, x in tensors.items()})
    _, lse = ja.attention(place(q), place(k), place(v), return_lse=True, **options)
    exact = exact_mass(q, k, fetch(lse), keep=lambda b, h, i, j: ids[b, i] == ids[b, j],
                       score=lambda s, b, h, i, j: s + tensors["bias"][b, h, i, j])
    check(ja.key_mass(place(q), place(k), lse, **options), exact, fetch)


def test_padding_by_a_bias_has_no_mass(rng, place, fetch):
    """Queries all of whose scores are huge, which share their LSE with any number of keys."""
    q, k, v = random_qkv(rng, seqlen_q=40, seqlen_kv=50, heads_q=2, dtype="bf16")
    bias = numpy.zeros((1, 2, 40, 50), numpy.float32)
    bias[:, :, 30:] = -1e9
    options = dict(score=ja.score.bias(), tensors={"bias": place(bias)})
    _, lse = ja.attention(place(q), place(k), place(v), return_lse=True, **options)
    check(ja.key_mass(place(q), place(k), lse, **options), exact_mass(q[:, :30], k, fetch(lse)[..., :30]), fetch)


def test_requests(rng, place, fetch):
    lengths_q, lengths_k = [1, 140, 0, 3], [70, 140, 5, 130]
    batch = requests(rng, lengths_q, lengths_k)
    q, k, v = (place(numpy.concatenate(x)) for x in (batch.q, batch.k, batch.v))
    arrays = dict(cu_seqlens_q=place(boundaries(lengths_q)), cu_seqlens_k=place(boundaries(lengths_k)))
    sinks = place(numpy.ones(8, numpy.float32))
    _, lse = ja.attention(q, k, v, mask=ja.mask.causal(), sinks=sinks, return_lse=True, **arrays)
    out = place(numpy.full((2, sum(lengths_k)), numpy.nan, numpy.float32))
    assert ja.key_mass(q, k, lse, mask=ja.mask.causal(), out=out, **arrays) is out
    begin_q = begin_k = 0
    for own_q, own_k in zip(batch.q, batch.k):
        end_q, end_k = begin_q + len(own_q), begin_k + len(own_k)
        shift = len(own_k) - len(own_q)
        exact = exact_mass(own_q[None], own_k[None], fetch(lse)[None, :, begin_q:end_q],
                           keep=lambda b, h, i, j, shift=shift: j <= i + shift)
        check(fetch(out)[None, :, begin_k:end_k], exact, lambda x: x)
        begin_q, begin_k = end_q, end_k


PAGED = {
    "causal": dict(mask=ja.mask.causal(), keep=causal),
    "window": dict(mask=ja.mask.sliding_window(40), keep=lambda b, h, i, j, n, m: (j <= i + m - n) & (j >= i + m - n - 40)),
    "text": dict(score=ja.score.text("return score - 0.1f * k;", name="slope"), applied=lambda s, b, h, i, j: s - 0.1 * j),
}


@pytest.mark.parametrize("page_size", [16, 48, 128, 4, 1])
@pytest.mark.parametrize("case", PAGED)
def test_pages(rng, place, fetch, case, page_size):
    """Pages in any order, NaN around them, by wgmma (multiples of 8 rows) and by mma.sync; poisoned masses."""
    options = dict(PAGED[case])
    keep, applied = options.pop("keep", None), options.pop("applied", None)
    heads, head_dim = str(rng.choice(["kv", "q"])), int(rng.choice([40, 64, 128]))
    batch = requests(rng, [1, 140, 0, 3, 2], [290, 140, 5, 130, 0], head_dim=head_dim)
    arrays = {name: place(array) for name, array in paged(rng, batch, page_size).items()}
    k, v, q = arrays.pop("k"), arrays.pop("v"), place(numpy.concatenate(batch.q))
    cu_seqlens_q = place(boundaries(batch.lengths_q))
    sinks = place(rng.standard_normal(8).astype(numpy.float32))
    _, lse = ja.attention(q, k, v, cu_seqlens_q=cu_seqlens_q, sinks=sinks, return_lse=True, **arrays, **options)
    room = fetch(arrays["page_table"]).shape[1] * page_size
    out = place(numpy.full((5, 8 if heads == "q" else 2, room), numpy.nan, numpy.float32))
    assert ja.key_mass(q, k, lse, heads=heads, cu_seqlens_q=cu_seqlens_q, out=out, **arrays, **options) is out
    begin = 0
    for b, (own_q, own_k) in enumerate(zip(batch.q, batch.k)):
        lengths, end = (len(own_q), len(own_k)), begin + len(own_q)
        own_keep = keep and (lambda b, h, i, j, lengths=lengths: keep(b, h, i, j, *lengths))
        exact = exact_mass(own_q[None], own_k[None], fetch(lse)[None, :, begin:end], keep=own_keep, score=applied, heads=heads)
        check(fetch(out)[b : b + 1, :, : len(own_k)], exact, lambda x: x)
        assert (fetch(out)[b, :, len(own_k) :] == 0).all()
        begin = end
    again = ja.key_mass(q, k, lse, heads=heads, cu_seqlens_q=cu_seqlens_q, **arrays, **options)
    numpy.testing.assert_array_equal(fetch(again), fetch(out))


@pytest.mark.parametrize("page_size", [16, 1])
def test_dense_queries_over_whole_pages(rng, place, fetch, page_size):
    """Pages have the bits of dense keys; rows of pages that do not exist are keys of zeros, as in attention."""
    q, k, v = random_qkv(rng, batch=2, seqlen_q=20, seqlen_kv=144, heads_q=4, heads_kv=2, dtype="bf16")
    table = rng.permutation(2 * 144 // page_size).astype(numpy.int32).reshape(2, -1)
    table[1, 2] = [-1, 1 << 30][int(rng.integers(2))]
    k[1, 2 * page_size : 3 * page_size] = v[1, 2 * page_size : 3 * page_size] = 0
    pools = [numpy.zeros((table.size, page_size, 2, k.shape[-1]), k.dtype) for _ in range(2)]
    for pool, rows in zip(pools, (k, v)):
        for b, own in enumerate(table):
            for i, page in enumerate(own):
                if 0 <= page < len(pool):
                    pool[page] = rows[b, i * page_size : (i + 1) * page_size]
    _, lse = ja.attention(place(q), place(k), place(v), return_lse=True)
    mass = ja.key_mass(place(q), place(pools[0]), lse, page_table=place(table))
    check(mass, exact_mass(q, k, fetch(lse)), fetch)


def test_last_queries(rng, place, fetch):
    q, k, v = random_qkv(rng, seqlen_q=90, seqlen_kv=90, heads_q=2, dtype="bf16")
    _, lse = ja.attention(place(q), place(k), place(v), mask=ja.mask.causal(), return_lse=True)
    mass = ja.key_mass(place(q)[:, -16:], place(k), lse[..., -16:], mask=ja.mask.causal())
    exact = exact_mass(q[:, -16:], k, fetch(lse)[..., -16:], keep=lambda b, h, i, j: j <= i + 74)
    check(mass, exact, fetch)
    assert abs(fetch(mass).sum() - 2 * 16) < 1e-3


def test_nothing_to_sum(place, fetch):
    k = numpy.ones((1, 5, 2, 64), ml_dtypes.bfloat16)
    lse = numpy.zeros((1, 2, 0), numpy.float32)
    assert (fetch(ja.key_mass(place(k[:, :0]), place(k), place(lse))) == 0).all()
    lse = numpy.zeros((1, 2, 5), numpy.float32)
    assert fetch(ja.key_mass(place(k), place(k[:, :0]), place(lse))).shape == (1, 2, 0)


@pytest.mark.parametrize("changes, error, field, reason", [
    (dict(heads="k"), ja.InvalidArgumentError, "heads", "it must be"),
    (dict(lse=(1, 2, 8)), ja.InvalidArgumentError, "lse", "it must be 9"),
    (dict(out=(1, 2, 8)), ja.InvalidArgumentError, "out", "it must be 9"),
    (dict(out=(2, 9)), ja.InvalidArgumentError, "out", "dimensions"),
    (dict(k=(1, 9, 4, 64)), ja.InvalidArgumentError, "k", "heads"),
    (dict(k=(1, 9, 2, 72)), ja.InvalidArgumentError, "k", "72"),
    (dict(page_table=(2, 3)), ja.InvalidArgumentError, "page_table", "it must be 1"),
    (dict(page_table=(1, 1), cu_seqlens_k=(2,)), ja.InvalidArgumentError, "page_table", "not both"),
    (dict(page_table=(1, 1), k=(4, 0, 2, 64)), ja.InvalidArgumentError, "k", "pages of no row"),
    (dict(page_table=(1, 1), seqused_k=(2,)), ja.InvalidArgumentError, "seqused_k", "it must be 1"),
    (dict(page_table=(1, 1), out=(1, 2, 8)), ja.InvalidArgumentError, "out", "it must be 9"),
    (dict(seqused_k=(1,)), ja.InvalidArgumentError, "seqused_k", "without page_table"),
    (dict(mask=ja.mask.document()), ja.InvalidArgumentError, "document_ids_q", "was not given"),
    (dict(q=(1, 9, 2, 264), k=(1, 9, 2, 264)), ja.InvalidSpecError, "q", "at most 256"),
])
def test_bad_input(place, changes, error, field, reason):
    kinds = {"q": ml_dtypes.bfloat16, "k": ml_dtypes.bfloat16, "lse": numpy.float32, "out": numpy.float32}
    kinds |= dict.fromkeys(("page_table", "seqused_k", "cu_seqlens_k"), numpy.int32)
    shapes = {"q": (1, 9, 2, 64), "k": (1, 9, 2, 64), "lse": (1, 2, 9)}
    options = {name: value for name, value in changes.items() if name not in kinds}
    shapes |= {name: value for name, value in changes.items() if name in kinds}
    arrays = {name: place(numpy.zeros(shape, kinds[name])) for name, shape in shapes.items()}
    with pytest.raises(error, match=reason) as raised:
        ja.key_mass(**arrays, **options)
    assert field in raised.value.field


def test_types(place):
    fp32 = place(numpy.zeros((1, 9, 2, 64), numpy.float32))
    lse = place(numpy.zeros((1, 2, 9), numpy.float32))
    with pytest.raises(ja.InvalidArgumentError, match="bf16 and fp16"):
        ja.key_mass(fp32, fp32, lse)
    bf16 = place(numpy.zeros((1, 9, 2, 64), ml_dtypes.bfloat16))
    with pytest.raises(ja.InvalidArgumentError, match="dtype"):
        ja.key_mass(bf16, bf16, lse, dtype="fp16")
    with pytest.raises(ja.InvalidArgumentError, match="share"):
        ja.key_mass(bf16, bf16, lse, out=lse)
