"""Models of Transformers whose prompts are computed by fp8."""

import jit_attention as ja
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
transformers = pytest.importorskip("transformers", reason="needs transformers")
pytest.register_assert_rewrite("tiny_transformers")

import jit_attention.torch.transformers as integration  # noqa: E402
from jit_attention.torch import register_with_transformers  # noqa: E402
from tiny_transformers import built  # noqa: E402

pytest_plugins = ["tiny_transformers"]


@pytest.mark.parametrize("padding", ["none", "left"])
@pytest.mark.parametrize("name", ["llama", "gemma2"])  # the latter has a softcap, beside which k keeps its mean
def test_prompts_by_fp8(name, padding, device, monkeypatch):
    """Long prompts are quantized, short ones and tokens that are generated are not."""
    by_hand = dict(center_keys=True, center_values=True, interpolated_exponentials=True)
    register_with_transformers("jit_fp8", quantized=by_hand if padding == "left" else True)
    seen = []
    original = integration.quantized_attention

    def spy(q, k, v, **options):
        seen.append((q.shape[-3], options["center_keys"], options.get("interpolated_exponentials", False)))
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
