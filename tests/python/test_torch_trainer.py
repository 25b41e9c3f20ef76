"""Training by Transformers' Trainer on packed sequences, beside the stock implementation on padded ones."""

import functools

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
transformers = pytest.importorskip("transformers", reason="needs transformers")
pytest.importorskip("accelerate", reason="Trainer needs accelerate")

import jit_attention.torch.transformers as integration  # noqa: E402
from jit_attention.torch import register_with_transformers  # noqa: E402

SIZES = dict(vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
             intermediate_size=48, initializer_range=0.2, pad_token_id=0)  # fmt: skip
MODELS = {
    "llama": (transformers.LlamaForCausalLM, transformers.LlamaConfig(**SIZES), "causal"),
    "mistral": (transformers.MistralForCausalLM, transformers.MistralConfig(sliding_window=6, **SIZES),
                "sliding_window(5)"),  # fmt: skip
}
STEPS, BATCH = 3, 4
LENGTHS = (9, 1, 14, 6, 11, 17, 3, 8, 5, 12, 2, 10)  # of sequences


def sequences():
    generator = torch.Generator().manual_seed(7)
    return [{"input_ids": torch.randint(1, 50, (length,), generator=generator).tolist()} for length in LENGTHS]


def padded(batch):
    """The sequences as rows of one length. As in packed ones, nothing predicts a first token."""
    rows = [torch.tensor(sequence["input_ids"]) for sequence in batch]
    tokens = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    kept = (tokens != 0).long()
    labels = tokens.masked_fill(kept == 0, -100)
    labels[:, 0] = -100
    return {"input_ids": tokens, "attention_mask": kept, "labels": labels}


def trained(name, collator, folder, emulated, implementation, bf16):
    """Losses and norms of the gradients, step by step."""
    kind, config, _ = MODELS[name]
    transformers.set_seed(3)
    model = kind._from_config(config, attn_implementation=implementation)
    arguments = transformers.TrainingArguments(
        folder, per_device_train_batch_size=BATCH, max_steps=STEPS, bf16=bf16, optim="sgd", learning_rate=0.1,
        max_grad_norm=1e9, logging_steps=1, report_to=[], save_strategy="no", disable_tqdm=True, use_cpu=emulated,
        seed=1, dataloader_pin_memory=False
    )  # fmt: skip
    trainer = transformers.Trainer(model, arguments, train_dataset=sequences(), data_collator=collator)
    trainer.train()
    steps = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert len(steps) == STEPS
    return [torch.tensor([float(step[what]) for step in steps]) for what in ("loss", "grad_norm")]


@pytest.fixture(scope="module")
def stock(emulated, tmp_path_factory):
    """Training by "sdpa" on padded sequences."""
    folder = tmp_path_factory.mktemp("stock")
    return functools.cache(lambda name, bf16: trained(name, padded, folder, emulated, "sdpa", bf16))


@pytest.mark.parametrize("by", ["lengths", "positions"])
@pytest.mark.parametrize("name", MODELS)
def test_packed_sequences_train_as_padded_ones_in_the_stock_implementation(
    name, by, stock, emulated, tmp_path, monkeypatch
):
    register_with_transformers()
    masks = set()
    original = integration.attention

    def spy(*tensors, mask, **keywords):
        masks.add((str(mask), keywords.get("cu_seqlens_q") is not None))
        return original(*tensors, mask=mask, **keywords)

    monkeypatch.setattr(integration, "attention", spy)
    collator = transformers.DataCollatorWithFlattening(return_flash_attn_kwargs=by == "lengths")
    ours = trained(name, collator, tmp_path, emulated, "jit_attention", bf16=True)
    pattern = MODELS[name][2]
    assert masks == {(pattern, True) if by == "lengths" else (f"document && {pattern}", False)}
    for found, theirs, exact in zip(ours, stock(name, True), stock(name, False), strict=True):
        assert ((found - exact).abs() <= 2 * (theirs - exact).abs().max() + 2e-3 * exact).all(), (found, theirs, exact)
        assert not torch.isclose(exact[1:], exact[:-1]).any()  # it trains
