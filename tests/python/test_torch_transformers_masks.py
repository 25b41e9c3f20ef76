"""Masks that Transformers makes, compared with its own mask tensors."""

import types

import jit_attention as ja
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
transformers = pytest.importorskip("transformers", reason="needs transformers")
pytest.register_assert_rewrite("tiny_transformers")

import jit_attention.torch.transformers as integration  # noqa: E402
from jit_attention.torch import transformers_mask  # noqa: E402
from jit_attention.torch.transformers_mask import attention_mask_function  # noqa: E402
from tiny_transformers import attend, batch  # noqa: E402
from transformers import masking_utils  # noqa: E402

pytest_plugins = ["tiny_transformers"]


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
    q, ends = torch.randn(1, 2, 20, 16, device=device).bfloat16(), torch.tensor([0, 3, 8])
    with pytest.raises(ja.InvalidArgumentError, match="attention_mask.*return_flash_attn_kwargs=False"):
        attend(q, q, tensor[:1], cu_seq_lens_q=ends, cu_seq_lens_k=ends)


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
