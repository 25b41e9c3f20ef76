"""Continuous batching of Transformers over jit_attention, against models that answer one prompt at a time."""

import copy

import jit_attention as ja
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
transformers = pytest.importorskip("transformers", reason="needs transformers")
batching = pytest.importorskip("transformers.generation.continuous_batching", reason="needs continuous batching")

import jit_attention.torch.transformers_paged as integration  # noqa: E402
from jit_attention.torch import register_continuous_batching, register_with_transformers  # noqa: E402

register_with_transformers()
NAMES = {"varlen": "jit_flash_attention_3", "pages": "jit_flash_attention_2"}
try:
    for registered in 2 * list(NAMES.values()):
        register_continuous_batching(registered)
except ImportError as error:
    pytest.skip(str(error), allow_module_level=True)

SIZES = dict(vocab_size=100, hidden_size=64, num_attention_heads=4, num_key_value_heads=2, intermediate_size=96,
             num_hidden_layers=2, initializer_range=0.3, pad_token_id=0, bos_token_id=1, eos_token_id=2,
             head_dim=16)  # fmt: skip
MODELS = {
    "llama": (transformers.LlamaForCausalLM, transformers.LlamaConfig(**SIZES)),
    "mistral": (transformers.MistralForCausalLM, transformers.MistralConfig(sliding_window=8, **SIZES)),
    "gemma2": (
        transformers.Gemma2ForCausalLM,
        transformers.Gemma2Config(sliding_window=8, query_pre_attn_scalar=10, attn_logit_softcapping=2.0, **SIZES),
    ),
    "gpt_oss": (
        transformers.GptOssForCausalLM,
        transformers.GptOssConfig(sliding_window=8, num_local_experts=2, num_experts_per_tok=2, **SIZES),
    ),
}


def test_a_transformers_that_asks_for_other_names_is_refused(monkeypatch):
    monkeypatch.setattr("transformers.__version__", "5.22.1")
    with pytest.raises(ImportError, match="needs transformers 5.23 or 5.24, and there is: transformers 5.22.1"):
        register_continuous_batching(NAMES["varlen"])


@pytest.fixture
def device(emulated):
    torch._dynamo.reset()
    torch.manual_seed(2024)  # greedy tokens are compared: no ties among the logits of this seed
    return "cpu" if emulated else "cuda"


def model_of(kind, device):
    make, config = MODELS[kind]
    model = make(copy.deepcopy(config)).to(device, torch.bfloat16).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("sinks"):
            parameter.data.normal_(std=2)
    return model


def alone(model, prompt, new):
    model.set_attn_implementation("eager")
    tokens = torch.tensor([prompt], device=model.device)
    o = model.generate(tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=new, do_sample=False)
    return o[0, len(prompt) :].tolist()


@pytest.mark.parametrize("by", NAMES)
@pytest.mark.parametrize("kind", MODELS)
def test_requests_get_the_tokens_of_each_by_itself(kind, by, device, monkeypatch):
    if by == "pages" and kind != "llama":
        pytest.skip("Transformers makes no table of pages for layers with windows")
    model = model_of(kind, device)
    prompts = [torch.randint(5, 90, (n,)).tolist() for n in (3, 21, 40, 7)]
    expected = [alone(model, prompt, 6) for prompt in prompts]
    seen = []
    for name in ("attention", "append"):
        original = getattr(integration, name)
        spy = lambda *arrays, name=name, original=original, **keywords: (
            seen.append((name, keywords)),
            original(*arrays, **keywords),
        )[1]
        monkeypatch.setattr(integration, name, spy)
    if by == "pages" and device == "cpu":  # Transformers has tables of pages on devices alone that it knows
        monkeypatch.setattr(batching.initialization, "is_torch_xpu_available", lambda: True)
    if getattr(model, "_compatible_flash_implementations", None):
        model._compatible_flash_implementations = [NAMES[by]]
    model.set_attn_implementation(NAMES[by])
    generation = transformers.GenerationConfig(max_new_tokens=6, do_sample=False, eos_token_id=2, pad_token_id=0)
    of_page = "page_size" if hasattr(transformers.ContinuousBatchingConfig(), "page_size") else "block_size"
    sizes = transformers.ContinuousBatchingConfig(
        **{of_page: 16}, num_blocks=32, max_batch_tokens=32, max_requests_per_batch=4, use_cuda_graph=False,
        max_blocks_per_request=8 if by == "pages" else 0,
    )  # fmt: skip
    results = model.generate_batch(prompts, generation_config=generation, continuous_batching_config=sizes,
                                   warmup=False)  # fmt: skip
    answers = {tuple(result.prompt_ids): list(result.generated_tokens) for result in results.values()}
    assert [answers[tuple(prompt)] for prompt in prompts] == expected
    varlen = [keywords for name, keywords in seen if "cu_seqlens_k" in keywords]
    assert any(len(keywords["cu_seqlens_q"]) > 2 for keywords in varlen)
    assert any(name == "append" for name, _ in seen) == (by == "pages")
    if kind == "gpt_oss":
        assert all(keywords["sinks"] is not None for keywords in varlen)
    assert {str(keywords["mask"]) for keywords in varlen} == {
        "llama": {"causal"}, "mistral": {"sliding_window(7)"}, "gemma2": {"causal", "sliding_window(7)"},
        "gpt_oss": {"causal", "sliding_window(7)"},
    }[kind]  # fmt: skip


@pytest.mark.parametrize("side", ["none", "left"])
def test_sinks_outside_of_continuous_batching(side, device):
    model = model_of("gpt_oss", device)
    tokens = torch.randint(5, 90, (2, 24), device=device)
    kept = torch.ones_like(tokens)
    kept[0, : 7 if side == "left" else 0] = 0
    results = {}
    for name, dtype in (("eager", torch.float32), ("eager", torch.bfloat16), ("jit_attention", torch.bfloat16)):
        own = copy.deepcopy(model).to(dtype)
        own.set_attn_implementation(name)
        logits = own(tokens, attention_mask=kept).logits
        logits[kept.bool()].float().square().mean().backward()
        sinks = torch.cat([layer.self_attn.sinks.grad.float() for layer in own.model.layers])
        results[name, dtype] = logits[kept.bool()].detach().float(), sinks
    exact, eager, ours = results.values()
    for mine, theirs, right in zip(ours, eager, exact):
        assert (mine - right).abs().mean() <= 2 * (theirs - right).abs().mean() + 1e-3


def test_names_that_transformers_would_not_know():
    with pytest.raises(ValueError, match="'flash' and behind it a 2 or a 3"):
        register_continuous_batching("jit_attention")


REFUSED = {
    "no cache": (dict(), "cu_seq_lens_q.*attn_implementation='jit_attention'"),
    "lengths of keys": (dict(cu_seq_lens_q=torch.tensor([0, 8])), "cu_seq_lens_k.*attn_implementation='jit_attention'"),
    "batch": (dict(cache=object(), query=torch.zeros(2, 1, 8, 16)), "query.*batch of 2.*of 1"),
    "bias": (dict(cache=object(), position_bias=torch.ones(1)), "position_bias.*leave it out"),
    "not causal": (dict(cache=object(), is_causal=False), "is_causal.*attn_implementation='jit_attention'"),
    "weights": (dict(cache=object(), output_attentions=True), "output_attentions.*paged.eager"),
    "mask": (dict(cache=object(), attention_mask=torch.ones(1)), "attention_mask.*leave it out"),
    "dropout": (dict(cache=object(), dropout=0.1), "dropout.*eval"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case, device):
    keywords, message = REFUSED[case]
    with pytest.raises(ja.InvalidArgumentError, match=message):
        given = dict.fromkeys(("query", "key", "value", "attention_mask")) | keywords
        integration.paged_attention_function(None, **given)
