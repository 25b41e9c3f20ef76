"""Values of fp8 that lie along the sequence: the form follows from strides; the tool lays them out."""

import os
import subprocess

import jit_attention as ja
import ml_dtypes
import numpy
import pytest
from fp8_caches import FP8

SHARE = 2  # kernels take long to compile


@pytest.fixture(autouse=True)
def on_hopper(emulated):
    if not emulated:
        pytest.skip("NumPy's fp8 cannot be carried to a GPU")
    if ja.devices()[0].arch != "sm_90a":
        pytest.skip("v along the sequence needs sm_90a")


def along_sequence(v, pitch):
    """The same numbers with rows of `pitch` keys, of which those behind the last one are NaN."""
    batch, seqlen, heads, head_dim = v.shape
    rows = numpy.full((batch, heads, head_dim, pitch), 0x7F, numpy.uint8).view(v.dtype)
    rows[..., :seqlen] = v.transpose(0, 2, 3, 1)
    return rows[..., :seqlen].transpose(0, 3, 1, 2)


@pytest.mark.parametrize("name", FP8)
@pytest.mark.parametrize("layout", ["BSHD", "BHSD"])
def test_strides_say_which_form_it_is(rng, name, layout):
    q = rng.standard_normal((2, 20, 4, 32)).astype(FP8[name])
    k, v = (rng.standard_normal((2, 70, 2, 32)).astype(FP8[name]) for _ in "kv")
    along = along_sequence(v, 80)
    options = dict(mask=ja.mask.causal(), return_lse=True, v_descale=numpy.full(1, 0.5, numpy.float32))
    expected, lse = ja.attention(q, k, v, **options)
    swap = (lambda x: x.swapaxes(1, 2)) if layout == "BHSD" else (lambda x: x)
    o, own_lse = ja.attention(*(swap(x) for x in (q, k, along)), layout=layout, **options)
    # The same products, summed in another order.
    assert numpy.allclose(swap(o).astype(float), expected.astype(float), rtol=0, atol=0.02)
    assert numpy.allclose(own_lse, lse, atol=1e-3)


def test_sinks(rng):
    q, k, v = (rng.standard_normal((2, 70, 2, 32)).astype(FP8["fp8_e4m3"]) for _ in "qkv")
    options = dict(sinks=numpy.array([0.5, 2.0], numpy.float32), mask=ja.mask.causal(), return_lse=True, out_dtype="fp32")
    expected, lse = ja.attention(q, k, v, **options)  # may be of a family whose P is of fp16
    o, own_lse = ja.attention(q, k, along_sequence(v, 80), **options)
    assert numpy.allclose(o, expected, rtol=0, atol=0.06) and numpy.allclose(own_lse, lse, atol=1e-3)
    assert not numpy.allclose(own_lse, ja.attention(q, k, v, **dict(options, sinks=None))[1], atol=0.1)
    with pytest.raises(ja.errors.InvalidArgumentError, match="all sequences have one length"):
        ja.attention(q, k, along_sequence(v, 80), **options, cache_leftpad=numpy.zeros(2, numpy.int32))


def test_a_spec_wants_what_it_says(rng):
    q, k, v = (rng.standard_normal((1, 48, 2, 32)).astype(FP8["fp8_e4m3"]) for _ in "qkv")
    along = along_sequence(v, 48)
    spec = ja.AttentionSpec(dtype="fp8_e4m3", head_dim=32, v_along_sequence=True)
    attention = ja.prepare(spec, q, k, along)
    assert numpy.array_equal(attention(q, k, along).view("u2"), ja.attention(q, k, along).view("u2"))
    with pytest.raises(ja.errors.InvalidArgumentError, match="along seqlen; it must be 1, as v_along_sequence"):
        attention(q, k, v)


def test_the_tool_lays_values_out(rng, tmp_path):
    arrays = {n: rng.standard_normal((2, s, 2, 32)).astype(FP8["fp8_e4m3"]) for n, s in zip("qkv", (20, 70, 70))}
    for name, array in arrays.items():
        numpy.save(tmp_path / f"{name}.npy", array.view("u1"))
    files = [word for n in "qkv" for word in (f"--{n}", str(tmp_path / f"{n}.npy"))]
    results = []
    for more in ([], ["--v-along-sequence"]):
        out = tmp_path / f"o{len(more)}.npy"
        command = [os.environ["JIT_ATTENTION_TOOL"], "run", *files, "--dtype", "fp8_e4m3", "--out", str(out), *more]
        environment = dict(os.environ, JIT_ATTENTION_DEVICE="emulated:sm_90a")
        subprocess.run(command, check=True, capture_output=True, env=environment)
        results.append(numpy.load(out))
    assert numpy.allclose(*results, rtol=0, atol=0.02)
    o = ja.attention(arrays["q"], arrays["k"], along_sequence(arrays["v"], 80), out_dtype="fp32")
    assert numpy.array_equal(results[1], o)


def test_the_tool_quantises_and_lays_values_out(rng, tmp_path):
    arrays = {n: rng.standard_normal((1, 70, 2, 32)).astype(numpy.float32) for n in "qkv"}
    for name, array in arrays.items():
        numpy.save(tmp_path / f"{name}.npy", array)
    files = [word for n in "qkv" for word in (f"--{n}", str(tmp_path / f"{n}.npy"))]
    results = []
    for more in ([], ["--v-along-sequence"]):
        out = tmp_path / f"o{len(more)}.npy"
        command = [os.environ["JIT_ATTENTION_TOOL"], "run", *files, "--quantize", "head", "--out", str(out), *more]
        environment = dict(os.environ, JIT_ATTENTION_DEVICE="emulated:sm_90a")
        subprocess.run(command, check=True, capture_output=True, env=environment)
        results.append(numpy.load(out))
    assert numpy.abs(results[0]).max() > 0.1 and numpy.allclose(*results, rtol=0, atol=0.02)


def test_what_cannot_be_served_is_refused(rng):
    q, k, v = (rng.standard_normal((1, 40, 2, 32)).astype(FP8["fp8_e4m3"]) for _ in "qkv")
    with pytest.raises(ja.errors.InvalidSpecError, match="pad the rows of v to a multiple of 16 keys"):
        ja.attention(q, k, along_sequence(v, 40))
    lengths = numpy.full(1, 30, numpy.int32)
    with pytest.raises(ja.errors.InvalidArgumentError, match="all sequences have one length"):
        ja.attention(q, k, along_sequence(v, 48), seqused_k=lengths)
    wide = [x.astype(ml_dtypes.bfloat16) for x in (q, k, v)]
    wide[2] = numpy.ascontiguousarray(wide[2].transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    with pytest.raises(ja.errors.InvalidArgumentError, match="along head_dim; it must be 1"):
        ja.attention(*wide)
    (refusal,) = ja.supports("sm_89", dtype="fp8_e4m3", v_along_sequence=True)
    assert (refusal.field, refusal.nearest) == ("v_along_sequence", "false")
