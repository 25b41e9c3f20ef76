"""Arguments of calls of jit_attention.jax beside dense arrays: dropout, block masks, caches, fp8, own texts."""

import jit_attention as ja
import numpy
import pytest
from block_masks import SEGMENTS, gradients, random_segments
from exact_attention import exact_attention, random_qkv
from fp8_caches import cached
from jax_process import jax, jnp, place  # noqa: F401
from jit_attention.jax import attention
from request_batches import boundaries, causal, paged, requests
from seeded import some
from test_backward import random_problem
from test_dropout import check_forward, exact, kept

SHARE = 3  # kernels take long to compile


def arrays_of(arrays):
    return {name: jnp.asarray(array) for name, array in arrays.items()}


def wide(array):
    return numpy.asarray(array).astype(numpy.float64)


@pytest.mark.parametrize("has_sinks", some([False, True]))
def test_dropout(rng, has_sinks):
    rate, key = 0.3, jax.random.key(int(rng.integers(2**31)))
    problem = random_problem(rng, "fp16", batch=2, seqlen_q=50, seqlen_kv=75, heads_q=4, heads_kv=2, head_dim=32,
                             head_dim_v=24)
    do, q, k, v = map(jnp.asarray, problem)
    sinks = rng.standard_normal(4).astype(numpy.float32) if has_sinks else None
    words = [int(word) for word in jax.random.key_data(key)]
    keep = kept((2, 4, 50, 75), rate, words[0] | words[1] << 32, 0)
    expected, lse_expected, gradients = exact(problem, keep, rate, sinks=sinks)

    @jax.jit
    def run(key, *inputs):
        def attend(q, k, v, *sinks):
            return attention(q, k, v, sinks=sinks[0] if sinks else None, dropout_p=rate, rng_state=key,
                             return_lse=True)

        (o, lse), pull = jax.vjp(attend, *inputs)
        return o, lse, pull((do, jnp.zeros_like(lse)))

    inputs = [q, k, v, *([jnp.asarray(sinks)] if has_sinks else [])]
    o, lse, made = run(key, *inputs)
    check_forward(wide(o), wide(lse), expected, lse_expected)
    for one, other in zip(made, gradients):
        assert numpy.abs(wide(one) - other).max() <= 4e-3 * numpy.abs(other).max()
    again = attention(*inputs[:3], sinks=inputs[3] if has_sinks else None, dropout_p=rate,
                      rng_state=jax.random.key_data(key))
    assert numpy.array_equal(numpy.asarray(again), numpy.asarray(o)), "the data of a key is the key"
    other = run(jax.random.key(1), *inputs)[0]
    assert not numpy.array_equal(numpy.asarray(other), numpy.asarray(o))


@pytest.mark.parametrize("scores", some([False, True]))
def test_block_masks(rng, scores):
    q, k, v = random_qkv(rng, batch=2, seqlen_q=200, seqlen_kv=200, heads_q=2, head_dim=32)
    do = rng.standard_normal(q.shape).astype(q.dtype)
    segment = random_segments(rng, 2, 200)
    table = ja.block_mask(jnp.asarray(q), jnp.asarray(k), mask=SEGMENTS, tensors={"segment": jnp.asarray(segment)},
                          block_size=(64, 64), scores=scores)

    def keep(b, h, i, j):
        return (segment[b, i] == segment[b, j]) | (j < 3)

    def run(q, k, v, table):
        o, pull = jax.vjp(lambda *inputs: attention(*inputs, block_mask=table), q, k, v)
        return o, pull(jnp.asarray(do))

    inputs = [jnp.asarray(x) for x in (q, k, v)]
    for o, made in (jax.jit(run)(*inputs, table), jax.jit(lambda *inputs: run(*inputs, table))(*inputs)):
        exact_attention(q, k, v, keep=keep).check(wide(o))
        for one, other in zip(made, gradients(q, k, v, do, keep)):
            assert numpy.abs(wide(one) - other).max() <= 5e-3 * numpy.abs(other).max()
    with pytest.raises(ja.InvalidArgumentError, match="block_mask: was made for seqlen_q 200, and the call has 100"):
        attention(inputs[0][:, :100], *inputs[1:], block_mask=table)
    with pytest.raises(TypeError, match="block_mask must be a jit_attention.BlockMask"):
        attention(*inputs, block_mask=SEGMENTS)


@pytest.mark.parametrize("lengths_q, split_keys", some([([1, 1, 1], 0), ([1, 4, 20], 512)]))
def test_paged_caches(rng, lengths_q, split_keys):
    """The first ones as a batch that decodes, the others varlen, with spans of keys."""
    batch = requests(rng, lengths_q, [700, 33, 130])
    arrays = arrays_of(paged(rng, batch, 16))
    if len(set(lengths_q)) == 1:
        q = jnp.asarray(numpy.stack(batch.q))
    else:
        q = jnp.asarray(numpy.concatenate(batch.q))
        arrays["cu_seqlens_q"] = jnp.asarray(boundaries(lengths_q))
    run = jax.jit(lambda q, arrays: attention(q, **arrays, mask=ja.mask.causal(), split_keys=split_keys,
                                              return_lse=True))
    o, lse = run(q, arrays)
    if q.ndim == 4:
        o, lse = o.reshape(-1, *o.shape[2:]), lse.transpose(1, 0, 2).reshape(lse.shape[1], -1)
    batch.check(wide(o), wide(lse), keep=causal)
    with pytest.raises(ja.InvalidArgumentError, match="page_table: was given, and a gradient is wanted"):
        jax.grad(lambda q: attention(q, **arrays).astype(jnp.float32).sum())(q)


def test_padding_before_the_first_key(rng):
    q, k, v = random_qkv(rng, batch=2, seqlen_q=3, seqlen_kv=90, heads_q=2)
    pads, used = numpy.array([7, 0], numpy.int32), numpy.array([60, 90], numpy.int32)
    o = jax.jit(attention)(q, k, v, cache_leftpad=jnp.asarray(pads), seqused_k=jnp.asarray(used))
    exact = exact_attention(q, k, v, keep=lambda b, h, i, j: (j >= pads[b]) & (j < used[b]))
    exact.check(wide(o))


@pytest.mark.parametrize("kind", some(["request_head", "token"]))
def test_fp8_caches(rng, kind):
    batch = cached(rng, [1, 5], [100, 37], "fp8_e4m3", kind)
    k, v = (numpy.concatenate(batch.codes[name]) for name in "kv")
    if kind == "token":
        scales = {f"{name}_descale": numpy.concatenate(batch.scales[name]) for name in "kv"}
    else:
        scales = {f"{name}_descale": batch.shared[name] for name in "kv"}
    lengths = arrays_of({"cu_seqlens_q": boundaries([1, 5]), "cu_seqlens_k": boundaries([100, 37])})
    o = attention(*map(jnp.asarray, (numpy.concatenate(batch.q), k, v)), mask=ja.mask.causal(), **lengths,
                  **arrays_of(scales), descale_per="token" if kind == "token" else "head")
    batch.check(wide(o), keep=causal)


def test_queries_of_fp8(rng):
    """Codes that stand for themselves: those of a call of NumPy arrays come out."""
    fp8 = jnp.float8_e4m3fn
    q, k, v = (jnp.asarray(x, fp8) for x in random_qkv(rng, batch=1, seqlen_q=70, seqlen_kv=70, heads_q=2))
    scale = jnp.full((2,), 0.5, jnp.float32)
    o = jax.jit(attention)(q, k, v, q_descale=scale, k_descale=scale, v_descale=scale)
    expected = ja.attention(*map(numpy.asarray, (q, k, v)), q_descale=numpy.asarray(scale),
                            k_descale=numpy.asarray(scale), v_descale=numpy.asarray(scale))
    assert o.dtype == jnp.bfloat16 and numpy.array_equal(wide(o), wide(expected))


def test_values_that_are_columns_of_keys(rng):
    latents, q = random_qkv(rng, batch=2, seqlen_q=80, seqlen_kv=3, heads_q=1, head_dim=96, dtype="bf16")[:2]
    q = numpy.repeat(q, 8, 2)
    o = jax.jit(lambda q, k: attention(q, k, head_dim_v=64))(q, latents)
    exact_attention(q, latents, latents[..., :64]).check(wide(o))
    with pytest.raises(ja.InvalidArgumentError, match="head_dim_v: was given, and a gradient is wanted"):
        jax.grad(lambda q: attention(q, latents, head_dim_v=64).astype(jnp.float32).sum())(jnp.asarray(q))


def test_texts_with_constants_of_all_types(rng):
    """Texts that differ in the type of a constant alone are different ones."""
    q, k, v = random_qkv(rng, batch=1, seqlen_q=40, seqlen_kv=40, heads_q=2)

    def run(third):
        mask = ja.mask.text("return (on && q - k < window && ids[k] != 1) || third / 2 * 2 == third;", name="near.b",
                            constants={"window": 5, "on": True, "third": third}, tensors={"ids": "int32"})
        score = ja.score.text("return score * factor;", name="scaled", constants={"factor": 0.5},
                              derivative="return factor;")
        ids = jnp.asarray(numpy.arange(40) % 7, jnp.int32)
        return jax.jit(lambda *x: attention(*x, mask=mask, score=score, tensors={"ids": ids}))(q, k, v)

    def keep(b, h, i, j):
        return (i - j < 5) & (j % 7 != 1)

    exact_attention(q, k, v, keep=keep, score=lambda s, *_: s / 2).check(wide(run(3)))
    exact_attention(q, k, v, score=lambda s, *_: s / 2).check(wide(run(3.0)))


def test_refusals_of_dropout(rng):
    q, k, v = random_qkv(rng, batch=1, seqlen_q=8, seqlen_kv=8)
    with pytest.raises(ja.InvalidArgumentError, match="rng_state: is missing beside dropout_p"):
        attention(q, k, v, dropout_p=0.5)
    with pytest.raises(ja.InvalidArgumentError, match="dropout_p: is 1.0; it must be"):
        attention(q, k, v, dropout_p=1.0, rng_state=jax.random.key(0))
    with pytest.raises(ja.InvalidArgumentError, match=r"rng_state: is int32 \(2,\); it must be a key"):
        attention(q, k, v, dropout_p=0.5, rng_state=jnp.zeros(2, jnp.int32))
    with pytest.raises(TypeError, match="rng_state"):
        attention(q, k, v, dropout_p=0.5, dropout_rng=jax.random.key(0))
