"""jit_attention.jax in compiled functions, with gradients, against JAX's own differentiation in fp32."""

import jit_attention as ja
import numpy
import pytest
from jax_process import jax, jnp, place  # noqa: F401
from jit_attention.jax import attention

SHARE = 3  # kernels take long to compile


@pytest.fixture
def draw(rng):
    return lambda *shape, dtype=jnp.bfloat16: jnp.asarray(rng.standard_normal(shape), dtype)


def plain(q, k, v, *, keep=True, score=lambda s: s, sinks=None, scale=None):
    """(o, lse) of (batch, seqlen, heads, head_dim) in fp32."""
    q, k, v = (x.astype(jnp.float32) for x in (q, k, v))
    k, v = (jnp.repeat(x, q.shape[2] // x.shape[2], 2) for x in (k, v))
    s = jnp.einsum("bqhd,bkhd->bhqk", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    s = jnp.where(keep, score(s), -jnp.inf)
    lse = jax.nn.logsumexp(s, -1)
    if sinks is not None:
        lse = jnp.logaddexp(lse, sinks[None, :, None])
    return jnp.einsum("bhqk,bkhd->bqhd", jnp.exp(s - lse[..., None]), v), lse


def expect_close(got, wanted, part=0.02):
    """Errors of at most a part of the largest element."""
    got, wanted = (numpy.asarray(x, numpy.float64) for x in (got, wanted))
    assert got.shape == wanted.shape
    assert numpy.abs(got - wanted).max(initial=0) <= part * numpy.abs(wanted).max(initial=1e-3)


def causal(seqlen_q, seqlen_kv):
    return jnp.arange(seqlen_kv) <= jnp.arange(seqlen_q)[:, None] + seqlen_kv - seqlen_q


@pytest.mark.parametrize("layout", ["BSHD", "BHSD"])
def test_gradients_in_compiled_functions(draw, layout):
    q, k, v = draw(2, 33, 4, 32), draw(2, 50, 2, 32), draw(2, 50, 2, 40)
    given, weights = draw(2, 33, 4, 40), draw(2, 4, 33, dtype=jnp.float32)
    turned = (lambda x: x.swapaxes(1, 2)) if layout == "BHSD" else (lambda x: x)

    def loss(q, k, v):
        o, lse = attention(*map(turned, (q, k, v)), mask=ja.mask.causal(), return_lse=True, layout=layout)
        return (turned(o).astype(jnp.float32) * given).sum() + (lse * weights).sum(), (turned(o), lse)

    def exact(q, k, v):
        o, lse = plain(q, k, v, keep=causal(33, 50))
        return (o * given.astype(jnp.float32)).sum() + (lse * weights).sum(), (o, lse)

    wanted, (o, lse) = jax.grad(exact, (0, 1, 2), has_aux=True)(q, k, v)
    compiled = jax.jit(jax.grad(loss, (0, 1, 2), has_aux=True))
    for run in (compiled, compiled, jax.grad(jax.checkpoint(loss), (0, 1, 2), has_aux=True)):
        got, (own_o, own_lse) = run(q, k, v)
        expect_close(own_o, o)
        expect_close(own_lse, lse, 1e-3)
        for one, other in zip(got, wanted):
            assert one.dtype == jnp.bfloat16
            expect_close(one, other)


def test_gradients_of_what_scores_read_and_of_sinks(draw):
    q, k, v = (draw(1, 40, 2, 16, dtype=jnp.float16) for _ in "qkv")
    bias, sinks, given = draw(1, 2, 40, 40, dtype=jnp.float32), draw(2, dtype=jnp.float32), draw(1, 40, 2, 16)
    score = ja.score.bias("fp32").then(ja.score.softcap(5.0))

    def loss(bias, sinks):
        o = attention(q, k, v, score=score, tensors={"bias": bias}, sinks=sinks, softmax_scale=0.3)
        return (o.astype(jnp.float32) * given).sum()

    def exact(bias, sinks):
        o, _ = plain(q, k, v, score=lambda s: 5 * jnp.tanh((s + bias) / 5), sinks=sinks, scale=0.3)
        return (o * given.astype(jnp.float32)).sum()

    for got, wanted in zip(jax.jit(jax.grad(loss, (0, 1)))(bias, sinks), jax.grad(exact, (0, 1))(bias, sinks)):
        expect_close(got, wanted)


def test_varlen_sequences(draw):
    lengths = numpy.array([17, 0, 30])
    bounds = numpy.concatenate([[0], lengths.cumsum()])
    q, k, v, given = (draw(60, 2, 32) for _ in "qkvo")  # the last rows are nobody's
    cu = jnp.asarray(bounds, jnp.int32)

    def run(q, k, v):
        return attention(q, k, v, mask=ja.mask.causal(), cu_seqlens_q=cu, cu_seqlens_k=cu, return_lse=True)

    def exact(q, k, v):
        parts = [plain(*(x[None, a:b] for x in (q, k, v)), keep=causal(b - a, b - a))[0][0]
                 for a, b in zip(bounds, bounds[1:]) if b > a]
        return jnp.concatenate([*parts, jnp.zeros((60 - bounds[-1], 2, 32))])

    o, lse = jax.jit(run)(q, k, v)
    expect_close(o, exact(q, k, v))
    assert not numpy.asarray(o[bounds[-1]:], numpy.float32).any() and numpy.isneginf(lse[:, bounds[-1]:]).all()
    got = jax.jit(jax.grad(lambda *x: (run(*x)[0].astype(jnp.float32) * given).sum(), (0, 1, 2)))(q, k, v)
    wanted = jax.grad(lambda *x: (exact(*x) * given.astype(jnp.float32)).sum(), (0, 1, 2))(q, k, v)
    for one, other in zip(got, wanted):
        expect_close(one, other)
        assert not numpy.asarray(one[bounds[-1]:], numpy.float32).any()


def test_keys_in_use(draw):
    q, k, v = draw(2, 9, 2, 32), draw(2, 70, 2, 32), draw(2, 70, 2, 32)
    used = jnp.asarray([70, 13], jnp.int32)
    o = jax.jit(lambda used: attention(q, k, v, seqused_k=used))(used)
    expect_close(o, plain(q, k, v, keep=jnp.arange(70) < used[:, None, None, None])[0])
    keep = jnp.arange(70) < used[:, None, None, None]
    got = jax.jit(jax.grad(lambda *x: attention(*x, seqused_k=used).astype(jnp.float32).sum(), (0, 1, 2)))(q, k, v)
    wanted = jax.grad(lambda *x: plain(*x, keep=keep)[0].sum(), (0, 1, 2))(q, k, v)
    for one, other in zip(got, wanted):
        expect_close(one, other)
    assert not numpy.asarray(got[1][1, 13:], numpy.float32).any(), "keys that are not in use"


def test_equal_bits_if_asked(draw):
    q, k, v = (draw(1, 200, 2, 64) for _ in "qkv")
    run = jax.jit(jax.grad(lambda q, k, v: attention(q, k, v, deterministic=True).astype(jnp.float32).sum(), (0, 1, 2)))
    first = run(q, k, v)
    for _ in range(2):
        for one, other in zip(first, run(q, k, v)):
            assert numpy.array_equal(numpy.asarray(one, numpy.float32), numpy.asarray(other, numpy.float32))


def test_refusals(draw):
    q, k, v = (draw(1, 8, 2, 16) for _ in "qkv")
    with pytest.raises(ja.InvalidArgumentError, match="k: is None"):
        attention(q, None, v)
    with pytest.raises(ja.InvalidArgumentError, match="layout: is 'BDSH'"):
        attention(q, k, v, layout="BDSH")
    with pytest.raises(ja.InvalidArgumentError, match="q: has 3 dimensions; it must have 4"):
        attention(q[0], k, v)
    with pytest.raises(jax.errors.JaxRuntimeError, match="k: .*3"):
        jax.block_until_ready(jax.jit(attention)(q, k[..., :3], v))
    with pytest.raises(ja.InvalidArgumentError, match="q: is uint32; attention takes bf16, fp16 and fp8"):
        jax.jit(attention)(q.astype(jnp.uint32), k, v)
    with pytest.raises(ja.InvalidSpecError, match="q: its head_dim = 12 must be a multiple of 8"):
        attention(q[..., :12], k[..., :12], v)
    with pytest.raises(ja.InvalidArgumentError, match="k: has 2 heads and q has 1"):
        attention(q[:, :, :1], k, v)
    with pytest.raises(ja.InvalidArgumentError, match="v: is None; give values"):
        attention(q, k)
    with pytest.raises(jax.errors.JaxRuntimeError, match="bias: is fp16.*fp32"):
        jax.block_until_ready(attention(q, k, v, score=ja.score.bias(), tensors={"bias": jnp.ones((8, 8), "float16")}))
    with pytest.raises(jax.errors.JaxRuntimeError, match="k: .*whatever the layout"):
        jax.block_until_ready(attention(q, k[..., :8], v, layout="BHSD"))
    with pytest.raises(NotImplementedError, match="vmap"):
        jax.vmap(lambda q: attention(q, k, v))(q[None])
    slopes = jnp.ones(2, jnp.float32)
    mask = ja.mask.text("return slopes[h] > 0;", name="by_head", tensors={"slopes": "fp32"})
    with pytest.raises(ja.InvalidArgumentError, match="only the mask"):
        jax.grad(lambda s: attention(q, k, v, mask=mask, tensors={"slopes": s}).sum())(slopes)
