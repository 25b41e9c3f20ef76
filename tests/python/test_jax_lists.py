"""jit_attention.jax.block_top_k in compiled functions, against jit_attention.sparse of NumPy's arrays."""

import jit_attention as ja
import ml_dtypes
import numpy
import pytest
from jax_process import jax, jnp, place  # noqa: F401
from jit_attention import _core
from jit_attention.jax import block_top_k
from seeded import some

BF16 = numpy.dtype(ml_dtypes.bfloat16)


def draw(rng, *shape):
    return rng.standard_normal(shape).astype(BF16)


CASES = {
    "rows": dict(block=16),
    "masked": dict(block=32, mask=ja.mask.causal()),
    "of keys": dict(block=1, counts=True),
    "sequences": dict(block=16, mask=ja.mask.causal(), cu_seqlens_q=[0, 9, 9, 30], cu_seqlens_k=[0, 70, 130, 200]),
    "pages": dict(block=16, mask=ja.mask.causal(), pages=True, cu_seqlens_q=[0, 30]),
    "slots of pages": dict(block=16, pages=True, slots=True),
    "sinks": dict(block=64, sinks=True, return_lse=True),
    "score": dict(block=16, score=ja.score.text("return score + 0.1f * bias[k];", name="bias", tensors={"bias": "fp32"})),
}


@pytest.mark.parametrize("case", some(CASES))
def test_as_of_numpy(rng, case):
    options = dict(CASES[case])
    q, k, v = draw(rng, 30, 4, 64), draw(rng, 208, 2, 64), draw(rng, 208, 2, 64)
    indices = rng.integers(-2, 16, (30, 2, 5)).astype(numpy.int32)
    arrays = {name: numpy.array(options.pop(name), numpy.int32) for name in ("cu_seqlens_q", "cu_seqlens_k") if name in options}
    if options.pop("counts", False):
        arrays["counts"] = rng.integers(0, 6, (30, 2)).astype(numpy.int32)
    if options.pop("sinks", False):
        arrays["sinks"] = rng.standard_normal(4).astype(numpy.float32)
    if options.pop("pages", False):
        k, v = (x.reshape(13, 16, 2, 64) for x in (k, v))
        if not options.pop("slots", False):
            arrays["page_table"] = rng.permutation(13)[None].astype(numpy.int32)
            arrays["seqused_k"] = numpy.array([197], numpy.int32)
    tensors = {"bias": rng.standard_normal(208).astype(numpy.float32)} if "score" in options else None
    wanted = ja.sparse.block_top_k(q, k, v, indices, tensors=tensors, **arrays, **options)
    compiled = jax.jit(lambda q, k, v, indices, tensors, arrays: block_top_k(q, k, v, indices, tensors=tensors, **arrays, **options))
    for run in (compiled, compiled):
        got = run(q, k, v, indices, tensors, arrays)
        for one, other in zip(*((x if isinstance(x, tuple) else (x,)) for x in (got, wanted)), strict=True):
            numpy.testing.assert_array_equal(numpy.asarray(one), other)


def test_latents(rng):
    if not ja.supports(None, head_dim=576, head_dim_v=512, values_in_keys=True):
        pytest.skip("latents of this size are read on sm_90a alone")
    q, kv, indices = draw(rng, 3, 8, 576), draw(rng, 100, 1, 576), rng.integers(-1, 100, (3, 1, 70)).astype(numpy.int32)
    got = jax.jit(lambda *x: block_top_k(*x[:2], None, x[2], block=1, head_dim_v=512))(q, kv, indices)
    numpy.testing.assert_array_equal(numpy.asarray(got), ja.sparse.dsa(q, kv, indices))


@pytest.mark.parametrize("changed, match", [
    (dict(cu_seqlens_q=jnp.array([0, 1, 3])), "cu_seqlens_k: is missing beside cu_seqlens_q of 2"),
    (dict(k=jnp.ones((2, 16, 1, 64), jnp.bfloat16), mask=ja.mask.causal()), "page_table: is missing"),
    (dict(q=jnp.ones((1, 3, 2, 64), jnp.bfloat16)), "q: has 4 dimensions; it must have 3"),
    (dict(indices=jnp.ones((3, 2), jnp.int32)), "indices: has 2 dimensions"), (dict(k=None), "k: is None"),
    (dict(block=0), "."), (dict(block=129), "list_block"), (dict(heads=3), "heads")])
def test_bad_arguments(changed, match):
    given = dict(q=jnp.ones((3, 2, 64), jnp.bfloat16), k=jnp.ones((40, 1, 64), jnp.bfloat16),
                 indices=jnp.zeros((3, 1, 2), jnp.int32), block=16) | changed
    q, k, indices = (given.pop(name) for name in ("q", "k", "indices"))
    with pytest.raises((ja.Error, TypeError), match=match):
        block_top_k(q, k, k, indices, **given)


GRADIENTS = {"rows": dict(block=16), "masked": dict(block=32, mask=ja.mask.causal(), score=ja.score.softcap(3.0)),
             "sequences": dict(block=16, mask=ja.mask.causal(), cu_seqlens_q=[0, 9, 9, 14], cu_seqlens_k=[0, 70, 130, 200]),
             "latents": dict(block=1, head_dim_v=48), "slots of pages": dict(block=16, pages=True), "sinks": dict(block=64, sinks=True)}


@pytest.mark.parametrize("case", some(GRADIENTS, 4))
def test_gradients(rng, case):
    """Those of the function that C++ and PyTorch have, of what the forward pass has kept."""
    options = dict(GRADIENTS[case])
    is_latent = "head_dim_v" in options
    if is_latent and not ja.supports(None, head_dim=64, head_dim_v=48, values_in_keys=True):
        pytest.skip("latents are read on sm_90a alone")
    heads = 1 if is_latent else 2
    given = dict(q=draw(rng, 16, 4, 64), k=draw(rng, 208, heads, 64))
    if not is_latent:
        given["v"] = draw(rng, 208, 2, 64)
    indices = rng.integers(-2, 208 if is_latent else 16, (16, heads, 5)).astype(numpy.int32)
    arrays = {name: numpy.array(options.pop(name), numpy.int32) for name in ("cu_seqlens_q", "cu_seqlens_k") if name in options}
    if options.pop("sinks", False):
        given["sinks"] = rng.standard_normal(4).astype(numpy.float32)
    if has_pages := options.pop("pages", False):
        given |= {name: given[name].reshape(13, 16, 2, 64) for name in ("k", "v")}
    do, dlse = draw(rng, 16, 4, 48 if is_latent else 64), rng.standard_normal((4, 16)).astype(numpy.float32)

    def compute(given):
        return block_top_k(given["q"], given["k"], given.get("v"), indices, sinks=given.get("sinks"), return_lse=True, **arrays, **options)

    (o, lse), pull = jax.vjp(jax.jit(compute), {name: jnp.asarray(x) for name, x in given.items()})
    got = {name: numpy.asarray(x) for name, x in pull((jnp.asarray(do), jnp.asarray(dlse)))[0].items()}
    rows = {name: given[name].reshape(208, heads, 64) for name in ("k", "v") if name in given}
    options |= dict(list_block=options.pop("block"), list_slots="cu_seqlens_k" not in arrays and "mask" not in options)
    spec = ja.AttentionSpec(head_dim=64, gqa_ratio=4 // heads, sequences_q="varlen", sequences_kv="varlen", sinks="sinks" in given,
                            values_in_keys=is_latent, **options)
    ends = dict(cu_seqlens_q=numpy.int32([0, 16]), cu_seqlens_k=numpy.int32([0, 0 if has_pages else 208])) | arrays
    tensors = dict(key_lists=indices, key_counts=numpy.int32([[5]]))
    right = _core._list_gradients(do, given["q"], rows["k"], rows.get("v"), numpy.asarray(o), numpy.asarray(lse), spec, tensors=tensors,
                                  dlse=dlse, sinks=given.get("sinks"), d_sinks="sinks" in given, **ends)
    wanted = {name: x for name, x in zip(("q", "k", "v", "sinks"), right) if x is not None}
    assert got.keys() == wanted.keys()
    for name, x in got.items():
        assert x.shape == given[name].shape and numpy.abs(x.astype(float)).max() > 0, name
        numpy.testing.assert_array_equal(x, wanted[name].reshape(x.shape), err_msg=name)


def test_gradients_are_refused(rng):
    q, k, indices = draw(rng, 3, 2, 64), draw(rng, 48, 1, 64), numpy.zeros((3, 1, 2), numpy.int32)
    score = ja.score.text("return score + bias[k];", name="bias", tensors={"bias": "fp32"})

    def sum_of(q, bias=None, k=k, **options):
        return block_top_k(q, k, k, indices, block=16, tensors=bias, **options).astype(jnp.float32).sum()

    with pytest.raises(ja.InvalidArgumentError, match="page_table: was given, and a gradient is wanted"):
        jax.grad(lambda q: sum_of(q, k=k.reshape(3, 16, 1, 64), page_table=jnp.arange(3, dtype=jnp.int32)[None], seqused_k=jnp.int32([48]),
                                  mask=ja.mask.causal()))(jnp.asarray(q))
    with pytest.raises(ja.InvalidArgumentError, match="tensors: a gradient of 'bias' is wanted, and gradients from lists"):
        jax.grad(lambda bias: sum_of(q, {"bias": bias}, score=score))(jnp.zeros(48, jnp.float32))
