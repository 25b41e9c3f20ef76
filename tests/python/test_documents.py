"""The Python in the documents runs."""

import pathlib
import re

import jit_attention as ja
import numpy
import pytest
from exact_attention import DTYPES, random_qkv

PAGES = ("python", "frameworks", "masks", "serving", "batch-invariance", "outputs", "kv-caches", "mla", "append", "gradients",
         "reference/trees")
SHARE = 12  # kernels take long to compile

SMALL_SPEC = 'ja.AttentionSpec(dtype="fp16", head_dim=16)'
FEW_SIZES = "heads_q=2, max_batch=2, max_seqlen=64"
ROOT = pathlib.Path(__file__).resolve().parents[2]


def snippets():
    for document in ("README", *(f"docs/{page}" for page in PAGES)):
        text = (ROOT / f"{document}.md").read_text()
        for match in re.finditer(r"```python\n(.*?)```", text, re.DOTALL):
            line = text[: match.start()].count("\n") + 1
            yield pytest.param(match.group(1), id=f"{document}.md:{line}")


def test_there_are_snippets():
    assert len(list(snippets())) >= 4


@pytest.mark.parametrize("snippet", list(snippets()))
def test_snippet_runs(snippet, place, emulated, rng, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if emulated:  # which has no time to measure, and the kernels of all sizes take minutes to compile
        snippet = snippet.replace('device="cuda"', 'device="cpu"').replace("4096", "64")
        snippet = re.sub(r"^ja\.tune\(.*$", "", snippet, flags=re.MULTILINE)
        snippet = re.sub(r"^(ja\.write_pack\(.*\[)spec(\], .*)(\).*)$", rf"\1{SMALL_SPEC}\2, {FEW_SIZES}\3", snippet,
                         flags=re.MULTILINE)
    q, k, v = map(
        place, random_qkv(rng, seqlen_q=32, seqlen_kv=32, heads_q=8, heads_kv=2, head_dim=128, dtype="bf16")
    )
    names = {
        "ja": ja,
        "q": q,
        "k": k,
        "v": v,
        "do": place(rng.standard_normal((1, 32, 8, 128)).astype(DTYPES["bf16"])),
        "key_pages": k.reshape(2, 16, 2, 128),
        "value_pages": v.reshape(2, 16, 2, 128),
        "page_table": place(numpy.array([[1, 0]], numpy.int32)),
        "seqused_k": place(numpy.array([31], numpy.int32)),
        "cu_seqlens": place(numpy.array([0, 5, 32], numpy.int32)),
        "draft_tree": place(rng.integers(-(2**31), 2**31, (32, 1), numpy.int32)),
        "slopes": place(numpy.full(8, 0.5, numpy.float32)),
        "bias": place(numpy.zeros((1, 8, 1, 32), DTYPES["bf16"])),
        "sinks": place(numpy.zeros(8, numpy.float32)),
        "dlse": place(numpy.zeros((1, 8, 32), numpy.float32)),
        "rng_state": place(numpy.array([42, 0])),
        "ids": place(numpy.zeros((1, 32), numpy.int32)),
        "k_cache": place(numpy.zeros((4, 16, 2, 128), DTYPES["bf16"])),
        "v_cache": place(numpy.zeros((4, 16, 2, 128), DTYPES["bf16"])),
        "fp8_keys": place(numpy.zeros((2, 16, 2, 128), numpy.uint8)),
        "fp8_values": place(numpy.zeros((2, 16, 2, 128), numpy.uint8)),
        "k_scale": place(numpy.ones(2, numpy.float32)),
        "v_scale": place(numpy.ones(2, numpy.float32)),
        "k_row_scales": place(numpy.ones((2, 16, 2), numpy.float32)),
        "v_row_scales": place(numpy.ones((2, 16, 2), numpy.float32)),
        "slots": place(numpy.arange(32)),
        "cos_sin": place(numpy.ones((64, 128), numpy.float32)),
        "positions": place(numpy.arange(32)),
    }
    if "residual" in snippet:
        names["gate"], names["x"] = (place(rng.standard_normal(q.shape).astype(DTYPES["bf16"])) for _ in "gx")
    if "latent_pages" in snippet:
        names["q"] = place(rng.standard_normal((1, 1, 16, 576)).astype(DTYPES["bf16"]))
        names["latent_pages"] = place(rng.standard_normal((2, 64, 1, 576)).astype(DTYPES["bf16"]))
    if "k_pe" in snippet:  # 32 tokens of latents
        sizes = {"q": (32, 16, 576), "k_pe": (32, 1, 64), "latents": (32, 1, 512)}
        names |= {name: place(rng.standard_normal(shape).astype(DTYPES["bf16"])) for name, shape in sizes.items()}
        names["cos_sin"] = place(numpy.ones((64, 64), numpy.float32))
    if "latent_656" in snippet:
        names["q"] = place(rng.standard_normal((1, 1, 16, 576)).astype(DTYPES["bf16"]))
        names["rows"] = place(numpy.zeros((2, 64, 1, 656), numpy.uint8))
    if "import torch\n" in snippet:
        pytest.importorskip("torch", reason="needs PyTorch")
    if "register_continuous_batching" in snippet:
        names["folder"] = folder_of_a_model(tmp_path / "model")
    if "jit_attention.jax" in snippet:
        names |= arrays_of_jax(emulated, q=q, k=k, v=v)
    exec(compile(snippet, "snippet", "exec"), names)


def arrays_of_jax(emulated, **arrays):
    jax = pytest.importorskip("jax", reason="needs JAX")
    if (jax.default_backend() == "cpu") != emulated:
        pytest.skip("JAX and this library compute in different places")
    own = {name: jax.numpy.from_dlpack(array) if not emulated else jax.numpy.asarray(array)
           for name, array in arrays.items()}
    return own | dict(jax=jax, jnp=jax.numpy, bias=jax.numpy.zeros((1, 8, 32, 32), "bfloat16"))


def folder_of_a_model(folder):
    """A tiny Llama, for Transformers whose continuous batching can be served."""
    transformers = pytest.importorskip("transformers", "5.23", reason="needs transformers 5.23")
    config = transformers.LlamaConfig(vocab_size=100, hidden_size=64, intermediate_size=96, num_hidden_layers=1,
                                      num_attention_heads=4, num_key_value_heads=2)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder
