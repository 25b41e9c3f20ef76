"""Packs as Python writes and uses them: a process that has one never compiles."""

import os
import pathlib
import re
import subprocess

import jit_attention as ja
import pytest
from seeded import paired, some

PACKS = paired(["training", "serving"], ["sm_80", "sm_90a"])  # and what they are for
SIZES = {"heads_q": 2, "max_batch": 2, "max_seqlen": 64}

CALL = """
import numpy, jit_attention as ja

SHARE = 6  # kernels take long to compile
ja.use_device("emulated:sm_80")
q = numpy.ones((1, 40, 2, 16), numpy.float16)
o = ja.attention(q, q, q, mask={mask})
assert (o == 1).all()
"""


@pytest.fixture
def offline(run_python, tmp_path):
    def run(mask, pack):
        return run_python(CALL.format(mask=mask), JIT_ATTENTION_CACHE_DIR=str(tmp_path / "empty"),
                          JIT_ATTENTION_PACK=str(pack), JIT_ATTENTION_OFFLINE="1")

    return run


def test_a_process_with_the_pack_never_compiles(offline, tmp_path):
    pack = tmp_path / "a.pack"
    padded = ja.mask.causal() & ja.mask.text("return k < 100;", name="short")
    specs = [ja.AttentionSpec(dtype="fp16", head_dim=16, mask=mask) for mask in (ja.mask.causal(), padded)]
    kernels = ja.write_pack(str(pack), specs, ["emulated:sm_80"], **SIZES)
    assert {kernel["spec"] for kernel in kernels} == {"fp16 d16 mask=causal", "fp16 d16 mask=causal && text(short)"}
    assert all(kernel["target"] == "sm_80 as PTX" and kernel["sizes"] > 0 for kernel in kernels)
    assert sum(kernel["bytes"] for kernel in kernels) < pack.stat().st_size
    offline("ja.mask.causal()", pack)
    offline("ja.mask.causal() & ja.mask.text('return k < 100;', name='short')", pack)
    with pytest.raises(Exception, match="is neither in the cache nor in a pack"):
        offline("None", pack)


def another_nvrtc(folder):
    """A folder with this machine's NVRTC under another build id, as another version has it."""
    tool = os.environ.get("JIT_ATTENTION_TOOL")
    if not tool:
        pytest.skip("JIT_ATTENTION_TOOL does not name the program")
    told = subprocess.run([tool, "info"], capture_output=True, text=True, check=True).stdout
    library = pathlib.Path(re.search(r"^  (\S*libnvrtc\S*), version", told, re.MULTILINE).group(1)).resolve()
    for builtins in library.parent.glob("libnvrtc-builtins.so*"):
        (folder / builtins.name).symlink_to(builtins)
    code = bytearray(library.read_bytes())
    note = code.index(b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0")
    code[note + 16] ^= 1
    (folder / "libnvrtc.so.13").write_bytes(code)
    return str(folder)


def test_offline_it_does_not_matter_which_nvrtc_is_installed(run_python, tmp_path):
    """An image with a pack may have another NVRTC, such as the one that PyTorch brings."""
    pack = tmp_path / "a.pack"
    ja.write_pack(str(pack), [ja.AttentionSpec(dtype="fp16", head_dim=16)], ["emulated:sm_80"], **SIZES)
    other = another_nvrtc(tmp_path)
    environment = dict(JIT_ATTENTION_PACK=str(pack), JIT_ATTENTION_NVRTC=other)
    run_python(CALL.format(mask=None), JIT_ATTENTION_CACHE_DIR=str(tmp_path / "empty"), JIT_ATTENTION_OFFLINE="1",
               **environment)
    assert not list(tmp_path.glob("empty/**/*.bin"))
    run_python(CALL.format(mask=None), JIT_ATTENTION_CACHE_DIR=str(tmp_path / "other"), **environment)
    assert list(tmp_path.glob("other/**/*.bin"))  # where compiling is allowed it is this NVRTC's kernel that counts
    # Packs of several NVRTCs, here a model's own beside that of its base image.
    both = tmp_path / "b.pack"
    causal = "ja.AttentionSpec(dtype='fp16', head_dim=16, mask=ja.mask.causal())"
    run_python(f"import jit_attention as ja; ja.write_pack({str(both)!r}, [{causal}], ['emulated:sm_80'], **{SIZES})",
               JIT_ATTENTION_NVRTC=other)
    environment["JIT_ATTENTION_PACK"] = f"{pack}:{both}"
    for mask in ("None", "ja.mask.causal()"):
        run_python(CALL.format(mask=mask), JIT_ATTENTION_CACHE_DIR=str(tmp_path / "empty"),
                   JIT_ATTENTION_OFFLINE="1", **environment)


TRAINING_STEP = """
import numpy, jit_attention as ja
ja.use_device("emulated:{arch}")
rng = numpy.random.default_rng(1)
draw = lambda *shape: rng.standard_normal(shape).astype(numpy.float16)
sinks, slopes = numpy.ones(2, numpy.float32), numpy.ones(2, numpy.float32)
given = dict(mask=ja.mask.causal(), score=ja.score.alibi(), tensors=dict(alibi_slopes=slopes), sinks=sinks)
for length in (40, 7):
    do, q, k, v = (draw(1, length, heads, 64) for heads in (2, 2, 1, 1))
    o, lse = ja.attention(q, k, v, return_lse=True, **given)
    for deterministic in (False, True):
        gradients = ja.attention_backward(do, q, k, v, o, lse, d_sinks=True, d_tensors=["alibi_slopes"],
                                          deterministic=deterministic, **given)
        assert all(numpy.abs(x).max() > 0 for x in (*gradients[:3], *gradients[3].values(), gradients[4]))
"""


@pytest.mark.parametrize("arch", [arch for pack, arch in PACKS if pack == "training"])
def test_a_pack_for_training_has_the_kernels_of_gradients(run_python, tmp_path, arch):
    spec = ja.AttentionSpec(dtype="fp16", head_dim=64, gqa_ratio=2, sinks=True, mask=ja.mask.causal(),
                            score=ja.score.alibi())

    def train(pack):
        return run_python(TRAINING_STEP.format(arch=arch), JIT_ATTENTION_CACHE_DIR=str(tmp_path / "empty"),
                          JIT_ATTENTION_PACK=str(pack), JIT_ATTENTION_OFFLINE="1")

    packs = tmp_path / "forward.pack", tmp_path / "training.pack"
    kernels = [ja.write_pack(str(pack), [spec], [f"emulated:{arch}"], training=pack is packs[1], **SIZES)
               for pack in packs]
    more = {kernel["name"]: kernel for kernel in kernels[1]}.keys() - {kernel["name"] for kernel in kernels[0]}
    assert more and not any(name.startswith("attention_forward") for name in more)
    assert any(kernel["all_sizes"] for kernel in kernels[1]) and not any(kernel["all_sizes"] for kernel in kernels[0])
    train(packs[1])
    with pytest.raises(Exception, match="attention_backward.* is neither in the cache nor in a pack.*--training"):
        train(packs[0])


SERVING_STEPS = """
import numpy, jit_attention as ja
ja.use_device("emulated:{arch}")
rng = numpy.random.default_rng(1)
draw = lambda *shape: rng.standard_normal(shape).astype(numpy.float16)
table = numpy.arange(16, dtype=numpy.int32).reshape(4, 4)
k_pages, v_pages = (numpy.zeros((16, 16, 1, 16), numpy.float16) for _ in "kv")

def step(new):
    q, k, v = draw(sum(new), 2, 16), draw(sum(new), 1, 16), draw(sum(new), 1, 16)
    where = dict(cu_seqlens_q=numpy.cumsum([0, *new], dtype=numpy.int32), page_table=table[:len(new)],
                 seqused_k=numpy.array(new, numpy.int32))
    for rotation in ({{}}, dict(q=q, cos_sin=numpy.ones((64, 16), numpy.float32))):
        ja.append(k, v, k_pages, v_pages, **where, **rotation)
    o, lse = ja.attention(q, k_pages, v_pages, **where, mask=ja.mask.causal(), return_lse=True)
    merged, _ = ja.merge([o, o], [lse, lse])
    assert numpy.allclose(merged.astype("f4"), o.astype("f4"), atol=1e-2) and numpy.abs(o).max() > 0

step([1, 1, 1])
step([50, 33])
step([262, 1, 1, 1])
spec = ja.AttentionSpec(dtype="fp16", head_dim=16, gqa_ratio=2, sequences_q="varlen", sequences_kv="paged",
                        page_size=16, mask=ja.mask.causal())
starts = numpy.array([0, 262, 263, 264, 265], numpy.int32)
kernel = ja.prepare(spec).kernel(draw(265, 2, 16), k_pages, v_pages, cu_seqlens_q=starts, page_table=table,
                                 seqused_k=starts[1:])
assert ("requests=many_queries" in kernel.why) == ("{arch}" == "sm_90a"), kernel.why
"""


@pytest.mark.parametrize("arch", [arch for pack, arch in PACKS if pack == "serving"])
def test_a_pack_for_serving_has_append_merge_and_the_kernels_of_mixed_batches(run_python, tmp_path, arch):
    spec = ja.AttentionSpec(dtype="fp16", head_dim=16, gqa_ratio=2, sequences_q="varlen", sequences_kv="paged",
                            page_size=16, mask=ja.mask.causal())
    packs = tmp_path / "attention.pack", tmp_path / "serving.pack"
    for pack in packs:
        ja.write_pack(str(pack), [spec], [f"emulated:{arch}"], serving=pack is packs[1], **SIZES | {"max_batch": 4})

    def serve(pack):
        return run_python(SERVING_STEPS.format(arch=arch), JIT_ATTENTION_CACHE_DIR=str(tmp_path / "empty"),
                          JIT_ATTENTION_PACK=str(pack), JIT_ATTENTION_OFFLINE="1", JIT_ATTENTION_NVRTC=str(tmp_path))

    serve(packs[1])
    with pytest.raises(Exception, match="append.* is neither in the cache nor in a pack.*--serving"):
        serve(packs[0])


BEYOND = """
import logging
told = []
logging.getLogger("jit_attention").addHandler(type("Kept", (logging.Handler,), {{"emit": lambda _, r: told.append(r)}})())
import numpy, jit_attention as ja
ja.use_device("emulated:{arch}")
rng = numpy.random.default_rng(1)
heads, dim, page = 2, 16, 16
k_pages, v_pages = (rng.standard_normal((70, page, 1, dim)).astype(numpy.float16) for _ in "kv")

def exact(q, keys, values):
    scores = q.astype("f8") @ keys.T / dim**0.5
    weights = numpy.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ values

def check(new, used, columns):
    table = rng.integers(0, 70, (len(new), columns)).astype(numpy.int32)
    q = rng.standard_normal((sum(new), heads, dim)).astype(numpy.float16)
    o = ja.attention(q, k_pages, v_pages, cu_seqlens_q=numpy.cumsum([0, *new], dtype=numpy.int32), page_table=table,
                     seqused_k=numpy.array(used, numpy.int32), mask=ja.mask.causal())
    token = 0
    for request, count in enumerate(new):
        keys, values = (x[table[request]].reshape(-1, dim).astype("f8") for x in (k_pages, v_pages))
        for i in range(count):
            seen = used[request] - count + 1 + i
            assert numpy.allclose(o[token], exact(q[token], keys[:seen], values[:seen]), atol=4e-3)
            token += 1

check([1] * 64, [9 + 3 * i for i in range(64)], 16)
check([1, 200, 3, 1, 40], [256, 230, 3, 77, 200], 64)
check([300] + [1] * 40, [300] + [31] * 40, 24)
assert len([record for record in told if "best kernel of the spec that is there" in record.getMessage()]) == 1
"""


@pytest.mark.parametrize("arch", some(["sm_80", "sm_90a"]))
def test_calls_beyond_the_sizes_of_a_pack_run_a_kernel_that_is_in_it(run_python, tmp_path, arch):
    spec = ja.AttentionSpec(dtype="fp16", head_dim=16, gqa_ratio=2, sequences_q="varlen", sequences_kv="paged",
                            page_size=16, mask=ja.mask.causal())
    pack = tmp_path / "a.pack"
    ja.write_pack(str(pack), [spec], [f"emulated:{arch}"], **SIZES)
    run_python(BEYOND.format(arch=arch), JIT_ATTENTION_CACHE_DIR=str(tmp_path / "empty"),
               JIT_ATTENTION_PACK=str(pack), JIT_ATTENTION_OFFLINE="1", JIT_ATTENTION_NVRTC=str(tmp_path))


TRAINING_BEYOND = """
import numpy, jit_attention as ja
ja.use_device("emulated:{arch}")
rng = numpy.random.default_rng(1)
do, q, k, v = (rng.standard_normal((3, 150, 1, 64)).astype(numpy.float16) for _ in range(4))
o, lse = ja.attention(q, k, v, return_lse=True)
for deterministic in (False, True):
    dq, dk, dv = ja.attention_backward(do, q, k, v, o, lse, deterministic=deterministic)
    weights = numpy.exp(numpy.einsum("bqhd,bkhd->bhqk", q, k, dtype="f8") / 8 - lse[..., None])
    assert numpy.allclose(dv, numpy.einsum("bhqk,bqhd->bkhd", weights, do, dtype="f8"), atol=2e-2)
"""


@pytest.mark.parametrize("arch", some(["sm_80", "sm_90a"], turn=1))
def test_gradients_beyond_the_sizes_of_a_pack_run_kernels_that_are_in_it(run_python, tmp_path, arch):
    pack = tmp_path / "a.pack"
    ja.write_pack(str(pack), [ja.AttentionSpec(dtype="fp16", head_dim=64)], [f"emulated:{arch}"], training=True,
                  heads_q=1, max_batch=1, max_seqlen=1)
    run_python(TRAINING_BEYOND.format(arch=arch), JIT_ATTENTION_CACHE_DIR=str(tmp_path / "empty"),
               JIT_ATTENTION_PACK=str(pack), JIT_ATTENTION_OFFLINE="1")


TOKEN_SCALES = """
import numpy, jit_attention as ja
ja.use_device("emulated:sm_80")
rng = numpy.random.default_rng(1)
draw = lambda *shape: rng.standard_normal(shape).astype(numpy.float16)
rows = numpy.zeros((4, 16, 1, 2 * 20), numpy.uint8)  # as in vLLM: k, its scale, v, its scale
halves = rows[..., :20], rows[..., 20:]
(k_pages, v_pages), (k_scale, v_scale) = zip(*((x[..., :16], x[..., 16:].view(numpy.float32)[..., 0]) for x in halves))
q, k, v, ones = draw(2, 2, 16), draw(2, 1, 16), draw(2, 1, 16), numpy.ones(16, numpy.float16)
where = dict(slot_mapping=numpy.arange(2), k_scale=k_scale, v_scale=v_scale, cache_dtype="fp8_e4m3")
for on_the_way in ({}, dict(q=q, k_norm_weight=ones, q_norm_weight=ones, cos_sin=numpy.ones((64, 16), numpy.float32),
                            positions=numpy.arange(6).reshape(3, 2) % 2, mrope_sections=(4, 2, 2),
                            rotary_interleaved=True)):
    ja.append(k, v, k_pages, v_pages, **where, **on_the_way)
o = ja.attention(q, k_pages, v_pages, cu_seqlens_q=numpy.array([0, 2], numpy.int32), kv_dtype="fp8_e4m3",
                 page_table=numpy.array([[0]], numpy.int32), seqused_k=numpy.array([2], numpy.int32), k_descale=k_scale,
                 v_descale=v_scale, mask=ja.mask.causal())
assert numpy.allclose(o[0], v[0], atol=0.2) and numpy.abs(o).max() > 0
ja.merge([o, o], [numpy.zeros((2, 2), numpy.float32)] * 2)
"""


def test_a_pack_for_serving_has_append_of_token_scales_norm_pairs_and_sections(run_python, tmp_path):
    spec = ja.AttentionSpec(dtype="fp16", head_dim=16, gqa_ratio=2, sequences_q="varlen", sequences_kv="paged",
                            page_size=16, mask=ja.mask.causal(), kv_dtype="fp8_e4m3", descale_per="token", alignment=4)
    pack = tmp_path / "a.pack"
    ja.write_pack(str(pack), [spec], ["emulated:sm_80"], serving=True, norm=True, rotary_interleaved=True,
                  mrope_sections=(4, 2, 2), **SIZES)
    run_python(TOKEN_SCALES, JIT_ATTENTION_CACHE_DIR=str(tmp_path / "empty"), JIT_ATTENTION_PACK=str(pack),
               JIT_ATTENTION_OFFLINE="1")


LATENTS = """
import numpy, jit_attention as ja
ja.use_device("emulated:sm_90a")
rng = numpy.random.default_rng(1)
draw = lambda *shape: rng.standard_normal(shape).astype(numpy.float16)
cache, rows, latents = numpy.zeros((4, 16, 1, 576), numpy.float16), draw(3, 1, 64), draw(3, 1, 512)
q = draw(3, 16, 576)
table = numpy.concatenate([numpy.ones((64, 32)), numpy.zeros((64, 32))], 1).astype(numpy.float32)  # turns nothing
ja.append(rows, latents, cache[..., 512:], cache[..., :512], slot_mapping=numpy.arange(3), q=q[..., 512:], cos_sin=table,
          positions=numpy.arange(3), rotary_interleaved=True)
assert (cache[0, :3] == numpy.concatenate([latents, rows], -1)).all()
o = ja.attention(q, cache, head_dim_v=512, cu_seqlens_q=numpy.array([0, 3], numpy.int32), mask=ja.mask.causal(),
                 page_table=numpy.array([[0]], numpy.int32), seqused_k=numpy.array([3], numpy.int32))
assert numpy.allclose(o[0], latents[0], atol=1e-2)
"""


def test_a_pack_of_latents_stores_and_reads_them(run_python, tmp_path):
    spec = ja.AttentionSpec(dtype="fp16", head_dim=576, head_dim_v=512, gqa_ratio=16, sequences_q="varlen",
                            sequences_kv="paged", page_size=16, values_in_keys=True, mask=ja.mask.causal())
    pack = tmp_path / "a.pack"
    ja.write_pack(str(pack), [spec], ["emulated:sm_90a"], serving=True, rotary_interleaved=True, heads_q=16,
                  max_batch=1, max_seqlen=16)
    run_python(LATENTS, JIT_ATTENTION_CACHE_DIR=str(tmp_path / "empty"), JIT_ATTENTION_PACK=str(pack),
               JIT_ATTENTION_OFFLINE="1")


def test_what_some_targets_cannot_run_is_packed_for_the_others(tmp_path):
    pack = tmp_path / "a.pack"
    latent = ja.AttentionSpec(head_dim=576, head_dim_v=512, gqa_ratio=16, values_in_keys=True)
    sizes = dict(heads_q=16, max_batch=1, max_seqlen=1)
    kernels = ja.write_pack(str(pack), [latent, ja.AttentionSpec(head_dim=16, gqa_ratio=16)],
                            ["emulated:sm_80", "emulated:sm_90a"], **sizes)
    assert {kernel["target"] for kernel in kernels if "d576" in kernel["spec"]} == {"sm_90a as PTX"}
    assert {kernel["target"] for kernel in kernels} == {"sm_80 as PTX", "sm_90a as PTX"}
    with pytest.raises(ja.UnsupportedDeviceError, match="sm_80 cannot run .*head_dim = 576"):
        ja.write_pack(str(pack), [latent], ["emulated:sm_80"], **sizes)


def test_the_container_asks_for_options_that_there_are():
    tool = os.environ.get("JIT_ATTENTION_TOOL")
    if not tool:
        pytest.skip("JIT_ATTENTION_TOOL does not name the program")
    recipe = (pathlib.Path(__file__).parents[2] / "examples" / "container" / "Dockerfile").read_text()
    (command,) = re.findall(r"jit-attention (warm .*?)\n\n", recipe, re.DOTALL)
    offered = subprocess.run([tool, "warm", "--help"], capture_output=True, text=True, check=True).stdout
    options = re.findall(r"--[a-z-]+", command)
    assert {"--serving", "--max-batch"} < set(options) and all(option in offered for option in options)
    assert all(f"ARG {name}=" in recipe for name in re.findall(r"\$\{?([A-Z_]+)", command))


def test_what_has_no_gradients_is_not_packed_for_training(tmp_path):
    pack = tmp_path / "a.pack"
    for wrong in (dict(sequences_kv="paged", page_size=16),):
        with pytest.raises(ja.InvalidSpecError, match="has no backward so far"):
            ja.write_pack(str(pack), [ja.AttentionSpec(**wrong)], ["sm_80"], training=True)
    assert not pack.exists()


def test_what_cannot_be_packed_is_named(tmp_path):
    pack = tmp_path / "a.pack"
    with pytest.raises(ja.InvalidArgumentError, match="sm_70"):
        ja.write_pack(str(pack), [ja.AttentionSpec()], ["sm_70"])
    with pytest.raises(ja.InvalidSpecError, match="head_dim"):
        ja.write_pack(str(pack), [ja.AttentionSpec(head_dim=20)], ["sm_80"])
    for wrong, sentence in ((-2, "rotary_dim is -2"), (7, "rotary_dim"), (512, "rotary_dim")):
        with pytest.raises((ja.InvalidArgumentError, ja.InvalidSpecError), match=sentence):
            ja.write_pack(str(pack), [ja.AttentionSpec(head_dim=16)], ["emulated:sm_80"], serving=True,
                          rotary_dim=wrong, **SIZES)
    with pytest.raises(TypeError):
        ja.write_pack(str(pack), ["causal"], ["sm_80"])
    for specs, targets, sentence in ((iter(()), ["sm_80"], "specs is empty"), ([ja.AttentionSpec()], [], "targets is")):
        with pytest.raises(ja.InvalidArgumentError, match=sentence):
            ja.write_pack(str(pack), specs, targets)
    with pytest.raises(ja.IoError):
        ja.write_pack(str(tmp_path / "none" / "a.pack"), [], ["sm_80"])
    assert not pack.exists()
