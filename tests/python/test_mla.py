"""Values that are the first columns of keys, the latent cache of MLA: pages, varlen batches, splits, spans,
errors."""

import dataclasses

import jit_attention as ja
import ml_dtypes
import numpy
import pytest
from append_tokens import Tokens, angles_at, exact_rows, poisoned, random_table
from request_batches import BF16, Requests, boundaries, causal, int32, paged
from seeded import some

SHARE = 9  # kernels take long to compile


@pytest.fixture(autouse=True)
def on_sm_90a(place):
    """The kernels are those of one architecture alone."""
    if not ja.supports(None, head_dim=576, head_dim_v=512, values_in_keys=True):
        pytest.skip("head dims above 256 are computed on sm_90a alone")


def latents(rng, lengths_q, lengths_k, *, heads=16, head_dim=448, head_dim_v=384, dtype=BF16):
    """Requests whose keys one head has for all. Head dims above 256 are one family's."""
    keys = [rng.standard_normal((n, 1, head_dim)).astype(dtype) for n in lengths_k]
    return Requests(
        [rng.standard_normal((n, heads, head_dim)).astype(dtype) for n in lengths_q],
        keys,
        [rows[..., :head_dim_v] for rows in keys],
    )


def call(place, batch, arrays, *, q=None, **options):
    arrays = {name: place(array) for name, array in arrays.items() if name != "v"}
    q = place(numpy.concatenate(batch.q) if q is None else q)
    return ja.attention(q, arrays.pop("k"), None, head_dim_v=batch.v[0].shape[-1], **arrays, **options)


@pytest.mark.parametrize("page_size", some([1, 16, 64, 100, 128]))
def test_pages_of_any_size(rng, place, fetch, page_size):
    """All that no request owns is NaN: rows behind its keys, and pages of others."""
    batch = latents(rng, [1, 3, 0, 4], [130, 37, 5, 300])
    arrays = paged(rng, batch, page_size) | {"cu_seqlens_q": boundaries(batch.lengths_q)}
    o, lse = call(place, batch, arrays, mask=ja.mask.causal(), return_lse=True)
    batch.check(fetch(o), fetch(lse), keep=causal)


@pytest.mark.parametrize("heads", some([16, 128]))
def test_deepseek(rng, place, fetch, heads):
    batch = latents(rng, [1, 2], [150, 64], heads=heads, head_dim=576, head_dim_v=512)
    arrays = paged(rng, batch, 64) | {"cu_seqlens_q": boundaries(batch.lengths_q)}
    o = call(place, batch, arrays, mask=ja.mask.causal())
    batch.check(fetch(o), keep=causal)


def test_latents_that_append_stored(rng, place, fetch):
    """The part that is rotated is k, the rest is v, of views of one cache."""
    tokens, latent, rotated = Tokens(rng), 384, 64
    heads = 8
    cache = place(poisoned((tokens.pages, tokens.page_size, 1, latent + rotated), BF16))
    keys = [rng.standard_normal((n + past, 1, latent + rotated)).astype(BF16)
            for n, past in zip(tokens.lengths, tokens.past)]
    q = rng.standard_normal((tokens.count, heads, latent + rotated)).astype(BF16)
    table = random_table(rng, rotated)
    at = numpy.arange(max(map(len, keys)))

    def turned(x, positions):
        part = exact_rows(x[..., latent:], angles=angles_at(table, positions), interleaved=True)
        return numpy.concatenate([x[..., :latent], part.astype(BF16)], -1)

    def store(rows, positions, slots, **queries):
        ja.append(place(rows[..., latent:]), place(rows[..., :latent]), cache[..., latent:], cache[..., :latent],
                  slot_mapping=place(slots), cos_sin=place(table), positions=place(positions),
                  rotary_interleaved=True, **queries)

    for b, past in enumerate(tokens.past):  # what was there before
        slots = tokens.table[b, at[:past] // tokens.page_size] * tokens.page_size + at[:past] % tokens.page_size
        store(keys[b][:past], at[:past].astype(numpy.int64), slots.astype(numpy.int64))
    new = numpy.concatenate([x[past:] for x, past in zip(keys, tokens.past)])
    turned_q = place(q.copy())
    store(new, tokens.positions, tokens.slots, q=turned_q[..., latent:])
    numpy.testing.assert_allclose(fetch(turned_q), turned(q, tokens.positions).astype(float), rtol=2**-7, atol=1e-3)

    o = ja.attention(turned_q, cache, None, head_dim_v=latent, page_table=place(tokens.table), mask=ja.mask.causal(),
                     seqused_k=place(tokens.seqused), cu_seqlens_q=place(tokens.cu_seqlens))
    asked = numpy.split(fetch(turned_q).astype(BF16), tokens.cu_seqlens[1:-1])
    keys = [turned(x, at[: len(x)]) for x in keys]
    Requests(asked, keys, [x[..., :latent] for x in keys]).check(fetch(o), keep=causal)


def test_prefill_beside_decoding(rng, place, fetch):
    batch = latents(rng, [1, 70, 1], [90, 110, 1])
    arrays = paged(rng, batch, 64) | {"cu_seqlens_q": boundaries(batch.lengths_q)}
    o, lse = call(place, batch, arrays, mask=ja.mask.causal(), return_lse=True)
    batch.check(fetch(o), fetch(lse), keep=causal)


def test_varlen_keys(rng, place, fetch):
    batch = latents(rng, [2, 5, 1], [1, 40, 130])
    arrays = {"k": numpy.concatenate(batch.k), "cu_seqlens_k": boundaries(batch.lengths_k)}
    arrays["cu_seqlens_q"] = boundaries(batch.lengths_q)
    o = call(place, batch, arrays, mask=ja.mask.causal())
    batch.check(fetch(o), keep=causal)


def test_pages_behind_padding(rng, place, fetch):
    """Rows that are not the first of a page: TMA copies none of them."""
    pads, lengths = [3, 20], [50, 90]
    batch = latents(rng, [1, 1], [n - pad for n, pad in zip(lengths, pads)])
    k = numpy.full((2, 96, 1, 448), numpy.nan, BF16)
    for b in range(2):
        k[b, pads[b] : lengths[b]] = batch.k[b]
    arrays = {"k": k.reshape(12, 16, 1, 448), "page_table": int32([range(6), range(6, 12)])}
    arrays |= {"seqused_k": int32(lengths), "cache_leftpad": int32(pads)}
    for split_keys in (0, 64):
        o = call(place, batch, arrays, q=numpy.stack(batch.q), split_keys=split_keys)
        batch.check(fetch(o).reshape(2, 16, 384))
    spec = ja.AttentionSpec(head_dim=448, head_dim_v=384, gqa_ratio=16, sequences_kv="paged", page_size=16,
                            split_keys=64, values_in_keys=True)
    arrays = {name: place(array) for name, array in arrays.items()}
    q, k = place(numpy.stack(batch.q)), arrays.pop("k")
    attention = ja.prepare(spec, config="family=forward_mla_wgmma copies=cp_async")
    batch.check(fetch(attention(q, k, **arrays)).reshape(2, 16, 384))
    attention = ja.prepare(spec, config="family=forward_mla_wgmma copies=tma")
    with pytest.raises(ja.errors.InvalidArgumentError, match="cache_leftpad.*copies=cp_async"):
        attention(q, k, **arrays)


@pytest.mark.parametrize("num_splits", [1, 3])
def test_splits(rng, place, fetch, num_splits):
    batch = latents(rng, [1, 2], [700, 60])
    arrays = paged(rng, batch, 64) | {"cu_seqlens_q": boundaries(batch.lengths_q)}
    o = call(place, batch, arrays, num_splits=num_splits)
    batch.check(fetch(o))


def test_bits_of_a_request_are_its_own(rng, place, fetch):
    """With split_keys: decoded alone and as the end of a chunk, beside others or not."""
    batch = latents(rng, [40], [333])
    last = Requests([batch.q[0][-1:]], batch.k, batch.v)
    beside = latents(rng, [3, 1], [200, 500])
    both = Requests(*([first, *own, second] for (first, second), own in
                      ((beside.q, last.q), (beside.k, last.k), (beside.v, last.v))))

    def bits(requests, page_size, row, **options):
        arrays = paged(rng, requests, page_size) | {"cu_seqlens_q": boundaries(requests.lengths_q)}
        o, lse = call(place, requests, arrays, mask=ja.mask.causal(), split_keys=64, return_lse=True, **options)
        return fetch(o)[row].tobytes() + fetch(lse)[:, row].tobytes()

    alone = bits(last, 64, 0)
    assert bits(batch, 64, -1) == alone
    assert bits(both, 64, 3) == alone
    assert bits(both, 64, 3, num_splits=2) == alone
    arrays = paged(rng, batch, 64) | {"cu_seqlens_q": boundaries([40])}
    o = call(place, batch, arrays, mask=ja.mask.causal(), split_keys=64)
    batch.check(fetch(o), keep=causal)


@pytest.mark.parametrize("heads, queries", some([(128, [1, 2, 1, 0, 3]), (16, [12, 10, 0, 24, 9]), (32, [2, 4, 1])]))
def test_tiles_of_rows_that_see_the_same_keys(rng, place, fetch, heads, queries):
    """Blocks side by side compute tiles of rows of one request, if all requests have a multiple of so many of them."""
    lengths_q = queries * 4
    lengths_k = [n + int(rng.integers(0, 150)) for n in lengths_q]
    lengths_k[1] = lengths_q[1]  # none before its own
    batch = latents(rng, lengths_q, lengths_k, heads=heads, head_dim=192, head_dim_v=128)
    arrays = paged(rng, batch, 64) | {"cu_seqlens_q": boundaries(lengths_q)}
    spec = ja.AttentionSpec(head_dim=192, head_dim_v=128, gqa_ratio=heads, sequences_q="varlen", sequences_kv="paged",
                            page_size=64, mask=ja.mask.causal(), values_in_keys=True)
    arrays = {name: place(array) for name, array in arrays.items() if name != "v"}
    k = arrays.pop("k")
    for split_keys in (0, 64):
        attention = ja.prepare(dataclasses.replace(spec, split_keys=split_keys),
                               config="family=forward_mla_wgmma")
        o = fetch(attention(place(numpy.concatenate(batch.q)), k, **arrays))
        batch.check(o, keep=causal)


def test_sinks(rng, place, fetch):
    batch = latents(rng, [1, 2], [90, 0])
    sinks = rng.standard_normal(16).astype(numpy.float32)
    arrays = paged(rng, batch, 64) | {"cu_seqlens_q": boundaries(batch.lengths_q)}
    plain, plain_lse = call(place, batch, arrays, return_lse=True)
    o, lse = call(place, batch, arrays | {"sinks": sinks}, return_lse=True)
    assert numpy.abs(fetch(lse) - numpy.logaddexp(fetch(plain_lse), sinks[:, None])).max() < 1e-3
    share = numpy.exp(fetch(plain_lse) - fetch(lse)).T[..., None]
    assert numpy.abs(fetch(o).astype(float) - fetch(plain) * share).max() < 0.01


def test_prepared(rng, place, fetch):
    batch = latents(rng, [1, 1], [64, 100])
    arrays = {name: place(array) for name, array in paged(rng, batch, 64).items() if name != "v"}
    q, k = place(numpy.stack(batch.q)), arrays.pop("k")
    spec = ja.AttentionSpec(head_dim=448, head_dim_v=384, gqa_ratio=16, sequences_kv="paged", page_size=64,
                            values_in_keys=True)
    attention = ja.prepare(spec, q, k, **arrays, config="family=forward_mla_wgmma")
    assert attention.kernel(q, k, **arrays).config["family"] == "forward_mla_wgmma"
    batch.check(fetch(attention(q, k, **arrays)).reshape(2, 16, 384))


def test_checked_calls_name_a_page_that_is_none(rng, place):
    batch = latents(rng, [1, 1], [64, 100])
    arrays = paged(rng, batch, 64)
    arrays["page_table"][1, 1] = -7
    arrays = {name: place(array) for name, array in arrays.items() if name != "v"}
    q, k = place(numpy.stack(batch.q)), arrays.pop("k")
    spec = ja.AttentionSpec(head_dim=448, head_dim_v=384, gqa_ratio=16, sequences_kv="paged", page_size=64,
                            values_in_keys=True, checked=True)
    with pytest.raises(ja.errors.InvalidArgumentError, match=r"page_table: element \[1, 1\].* is -7"):
        ja.prepare(spec)(q, k, **arrays)


def test_torch_operator(make, place, fetch):
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    import jit_attention.torch as jt

    q, k = make(2, 3, 16, 448), make(2, 70, 1, 448)

    def compute(q, k):
        return jt.attention(q, k, head_dim_v=384, mask=ja.mask.causal(), return_lse=True)

    eager = compute(q, k)
    compiled = torch.compile(compute, fullgraph=True, backend="eager")(q, k)
    assert all(torch.equal(a, b) for a, b in zip(eager, compiled)) and eager[0].shape == (2, 3, 16, 384)
    q, k = (fetch(t).astype(BF16) for t in (q, k))
    batch = Requests(list(q), list(k), [rows[..., :384] for rows in k])
    batch.check(fetch(eager[0]).reshape(6, 16, 384), keep=causal)
    with pytest.raises(ja.errors.InvalidArgumentError, match="head_dim_v.*no_grad"):
        jt.attention(make(1, 1, 16, 64).requires_grad_(), make(1, 4, 1, 64), head_dim_v=64)


@pytest.mark.parametrize(
    "options, name",
    [
        ({}, "v"),
        ({"head_dim_v": 0}, "head_dim_v"),
        ({"head_dim_v": 512}, "head_dim_v"),
    ],
)
def test_refusals(rng, place, options, name):
    q, k = (place(rng.standard_normal((1, 8, heads, 448)).astype(BF16)) for heads in (16, 1))
    with pytest.raises(ja.errors.Error, match=name):
        ja.attention(q, k, None, **options)
    with pytest.raises(ja.errors.InvalidArgumentError, match="head_dim_v"):
        ja.attention(q, k, k, head_dim_v=384)


@pytest.mark.parametrize(
    "stored, options, sentence",
    [
        (numpy.uint8, dict(kv_dtype="fp8_e5m2"), "kv_dtype: is fp8_e5m2; with head_dim_v, .* must be bf16, fp16, latent_656"),
        (ml_dtypes.float8_e4m3fn, {}, "k: is fp8_e4m3; with head_dim_v, .* must be bf16, fp16, latent_656"),
        (BF16, dict(dropout_p=0.5, rng_state=numpy.zeros(2, numpy.int64)), "dropout_p: was given beside head_dim_v"),
    ],
)
def test_refusals_name_what_the_caller_wrote(place, stored, options, sentence):
    q, k = place(numpy.zeros((1, 8, 16, 576), BF16)), place(numpy.zeros((1, 8, 1, 576), stored))
    options = {name: place(value) if isinstance(value, numpy.ndarray) else value for name, value in options.items()}
    with pytest.raises(ja.errors.InvalidArgumentError, match=sentence):
        ja.attention(q, k, head_dim_v=512, **options)


@pytest.mark.parametrize("options", [{"dropout": True}, {"kv_dtype": "fp8_e4m3"}])
def test_specs_that_are_refused(options):
    with pytest.raises(ja.errors.InvalidSpecError, match="values_in_keys"):
        ja.AttentionSpec(values_in_keys=True, **options)


def test_head_dims_of_other_architectures_are_refused():
    refusals = ja.refusals("sm_80", head_dim=576, head_dim_v=512, values_in_keys=True)
    assert [refusal.field for refusal in refusals] == ["head_dim"]
    assert "sm_90a" in refusals[0].rule
    refusals = ja.refusals("sm_90a", head_dim=576, head_dim_v=500, values_in_keys=True)
    assert [refusal.field for refusal in refusals] == ["head_dim_v"]
    assert [r.field for r in ja.refusals("sm_90a", head_dim=576)] == ["head_dim"]
