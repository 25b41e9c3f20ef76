"""Tiny models of Transformers with random weights, and what tests of them share; `pytest_plugins` has the fixtures."""

import copy
import types

import jit_attention.torch.transformers as integration
import pytest
import torch
import transformers
from jit_attention.torch import register_with_transformers

register_with_transformers()

SIZES = dict(vocab_size=100, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96,
             initializer_range=0.3)  # fmt: skip
GROUPED = dict(**SIZES, num_key_value_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=2)
MODELS = {
    "bert": (transformers.BertModel, transformers.BertConfig(**SIZES)),
    "llama": (transformers.LlamaForCausalLM, transformers.LlamaConfig(**GROUPED)),
    "mistral": (transformers.MistralForCausalLM, transformers.MistralConfig(sliding_window=6, **GROUPED)),
    "gemma2": (
        transformers.Gemma2ForCausalLM,
        transformers.Gemma2Config(
            sliding_window=6, head_dim=16, query_pre_attn_scalar=10, attn_logit_softcapping=2.0, **GROUPED
        ),
    ),
    "t5": (
        transformers.T5ForConditionalGeneration,
        transformers.T5Config(
            vocab_size=100, d_model=64, d_kv=16, d_ff=96, num_layers=2, num_heads=4, decoder_start_token_id=0
        ),
    ),
}


if hasattr(transformers, "Gemma4ForCausalLM"):  # its layers that see all have larger heads than those with windows
    MODELS["gemma4"] = (
        transformers.Gemma4ForCausalLM,
        transformers.Gemma4TextConfig(
            **GROUPED | dict(num_attention_heads=8, num_key_value_heads=1, initializer_range=0.1), sliding_window=6,
            head_dim=256, global_head_dim=512, layer_types=["sliding_attention", "full_attention"],
            hidden_size_per_layer_input=8, vocab_size_per_layer_input=100,
        ),
    )  # fmt: skip


@pytest.fixture
def device(emulated):
    torch._dynamo.reset()
    torch.manual_seed(2024)  # greedy tokens are compared: no ties among the logits of this seed
    return "cpu" if emulated else "cuda"


@pytest.fixture
def calls(monkeypatch):
    """Masks and scores that the layers' attention was called with."""
    seen = []
    original = integration.attention

    def spy(*tensors, mask, score, **keywords):
        seen.append((str(mask), str(score)))
        return original(*tensors, mask=mask, score=score, **keywords)

    monkeypatch.setattr(integration, "attention", spy)
    return seen


def built(name, device, **implementations):
    """The same random model once per implementation, given as name=(attn_implementation, dtype)."""
    kind, config = MODELS[name]
    weights, models = None, []
    for attn_implementation, dtype in implementations.values():
        own = copy.deepcopy(config)
        own._attn_implementation = attn_implementation
        model = kind(own).to(device, torch.bfloat16).eval()
        weights = weights or model.state_dict()
        model.load_state_dict(weights)
        models.append(model.to(dtype))
    return models


def batch(device, padding):
    tokens = torch.randint(5, 90, (2, 24), device=device)
    if padding == "none":
        return tokens, torch.ones_like(tokens)
    kept = torch.ones_like(tokens)
    kept[0, :7] = 0
    return tokens, kept if padding == "left" else kept.flip(1)


def check(name, device, kept=None, **inputs):
    """Ours in bf16 errs at most twice as much as eager in bf16, over positions that are tokens."""
    exact, eager, ours = built(
        name, device, exact=("eager", torch.float32), eager=("eager", torch.bfloat16),
        ours=("jit_attention", torch.bfloat16)
    )  # fmt: skip
    with torch.no_grad():
        exact, eager, ours = (model(**inputs)[0].float() for model in (exact, eager, ours))
    kept = torch.ones(ours.shape[:2], device=device) if kept is None else kept
    error = lambda result: (result - exact)[kept.bool()].abs()  # noqa: E731
    assert error(ours).mean() <= 2 * error(eager).mean() and error(ours).max() <= 2 * error(eager).max() + 1e-3


def attend(q, kv, attention_mask, **keywords):
    module = types.SimpleNamespace(is_causal=False)
    return integration.attention_function(module, q, kv, kv, attention_mask, **keywords)[0].float()
