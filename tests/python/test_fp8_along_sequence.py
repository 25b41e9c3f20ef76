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


NAN = 0x7F


def poison_behind(x, lengths):
    for entry, length in zip(x, lengths):
        entry[length:].view("u1")[...] = NAN


def check_alike(q, k, v, along, **options):
    expected, lse = ja.attention(q, k, v, **options, return_lse=True, out_dtype="fp32")
    o, own_lse = ja.attention(q, k, along, **options, return_lse=True, out_dtype="fp32")
    assert numpy.isfinite(o).all() and numpy.abs(o).max() > 0.1
    # That of v with a row for each key may be of a family whose P is of fp16.
    assert numpy.allclose(o, expected, rtol=0, atol=0.08) and numpy.allclose(own_lse, lse, atol=1e-3)


@pytest.mark.parametrize("layout", ["BSHD", "BHSD"])
def test_lengths_on_the_device(rng, layout):
    q, k, v = (rng.standard_normal((3, s, h, 32)).astype(FP8["fp8_e4m3"]) for s, h in ((20, 4), (70, 2), (70, 2)))
    used = numpy.array([70, 33, 1], numpy.int32)
    for x in (k, v):
        poison_behind(x, used)
    swap = (lambda x: x.swapaxes(1, 2)) if layout == "BHSD" else (lambda x: x)
    arrays = (swap(x) for x in (q, k, v, along_sequence(v, 80)))
    check_alike(*arrays, layout=layout, seqused_k=used, mask=ja.mask.causal())


def test_padding_on_the_left(rng):
    q, k, v = (rng.standard_normal((3, 20 if x == "q" else 70, 2, 32)).astype(FP8["fp8_e4m3"]) for x in "qkv")
    pads = numpy.array([0, 16, 48], numpy.int32)
    for x in (k, v):
        for entry, pad in zip(x, pads):
            entry[:pad].view("u1")[...] = NAN
    used = numpy.full(3, 69, numpy.int32)
    check_alike(q, k, v, along_sequence(v, 80), cache_leftpad=pads, seqused_k=used)
    # TMA cannot begin elsewhere: no keys then, as a row for each key has them where the padding is all there is.
    along = along_sequence(v, 80)
    hidden = numpy.array([0, 16, 69], numpy.int32)
    options = dict(seqused_k=used, return_lse=True, out_dtype="fp32")
    for pad in (47, 68):
        o, lse = ja.attention(q, k, along, cache_leftpad=numpy.array([0, 16, pad], numpy.int32), **options)
        expected, expected_lse = ja.attention(q, k, along, cache_leftpad=hidden, **options)
        assert numpy.array_equal(o, expected) and numpy.array_equal(lse, expected_lse)
        assert not o[2].any() and (lse[2] == -numpy.inf).all() and o[1].any()


def test_ragged_sequences(rng):
    bounds = numpy.array([16, 48, 64, 135], numpy.int32)  # rows before, between and behind are nobody's
    q, k, v = (rng.standard_normal((140, h, 32)).astype(FP8["fp8_e4m3"]) for h in (4, 2, 2))
    used = numpy.array([30, 1, 70], numpy.int32)
    for x in (k, v):
        for outside in (x[:16], x[46:48], x[49:64], x[134:]):
            outside.view("u1")[...] = NAN
    rows = numpy.full((2, 32, 144), NAN, numpy.uint8).view(v.dtype)
    rows[..., :140] = v.transpose(1, 2, 0)
    along = rows[..., :140].transpose(2, 0, 1)
    options = dict(cu_seqlens_q=bounds, cu_seqlens_k=bounds, seqused_k=used, zero_padding=True)
    check_alike(q, k, v, along, **options, mask=ja.mask.causal())


def test_ragged_sequences_begin_where_tma_can(rng):
    q, k, v = (rng.standard_normal((100, h, 32)).astype(FP8["fp8_e4m3"]) for h in (4, 2, 2))
    along = numpy.zeros((2, 32, 112), v.dtype)
    along[..., :100] = v.transpose(1, 2, 0)
    along = along[..., :100].transpose(2, 0, 1)
    bounds = {f"cu_seqlens_{x}": numpy.array([0, 40, 64, 100], numpy.int32) for x in "qk"}
    o, lse = ja.attention(q, k, along, **bounds, return_lse=True, out_dtype="fp32")
    others = [*range(40), *range(64, 100)]
    expected = ja.attention(q, k, v, **bounds, out_dtype="fp32")
    assert not o[40:64].any() and (lse[:, 40:64] == -numpy.inf).all() and expected[40:64].any()
    assert numpy.allclose(o[others], expected[others], rtol=0, atol=0.08)
    spec = ja.AttentionSpec(dtype="fp8_e4m3", head_dim=32, gqa_ratio=2, sequences_q="ragged", sequences_kv="ragged",
                            v_along_sequence=True, checked=True)  # fmt: skip
    checked = ja.prepare(spec)
    with pytest.raises(ja.errors.InvalidArgumentError, match="begin each sequence that has keys at a multiple") as refused:
        checked(q, k, along, **bounds)
    assert refused.value.field == "cu_seqlens_k" and "element [1], of request 1, is 40" in str(refused.value)
    bounds["cu_seqlens_k"][2] = 40  # a sequence without keys may lie anywhere
    bounds["cu_seqlens_k"][3] = 40
    checked(q, k, along, **bounds)


@pytest.mark.parametrize("page_size", [32, 64, 160])
def test_pages(rng, page_size):
    q = rng.standard_normal((3, 20, 4, 32)).astype(FP8["fp8_e4m3"])
    k, v = (rng.standard_normal((9, page_size, 2, 32)).astype(FP8["fp8_e4m3"]) for _ in "kv")
    used = numpy.array([2 * page_size, 0, page_size + 7], numpy.int32)
    table = numpy.array([[5, 2], [-1, 99], [7, 0]], numpy.int32)
    for x in (k, v):
        x[0, 7:].view("u1")[...] = NAN
        x[[1, 3, 4, 6, 8]].view("u1")[...] = NAN  # nobody's
    along = along_sequence(v, page_size)
    check_alike(q, k, v, along, page_table=table, seqused_k=used, mask=ja.mask.causal())


@pytest.mark.parametrize("ragged", [False, True])
def test_the_quantiser_makes_what_lengths_want(rng, ragged):
    used_q, used_k = numpy.array([20, 7], numpy.int32), numpy.array([51, 77], numpy.int32)
    q, k, v = (rng.standard_normal((2, s, 2, 32)).astype(ml_dtypes.bfloat16) for s in (20, 80, 80))
    for x, used in ((q, used_q), (k, used_k), (v, used_k)):
        for entry, length in zip(x, used):
            entry[length:] = numpy.nan
    lengths = dict(seqused_q=used_q, seqused_k=used_k)
    if ragged:
        q, k, v = (x.reshape(-1, *x.shape[2:]) for x in (q, k, v))
        lengths["cu_seqlens_q"] = numpy.array([0, 20, 40], numpy.int32)
        lengths["cu_seqlens_k"] = numpy.array([0, 80, 160], numpy.int32)
    options = dict(scales="head", center_values=True, **lengths)
    rows, along = (ja.quantize_qkv(q, k, v, **options, v_along_sequence=turns) for turns in (False, True))
    results = [ja.attention(z.q, z.k, z.v, **z.scales, **lengths, zero_padding=True, out_dtype="fp32") for z in (rows, along)]
    assert numpy.isfinite(results[1]).all() and numpy.abs(results[1]).max() > 0.1
    assert numpy.allclose(*results, rtol=0, atol=0.08)


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


@pytest.mark.parametrize("quantised", [False, True])
def test_the_tool_reads_ragged_sequences_and_pages(rng, tmp_path, quantised):
    dtype = numpy.float32 if quantised else FP8["fp8_e4m3"]
    ragged = [rng.standard_normal((s, 2, 32)).astype(dtype) for s in (20, 70, 70)]
    cases = [(ragged, ["--seqlens-q", "13,7", "--seqlens-kv", "48,22"])]
    if not quantised:
        pages = [rng.standard_normal((3, 64, 2, 32)).astype(dtype) for _ in "kv"]
        numpy.save(tmp_path / "table.npy", numpy.array([[2, 0]], numpy.int32))
        cases.append(([ragged[0][None], *pages], ["--page-table", str(tmp_path / "table.npy"), "--seqlens-kv", "90"]))
    for arrays, more in cases:
        for name, array in zip("qkv", arrays):
            numpy.save(tmp_path / f"{name}.npy", array if quantised else array.view("u1"))
        files = [word for n in "qkv" for word in (f"--{n}", str(tmp_path / f"{n}.npy"))]
        kind = ["--quantize", "head"] if quantised else ["--dtype", "fp8_e4m3"]
        results = []
        for along in ([], ["--v-along-sequence"]):
            out = tmp_path / "o.npy"
            command = [os.environ["JIT_ATTENTION_TOOL"], "run", *files, *kind, "--out", str(out), *more, *along]
            environment = dict(os.environ, JIT_ATTENTION_DEVICE="emulated:sm_90a")
            subprocess.run(command, check=True, capture_output=True, env=environment)
            results.append(numpy.load(out))
        assert numpy.abs(results[0]).max() > 0.1 and numpy.allclose(*results, rtol=0, atol=0.08)


@pytest.mark.parametrize(
    "shape, more, words",
    [
        ((70, 2, 32), ["--seqlens-q", "50,20", "--seqlens-kv", "37,33"], "sequence 1 begins at row 37 of --k, by --seqlens-kv"),
        ((2, 70, 2, 32), ["--cache-leftpad", "16,17"], "sequence 1 begins at row 17 of --k, by --cache-leftpad"),
    ],
)
def test_the_tool_refuses_sequences_that_begin_elsewhere(tmp_path, shape, more, words):
    numpy.save(tmp_path / "x.npy", numpy.zeros(shape, numpy.uint8))
    files = [word for n in "qkv" for word in (f"--{n}", str(tmp_path / "x.npy"))]
    command = [os.environ["JIT_ATTENTION_TOOL"], "run", *files, "--dtype", "fp8_e4m3", "--out", str(tmp_path / "o.npy")]
    environment = dict(os.environ, JIT_ATTENTION_DEVICE="emulated:sm_90a")
    run = subprocess.run([*command, *more, "--v-along-sequence"], capture_output=True, text=True, env=environment)
    assert run.returncode != 0 and words in run.stderr and "or leave --v-along-sequence out" in run.stderr
    assert not (tmp_path / "o.npy").exists()


def test_what_cannot_be_served_is_refused(rng):
    q, k, v = (rng.standard_normal((1, 40, 2, 32)).astype(FP8["fp8_e4m3"]) for _ in "qkv")
    with pytest.raises(ja.errors.InvalidSpecError, match="pad the rows of v to a multiple of 16 keys"):
        ja.attention(q, k, along_sequence(v, 40))
    pages = [rng.standard_normal((3, 48, 2, 32)).astype(FP8["fp8_e4m3"]) for _ in "kv"]
    table = dict(page_table=numpy.zeros((1, 1), numpy.int32), seqused_k=numpy.full(1, 30, numpy.int32))
    with pytest.raises(ja.errors.InvalidSpecError, match="pages of a multiple of 32 keys, and page_size is 48"):
        ja.attention(q, pages[0], along_sequence(pages[1], 48), **table)
    pages = [x[:, :32] for x in pages]
    with pytest.raises(ja.errors.InvalidArgumentError, match="cache_leftpad: was given beside pages"):
        ja.attention(q, pages[0], along_sequence(pages[1], 32), **table, cache_leftpad=numpy.zeros(1, numpy.int32))
    wide = [x.astype(ml_dtypes.bfloat16) for x in (q, k, v)]
    wide[2] = numpy.ascontiguousarray(wide[2].transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    with pytest.raises(ja.errors.InvalidArgumentError, match="along head_dim; it must be 1"):
        ja.attention(*wide)
    (refusal,) = ja.supports("sm_89", dtype="fp8_e4m3", v_along_sequence=True)
    assert (refusal.field, refusal.nearest) == ("v_along_sequence", "false")
