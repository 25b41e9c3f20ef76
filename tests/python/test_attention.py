"""attention() against double precision: types, layouts, strides, sizes, masks, scores."""

import math

import jit_attention as ja
import numpy
import pytest
from exact_attention import exact_attention, random_qkv
from seeded import paired, some

SHARE = 9  # kernels take long to compile


@pytest.mark.parametrize("dims, dtype", paired([(8, 8), (64, 64), (72, 40), (128, 128)], ["bf16", "fp16"]))
def test_equals_double_precision(rng, place, fetch, dims, dtype):
    head_dim, head_dim_v = dims
    q, k, v = random_qkv(
        rng, batch=2, seqlen_q=37, seqlen_kv=131, heads_q=3, head_dim=head_dim, head_dim_v=head_dim_v, dtype=dtype
    )
    o, lse = ja.attention(place(q), place(k), place(v), return_lse=True)
    exact_attention(q, k, v).check(fetch(o), fetch(lse))


@pytest.mark.parametrize("heads_q, heads_kv", some([(4, 4), (4, 2), (6, 1)]))
def test_grouped_heads(rng, place, fetch, heads_q, heads_kv):
    q, k, v = random_qkv(rng, heads_q=heads_q, heads_kv=heads_kv, seqlen_q=33, seqlen_kv=70)
    o = ja.attention(place(q), place(k), place(v), mask=ja.mask.causal())
    exact_attention(q, k, v, keep=lambda b, h, i, j: j <= i + 37).check(fetch(o))


def test_softmax_scale(rng, place, fetch):
    q, k, v = random_qkv(rng)
    o = ja.attention(place(q), place(k), place(v), softmax_scale=0.7)
    exact_attention(q, k, v, softmax_scale=0.7).check(fetch(o))


def test_layout_with_heads_first(rng, place, fetch):
    q, k, v = random_qkv(rng, batch=2, seqlen_q=20, seqlen_kv=50, heads_q=4, heads_kv=2)
    arrays = [place(numpy.ascontiguousarray(x.transpose(0, 2, 1, 3))) for x in (q, k, v)]
    o, lse = ja.attention(*arrays, layout="BHSD", return_lse=True)
    assert tuple(o.shape) == (2, 4, 20, 64)
    exact_attention(q, k, v).check(fetch(o).transpose(0, 2, 1, 3), fetch(lse))


def test_views_of_one_packed_array(rng, place, fetch):
    packed = rng.standard_normal((2, 45, 3, 2, 64)).astype(numpy.float16)
    placed = place(packed.reshape(2, 45, 6, 64)).reshape(2, 45, 3, 2, 64)
    o = ja.attention(placed[:, :, 0], placed[:, :, 1], placed[:, :, 2])
    exact_attention(packed[:, :, 0], packed[:, :, 1], packed[:, :, 2]).check(fetch(o))


@pytest.mark.parametrize("offset, row", some([(1, 72), (4, 68), (2, 66)]))
def test_rows_that_are_not_aligned_to_16_bytes(rng, place, fetch, offset, row):
    wide = rng.standard_normal((1, 40, 2, row)).astype(numpy.float16)
    view = wide[..., offset : offset + 64]
    o = ja.attention(*[place(wide)[..., offset : offset + 64]] * 3)
    exact_attention(view, view, view).check(fetch(o))


def test_queries_without_keys_get_zero(rng, place, fetch):
    q, k, v = random_qkv(rng, seqlen_q=80, seqlen_kv=30)
    o, lse = ja.attention(place(q), place(k), place(v), mask=ja.mask.causal(), return_lse=True)
    assert (fetch(o)[:, :50] == 0).all()
    assert numpy.isneginf(fetch(lse)[..., :50]).all()
    exact_attention(q, k, v, keep=lambda b, h, i, j: j <= i - 50).check(fetch(o), fetch(lse))


@pytest.mark.parametrize("seqlen_q, seqlen_kv, batch", [(0, 7, 1), (7, 0, 1), (7, 7, 0), (1, 1, 1)])
def test_nothing_to_do(rng, place, fetch, seqlen_q, seqlen_kv, batch):
    q, k, v = random_qkv(rng, batch=batch, seqlen_q=seqlen_q, seqlen_kv=seqlen_kv)
    o, lse = ja.attention(place(q), place(k), place(v), return_lse=True)
    exact_attention(q, k, v).check(fetch(o), fetch(lse))


def test_equal_inputs_give_equal_bits(rng, place, fetch):
    arrays = [place(x) for x in random_qkv(rng, seqlen_q=70, seqlen_kv=200, heads_q=3, dtype="bf16")]
    first = fetch(ja.attention(*arrays))
    assert all(numpy.array_equal(first, fetch(ja.attention(*arrays))) for _ in range(3))


def test_out_is_written_and_returned(rng, place, fetch):
    q, k, v = random_qkv(rng, seqlen_q=30)
    poisoned = numpy.full((1, 30, 2, 96), numpy.nan, numpy.float16)
    whole = place(poisoned)
    out = whole[..., 16:80]  # with gaps, which keep what they hold
    assert ja.attention(place(q), place(k), place(v), out=out) is out
    exact_attention(q, k, v).check(fetch(out))
    assert numpy.isnan(fetch(whole)[..., :16]).all() and numpy.isnan(fetch(whole)[..., 80:]).all()


def test_lse_is_written_where_it_is_wanted(rng, place, fetch):
    q, k, v = random_qkv(rng, batch=2, seqlen_q=30)
    whole = place(numpy.full((2, 2, 40), numpy.nan, numpy.float32))
    o, lse = ja.attention(place(q), place(k), place(v), return_lse=whole[..., 5:35])
    exact_attention(q, k, v).check(fetch(o), fetch(whole)[..., 5:35])
    assert numpy.isnan(fetch(whole)[..., :5]).all() and numpy.isnan(fetch(whole)[..., 35:]).all()
    prepared = ja.prepare(ja.AttentionSpec(dtype="fp16", head_dim=64))
    again = place(numpy.zeros((2, 2, 30), numpy.float32))
    assert prepared(place(q), place(k), place(v), return_lse=again)[1] is again
    assert numpy.array_equal(fetch(again), fetch(whole)[..., 5:35])
    for wrong, message in [
        (numpy.zeros((2, 30, 2), numpy.float32), "return_lse: has heads = 30"),
        (numpy.zeros((2, 2, 30), numpy.float16), "return_lse: is fp16"),
        (numpy.zeros((2, 30), numpy.float32), "return_lse: has 2 dimensions"),
    ]:
        with pytest.raises(ja.InvalidArgumentError, match=message):
            ja.attention(place(q), place(k), place(v), return_lse=place(wrong))
    with pytest.raises(TypeError, match="return_lse"):
        ja.attention(place(q), place(k), place(v), return_lse="yes")


MASKS = {
    "causal": (ja.mask.causal(), lambda b, h, q, k: k <= q + 40),
    "top_left": (ja.mask.causal("top_left"), lambda b, h, q, k: k <= q),
    "window": (ja.mask.sliding_window(20, 5), lambda b, h, q, k: (k >= q + 20) & (k <= q + 45)),
    "prefix or causal": (ja.mask.causal() | ja.mask.prefix(60), lambda b, h, q, k: (k <= q + 40) | (k < 60)),
    "not prefix": (~ja.mask.prefix(9), lambda b, h, q, k: k >= 9),
    "text": (
        ja.mask.text("return (q + k + h) % step != 0;", name="striped", constants={"step": 3}),
        lambda b, h, q, k: (q + k + h) % 3 != 0,
    ),
}


@pytest.mark.parametrize("name", some(MASKS))
def test_masks(rng, place, fetch, name):
    mask, keep = MASKS[name]
    q, k, v = random_qkv(rng, batch=2, seqlen_q=50, seqlen_kv=90)
    o, lse = ja.attention(place(q), place(k), place(v), mask=mask, return_lse=True)
    exact_attention(q, k, v, keep=keep).check(fetch(o), fetch(lse))


def test_masks_that_read_arrays(rng, place, fetch):
    q, k, v = random_qkv(rng, batch=2, seqlen_q=50, seqlen_kv=50)
    ids = rng.integers(0, 3, (2, 50), dtype=numpy.int32)
    lengths = numpy.array([5, 33], numpy.int32)
    tensors = {"document_ids_q": place(ids), "document_ids_kv": place(ids), "prefix_lengths": place(lengths)}
    mask = ja.mask.document() & (ja.mask.causal() | ja.mask.prefix_lengths())
    assert mask.tensors == {"document_ids_q": "int32", "document_ids_kv": "int32", "prefix_lengths": "int32"}
    o = ja.attention(place(q), place(k), place(v), mask=mask, tensors=tensors)
    exact_attention(q, k, v, keep=lambda b, h, i, j: (ids[b, i] == ids[b, j]) & ((j <= i) | (j < lengths[b]))).check(
        fetch(o)
    )


def test_other_documents_cost_little(rng, place, emulated):
    if not emulated:
        pytest.skip("a GPU counts no instructions")
    q, k, v = random_qkv(rng, seqlen_q=128, seqlen_kv=4096, heads_q=1, head_dim=128)
    ids = (numpy.arange(4096, dtype=numpy.int32) // 256)[None]
    # Warps that wait for barriers poll, which counts: the config is one whose warps do not.
    spec = ja.AttentionSpec(dtype="fp16", head_dim=128)
    masked_spec = ja.AttentionSpec(dtype="fp16", head_dim=128, mask=ja.mask.document())
    plain, masked = (ja.prepare(each, config={"family": "forward_mma_sync"}) for each in (spec, masked_spec))
    with ja.trace() as seen:
        plain(q, k[:, :256], v[:, :256])
        for document in (0, 9, 15):
            tensors = {"document_ids_q": numpy.full((1, 128), document, numpy.int32), "document_ids_kv": ids}
            masked(q, k, v, tensors=tensors)
    alone, *among_others = (launch.warp_instructions for launch in seen.launches)
    assert max(among_others) < 2 * alone


def test_softcap_then_alibi(rng, place, fetch):
    q, k, v = random_qkv(rng, seqlen_q=40, seqlen_kv=60, heads_q=4)
    slopes = numpy.array([0.5, 0.25, 0.125, 0.0625], numpy.float32)
    score = ja.score.softcap(2.0).then(ja.score.alibi())
    o = ja.attention(place(q), place(k), place(v), score=score, tensors={"alibi_slopes": place(slopes)})
    exact_attention(
        q, k, v, score=lambda s, b, h, i, j: 2 * numpy.tanh(s / 2) - slopes[h] * numpy.abs(i + 20 - j)
    ).check(fetch(o))


@pytest.mark.parametrize("shape", [(2, 4, 40, 60), (1, 1, 40, 60), (2, 1, 1, 60)])
def test_bias_broadcasts(rng, place, fetch, shape):
    q, k, v = random_qkv(rng, batch=2, seqlen_q=40, seqlen_kv=60, heads_q=4)
    bias = rng.standard_normal(shape).astype(numpy.float32)
    bias[rng.random(shape) < 0.2] = -numpy.inf
    o = ja.attention(place(q), place(k), place(v), score=ja.score.bias(), tensors={"bias": place(bias)})
    exact_attention(q, k, v, score=lambda s, b, h, i, j: s + bias).check(fetch(o))


def test_score_text_with_an_array(rng, place, fetch):
    q, k, v = random_qkv(rng, seqlen_q=30, seqlen_kv=30)
    table = rng.standard_normal(2).astype(numpy.float32)
    score = ja.score.text(
        "return score * factor + table[h];", name="shifted", constants={"factor": 0.5}, tensors={"table": "fp32"}
    )
    o = ja.attention(place(q), place(k), place(v), score=score, tensors={"table": place(table)})
    exact_attention(q, k, v, score=lambda s, b, h, i, j: 0.5 * s + table[h]).check(fetch(o))


def test_prepared_equals_direct(rng, place, fetch):
    q, k, v = (place(x) for x in random_qkv(rng, heads_q=4, heads_kv=2, dtype="bf16"))
    spec = ja.AttentionSpec(head_dim=64, gqa_ratio=2, mask=ja.mask.causal())
    prepared = ja.prepare(spec, q, k, v)
    assert prepared.spec == spec and "causal" in repr(prepared)
    o, lse = prepared(q, k, v, return_lse=True)
    direct, direct_lse = ja.attention(q, k, v, mask=ja.mask.causal(), return_lse=True)
    assert numpy.array_equal(fetch(o), fetch(direct)) and numpy.array_equal(fetch(lse), fetch(direct_lse))
    assert prepared.kernel(q, k, v).why.startswith("cost model")


def test_a_given_config_runs(rng, place, fetch):
    q, k, v = random_qkv(rng)
    configs = ja.candidate_configs(ja.AttentionSpec(dtype="fp16", head_dim=64), ja.devices()[0].arch)
    for config in (configs[0], configs[-1]):
        prepared = ja.prepare(ja.AttentionSpec(dtype="fp16", head_dim=64), config=config)
        exact_attention(q, k, v).check(fetch(prepared(place(q), place(k), place(v))))
        assert prepared.kernel().config == config and prepared.kernel().why == "given"


def test_the_scale_is_as_documented(rng, place, fetch):
    q, k, v = random_qkv(rng, head_dim=32)
    default, given = (
        fetch(ja.attention(place(q), place(k), place(v), softmax_scale=scale)) for scale in (None, 1 / math.sqrt(32))
    )
    assert numpy.array_equal(default, given)


def test_every_way_of_tuning_gives_the_result(rng, place, fetch):
    q, k, v = random_qkv(rng)
    for tuning in ("off", "recorded", "first_run", None):
        o = ja.attention(place(q), place(k), place(v), tuning=tuning)
        exact_attention(q, k, v).check(fetch(o))


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"tuning": "sometimes"}, 'tuning: is \'sometimes\'; it must be None or one of "off", "recorded"'),
        ({"tuning": 1}, "tuning: is 1; it must be None or one of"),
        ({"layout": "SBHD"}, "layout: is 'SBHD'; it must be \"BSHD\""),
        ({"dtype": "fp32"}, 'dtype: is \'fp32\'; it must be None, "bf16" or "fp16"'),
    ],
)
def test_words_that_mean_nothing_are_refused(rng, place, arguments, message):
    with pytest.raises(ja.InvalidArgumentError, match=message) as refusal:
        ja.attention(*map(place, random_qkv(rng)), **arguments)
    assert refusal.value.field == next(iter(arguments))
