"""Models of Transformers over sequences that are packed into one batch entry."""

import jit_attention as ja
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
transformers = pytest.importorskip("transformers", reason="needs transformers")
pytest.register_assert_rewrite("tiny_transformers")

import jit_attention.torch.transformers as integration  # noqa: E402
from tiny_transformers import built  # noqa: E402

pytest_plugins = ["tiny_transformers"]

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
