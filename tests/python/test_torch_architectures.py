"""Every architecture of the installed Transformers that reads text and can be made tiny, beside its eager attention.

All is in fp32 but attention, which is in fp16: what differs are errors of attention alone, and experts are chosen
alike. What asks no attention interface must be refused when it is built. Skipped, with the reason, is what the
installed Transformers itself cannot build, or run with text alone, at these sizes.
"""

import contextlib

import jit_attention as ja
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
transformers = pytest.importorskip("transformers", reason="needs transformers")

import jit_attention.torch.transformers as integration  # noqa: E402
from jit_attention.torch import register_with_transformers  # noqa: E402
from tiny_architectures import architectures, tiny_model  # noqa: E402

SHARE = 12  # of the architectures, in a run on an emulated device
NAME = "jit_attention_in_fp32"
TOKENS = 17
PADDING = 5
GENERATED = 4

#: Layers that read masks as tensors themselves: they raise, in the cases that are named.
READ_MASKS = {
    "doge": {"plain", "left", "right", "packed", "dynamic", "gradients"},
    "axk2": {"packed"},
    "deepseek_v32": {"packed"},
    "glm_moe_dsa": {"packed"},
    "hy_v4": {"packed"},
}
#: Where eager attention is no measure. Rows of padding that see no token are zero here and a mean there, and the
#: recurrence of the first reads them in later rows. Moshi's layers say that they are causal and get no mask, which
#: eager attention takes for one that hides nothing.
DIFFERS = {
    "recurrent_gemma": {"left", "dynamic", "static", "gradients"},
    "moshi": {"plain", "packed"},
}
#: These must be tiny and run: skipping them would hide that the numbers of configs have other names.
NEVER_SKIPPED = ("albert", "bart", "bert", "cohere2", "deepseek_v3", "gemma2", "gemma3_text", "gpt2", "gpt_oss",
                 "llama", "mistral", "mixtral", "olmo2", "opt", "phi3", "qwen2", "qwen3", "qwen3_moe", "roberta", "t5",
                 "whisper")  # fmt: skip
#: Recurrences step by step, and parts whose numbers have names of their own: minutes each on a CPU.
SLOW = ("kimi_linear", "vibevoice", "vibevoice_asr", "vibevoice_acoustic_tokenizer",
        "vibevoice_acoustic_tokenizer_encoder", "blt", "inkling_mm_model")  # fmt: skip
#: Durations that random weights predict on a GPU are of any length, and fill the host's memory.
UNBOUNDED = ("vits",)


@pytest.fixture(scope="module", autouse=True)
def registered():
    """NAME computes what jit_attention does, of and for layers in fp32."""
    transformers.logging.set_verbosity_error()
    register_with_transformers(NAME)

    def in_fp16(module, query, key, value, attention_mask, **keywords):
        rows = [x.half() for x in (query, key, value)]
        o, weights = integration.attention_function(module, *rows, attention_mask, **keywords)
        called.append(attention_mask)
        return o.to(value.dtype), weights

    called = []
    transformers.AttentionInterface.register(NAME, in_fp16)
    return called


def built(architecture, device):
    """The eager model, its inputs, and the number of layers with which it runs at all; skips where it does not."""
    reason = ""
    for layers in (2, 4, 8):  # layers of attention may be few
        try:
            # On the CPU first: an index out of bounds is an exception there, and ends all work of a GPU.
            for place in dict.fromkeys(("cpu", device)):
                eager = tiny_model(architecture, "eager", layers, device=place)
                if eager.main_input_name != "input_ids":
                    pytest.skip(f"reads {eager.main_input_name}")
                inputs = inputs_of(eager, place)
                with torch.no_grad():
                    eager(**inputs)
            return eager, inputs, layers
        except Exception as error:  # of Transformers, whatever it is
            reason = f"{type(error).__name__}: {error}".replace("\n", " ")[:150]
    if architecture.kind in NEVER_SKIPPED:
        pytest.fail(f"Transformers cannot run it: {reason}")
    pytest.skip(f"Transformers cannot run it with these sizes and text alone: {reason}")


def inputs_of(model, device):
    """Two rows of tokens, which decoders of encoders see the beginning of."""
    tokens = torch.randint(5, 90, (2, TOKENS), generator=torch.Generator().manual_seed(3)).to(device)
    inputs = dict(input_ids=tokens)
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = tokens[:, :9]
    return inputs


class Pair:
    """An eager model and ours, and what became of what both were asked."""

    def __init__(self, kind, eager, ours, called):
        self.kind, self.eager, self.ours, self.called = kind, eager, ours, called
        self.compared, self.wrong = [], []

    def compare(self, case, ask, within=0.02):
        """Asks both models for a list of tensors each. What eager cannot do is not asked of ours."""
        try:
            expected = ask(self.eager)
        except Exception:  # of Transformers, whatever it is
            return
        raises = case in READ_MASKS.get(self.kind, ())
        with pytest.raises(integration.AttentionMaskIsNoTensorError) if raises else contextlib.nullcontext():
            found = ask(self.ours)
        self.compared.append(case)
        if raises or case in DIFFERS.get(self.kind, ()):
            return
        for right, ours in zip(expected, found, strict=True):
            error = float((right - ours).norm() / right.norm().clamp_min(1e-6))
            if not error <= within:
                self.wrong.append(f"{case}: {error:.2g}")
                return


def without_padding(o, kept):
    """Rows of tokens that count, and of those that a model appends: rows of padding that see no token differ (DIFFERS)."""
    appended = o.shape[1] - kept.shape[1] if o.dim() == 3 and o.shape[0] == kept.shape[0] else -1
    return o[torch.nn.functional.pad(kept, (0, appended), value=1).bool()] if appended in (0, 1) else o


def logits(inputs, kept=None):
    def ask(model):
        with torch.no_grad():
            o = model(**inputs)[0].float()
        return [o if kept is None else without_padding(o, kept)]

    return ask


def gradients(inputs, kept):
    def ask(model):
        model.zero_grad()
        without_padding(model(**inputs)[0].float(), kept).square().mean().backward()
        return [torch.cat([x.grad.flatten() for x in model.parameters() if x.grad is not None])]

    return ask


def steps(inputs, kept, cache):
    """Logits of each step of generation, up to where the tokens of eager attention end in a tie."""
    chosen = []

    def ask(model):
        start = dict(decoder_start_token_id=1) if model.config.is_encoder_decoder else {}
        made = model.generate(
            inputs["input_ids"], attention_mask=kept, max_new_tokens=GENERATED, min_new_tokens=GENERATED,
            do_sample=False, cache_implementation=cache, disable_compile=True, output_logits=True,
            return_dict_in_generate=True, **start
        )  # fmt: skip
        tokens = made.sequences[:, -GENERATED:]
        chosen.append(tokens)
        same = (tokens == chosen[0]).cummin(1).values.roll(1, 1)  # whether all before it are
        same[:, 0] = True
        return [torch.where(same[:, i, None], step.float(), 0) for i, step in enumerate(made.logits)], same

    def both(model):
        found, same = ask(model)
        if len(chosen) == 1:
            both.expected = found
            return found
        # Behind a token that fell otherwise nothing can be compared.
        return [torch.where(same[:, i, None], step, both.expected[i]) for i, step in enumerate(found)]

    return both


ALL = {architecture.kind: architecture for architecture in architectures()}


@pytest.mark.parametrize("kind", ALL)
def test_attention_beside_eager(kind, emulated, registered):
    architecture, device = ALL[kind], "cpu" if emulated else "cuda"
    if emulated and kind in SLOW:
        pytest.skip("takes minutes on a CPU")
    if not emulated and kind in UNBOUNDED:
        pytest.skip("makes outputs of any length on a GPU")
    eager, inputs, layers = built(architecture, device)
    try:
        ours = tiny_model(architecture, NAME, layers, eager.state_dict(), device)
    except ja.InvalidArgumentError as refusal:
        assert kind not in NEVER_SKIPPED, refusal
        assert NAME in str(refusal) and "use attn_implementation=" in str(refusal)
        return
    pair = Pair(kind, eager, ours, registered)
    registered.clear()
    pair.compare("plain", logits(inputs))
    if not registered and kind not in READ_MASKS:
        assert kind not in NEVER_SKIPPED, "no layer asked for attention"
        pytest.skip("has no attention in these layers")
    kept = {side: torch.ones_like(inputs["input_ids"]) for side in ("left", "right")}
    kept["left"][0, :PADDING] = kept["right"][0, -PADDING:] = 0
    for side, mask in kept.items():
        pair.compare(side, logits(inputs | dict(attention_mask=mask), mask))
    if architecture.is_causal:
        positions = torch.cat([torch.arange(n, device=device) for n in (7, 1, 9)])[None]
        tokens = inputs["input_ids"][:1]
        pair.compare("packed", logits(dict(input_ids=tokens, position_ids=positions, use_cache=False)))
    if eager.can_generate():
        for cache in (None, "static"):
            pair.compare(cache or "dynamic", steps(inputs, kept["left"], cache))
    pair.compare("gradients", gradients(inputs | dict(attention_mask=kept["left"]), kept["left"]), within=0.1)
    assert pair.compared and not pair.wrong, (pair.wrong, pair.compared)
