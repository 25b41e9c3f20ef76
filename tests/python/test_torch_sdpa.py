"""jit_attention.torch.scaled_dot_product_attention against torch's own, in double precision."""

import jit_attention as ja
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from jit_attention.torch import scaled_dot_product_attention  # noqa: E402
from torch.nn.attention.bias import causal_lower_right, causal_upper_left  # noqa: E402

torch_sdpa = torch.nn.functional.scaled_dot_product_attention


def random_qkv(make, batch=2, heads_kv=4, seqlen_q=33, seqlen_kv=47, dtype=torch.bfloat16):
    return (make(batch, 4, seqlen_q, 16, dtype=dtype), make(batch, heads_kv, seqlen_kv, 16, dtype=dtype),
            make(batch, heads_kv, seqlen_kv, 16, dtype=dtype))


def check(query, key, value, attn_mask=None, **keywords):
    """Ours errs at most twice as much as torch's own result in the same dtype, whose shape and dtype it has.

    Torch computes on the CPU, where it takes every mask.
    """
    result = scaled_dot_product_attention(query, key, value, attn_mask, **keywords)
    ours, query, key, value = (tensor.cpu() for tensor in (result, query, key, value))
    attn_mask = attn_mask if attn_mask is None else attn_mask.cpu()
    theirs = torch_sdpa(query, key, value, attn_mask, **keywords)
    wide = attn_mask.double() if attn_mask is not None and attn_mask.dtype != torch.bool else attn_mask
    exact = torch_sdpa(query.double(), key.double(), value.double(), wide, **keywords)
    blind = exact.isnan() | (exact == 0)  # torch before 2.5 gave NaN
    exact, theirs = exact.masked_fill(blind, 0), theirs.masked_fill(blind, 0)
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
    assert (ours - exact).abs().max() <= 2 * (theirs - exact).abs().max() + 1e-3
    return result


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("seqlen_q, seqlen_kv", [(33, 47), (47, 33), (40, 40), (1, 47)])
def test_lengths_and_causal_from_the_top_left(make, dtype, is_causal, seqlen_q, seqlen_kv):
    q, k, v = random_qkv(make, seqlen_q=seqlen_q, seqlen_kv=seqlen_kv, dtype=dtype)
    check(q, k, v, is_causal=is_causal)


MASK_SHAPES = [
    *((33, 47), (1, 47), (33, 1), (1, 1), (4, 33, 47), (4, 1, 47), (2, 1, 1, 47), (2, 1, 33, 47), (2, 4, 1, 1)),
    *((1, 4, 33, 1), (2, 4, 33, 47), (1, 1, 33, 47)),
]


@pytest.mark.parametrize("shape", MASK_SHAPES, ids=str)
def test_masks_of_every_shape_and_dtype(make, shape):
    q, k, v = random_qkv(make)
    keep = make(*shape) > -0.5
    keep[..., 0] = True
    check(q, k, v, keep)
    check(q, k, v, make(*shape))
    check(q, k, v, make(*shape, dtype=torch.float32) * 3)


def test_masks_that_are_views(make):
    q, k, v = random_qkv(make)
    check(q, k, v, make(47, 33).t())
    check(q, k, v, (make(47, 33) > 0).t())
    check(q, k, v, (make(2, 1, 1, 47) > 0).expand(2, 4, 33, 47))
    check(q, k, v, make(33, 94)[:, ::2])


def test_a_query_that_sees_no_key_gives_zeros(make):
    q, k, v = random_qkv(make)
    keep = make(2, 1, 33, 47) > 0
    keep[0, 0, 5] = False
    for mask in (keep, torch.zeros(keep.shape, device=q.device).masked_fill(~keep, -torch.inf)):
        ours = check(q, k, v, mask)
        assert (ours[0, :, 5] == 0).all() and not ours.isnan().any()


@pytest.mark.parametrize("heads_kv", [1, 2, 4])
@pytest.mark.parametrize("is_causal", [False, True])
def test_grouped_heads(make, heads_kv, is_causal):
    q, k, v = random_qkv(make, heads_kv=heads_kv)
    check(q, k, v, is_causal=is_causal, enable_gqa=True)
    check(q, k, v, make(4, 33, 47), enable_gqa=True)


@pytest.mark.parametrize("scale", [0.05, 0.25, 1.5])
def test_scale(make, scale):
    check(*random_qkv(make), scale=scale)


def test_value_head_dim(make):
    q, k, _ = random_qkv(make)
    check(q, k, make(2, 4, 47, 40))


BATCHES = [(), (1,), (3,), (2, 3), (2, 1, 3)]


@pytest.mark.parametrize("batch", BATCHES, ids=str)
@pytest.mark.parametrize("heads", [False, True])
def test_dimensions_before_the_last_three(make, batch, heads):
    lead = (*batch, 4) if heads else batch
    q, k, v = make(*lead, 21, 16), make(*lead, 30, 16), make(*lead, 30, 16)
    check(q, k, v)
    check(q, k, v, is_causal=True)
    check(q, k, v, make(21, 30) > 0)
    if lead:
        check(q, k, v, make(*lead, 1, 30))
        check(q, k, v, make(*(1,) * len(lead), 21, 30))


def test_batches_that_broadcast(make):
    q, k, v = make(3, 4, 20, 16), make(1, 4, 30, 16), make(1, 4, 30, 16)
    check(q, k, v)
    check(make(2, 3, 4, 20, 16), k, v)
    check(q, make(3, 1, 30, 16), make(3, 1, 30, 16))


def test_the_result_lies_in_memory_as_the_query_does(make):
    q, k, v = random_qkv(make)
    assert check(q, k, v).is_contiguous()
    sequence_first = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
    assert check(*sequence_first).transpose(1, 2).is_contiguous()


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled(make, dynamic):
    compiled = torch.compile(scaled_dot_product_attention, fullgraph=True, dynamic=dynamic)
    for batch, seqlen_q in ((2, 33), (3, 20)):
        q, k, v = random_qkv(make, batch, seqlen_q=seqlen_q)
        for mask in (None, make(batch, 1, 1, 47) > 0, make(1, 4, seqlen_q, 47)):
            assert torch.equal(compiled(q, k, v, mask), scaled_dot_product_attention(q, k, v, mask))
        assert torch.equal(compiled(q, k, v, is_causal=True), scaled_dot_product_attention(q, k, v, is_causal=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16])
def test_autocast_converts(make, emulated, given, dtype):
    q, k, v = (x.requires_grad_() for x in random_qkv(make, dtype=given))
    attn_mask, do = make(33, 47), make(2, 4, 33, 16, dtype=dtype)
    with torch.autocast("cpu" if emulated else "cuda", dtype=dtype):
        o = scaled_dot_product_attention(q, k, v, attn_mask)
        assert o.dtype == torch_sdpa(q, k, v, attn_mask).dtype
    converted = [x.detach().to(dtype).requires_grad_() for x in (q, k, v)]
    expected = scaled_dot_product_attention(*converted, attn_mask.to(dtype))
    assert torch.equal(o, expected)
    gradients = torch.autograd.grad(o, (q, k, v), do)
    assert [x.dtype for x in gradients] == [given] * 3
    for ours, right in zip(gradients, torch.autograd.grad(expected, converted, do), strict=True):
        torch.testing.assert_close(ours, right.to(given), atol=0.01, rtol=0.01)  # sums in another order


def test_empty(make):
    assert scaled_dot_product_attention(*random_qkv(make, batch=0)).shape == (0, 4, 33, 16)
    q, k, v = random_qkv(make, seqlen_kv=0)
    assert (scaled_dot_product_attention(q, k, v) == 0).all()


@pytest.mark.parametrize("made_by", [causal_upper_left, causal_lower_right])
@pytest.mark.parametrize("seqlen_q, seqlen_kv", [(33, 47), (47, 33), (40, 40), (2, 47)])
@pytest.mark.filterwarnings("ignore:Lower right causal bias")
def test_causal_biases_are_computed_as_what_they_are(make, made_by, seqlen_q, seqlen_kv):
    """PyTorch's lower right has NaN in rows that see no key, where a written mask has zeros."""
    inputs = [x.requires_grad_() for x in random_qkv(make, seqlen_q=seqlen_q, seqlen_kv=seqlen_kv)]
    bias = made_by(seqlen_q, seqlen_kv)
    o = scaled_dot_product_attention(*inputs, bias)
    wide = [x.detach().cpu().double().requires_grad_() for x in inputs]
    exact = torch_sdpa(*wide, bias._materialize())
    do = make(*o.shape)
    assert (o.cpu() - exact).abs().max() <= 0.02
    ours, right = torch.autograd.grad(o, inputs, do), torch.autograd.grad(exact, wide, do.cpu().double())
    assert_gradients_are_near(ours, right)


def test_causal_biases_have_no_elements_to_read(make):
    q, k, v = random_qkv(make)
    with pytest.raises(TypeError, match="bias is a CausalBias, whose memory"):
        ja.attention(q, k, v, score=ja.score.bias("fp32"), tensors={"bias": causal_upper_left(33, 47)}, layout="BHSD")


REFUSALS = {
    "causal bias and causal": (dict(is_causal=True, attn_mask="causal"), "attn_mask.*is_causal"),
    "causal bias of other lengths": (dict(attn_mask="causal of 40"), "attn_mask: .*40 queries and 47 keys.*33 and 47"),
    "mask and causal": (dict(is_causal=True, attn_mask="keep"), "attn_mask.*is_causal"),
    "fp32": (dict(dtype=torch.float32), "bfloat16.*autocast"),
    "grouped heads": (dict(heads_kv=2), "enable_gqa=True"),
    "heads of value": (dict(value_heads=2), "value.*2 heads.*4"),
    "three heads": (dict(heads_kv=3, enable_gqa=True), "multiple"),
    "mask dtype": (dict(attn_mask="int"), "attn_mask.*torch.bool"),
    "mask shape": (dict(attn_mask="short"), r"attn_mask.*\(33, 46\).*\(2, 4, 33, 47\)"),
    "scale": (dict(scale=-1.0), "scale"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals_say_what_would_work(make, case):
    keywords, message = REFUSALS[case]
    keywords = dict(keywords)
    shape = {name: keywords.pop(name) for name in ("heads_kv", "dtype") if name in keywords}
    q, k, v = random_qkv(make, **shape)
    v = v[:, : keywords.pop("value_heads", v.shape[1])]
    masks = {"keep": make(33, 47) > 0, "int": make(33, 47).int(), "short": make(33, 46),
             "causal": causal_lower_right(33, 47), "causal of 40": causal_lower_right(40, 47)}
    if "attn_mask" in keywords:
        keywords["attn_mask"] = masks[keywords["attn_mask"]]
    with pytest.raises((ja.InvalidArgumentError, ja.InvalidSpecError), match=message):
        scaled_dot_product_attention(q, k, v, **keywords)


def assert_gradients_are_near(ours, exact):
    for gradient, right in zip(ours, exact, strict=True):
        assert (gradient.cpu().double() - right).abs().max() <= 0.02 * right.abs().max()


@pytest.mark.parametrize("is_causal", [False, True])
def test_gradients_are_near_those_of_torch(make, is_causal):
    inputs = [tensor.requires_grad_() for tensor in random_qkv(make, heads_kv=2)]
    wide = [tensor.detach().cpu().double().requires_grad_() for tensor in inputs]
    do = make(2, 4, 33, 16)
    keywords = dict(is_causal=is_causal, enable_gqa=True, scale=0.4)
    ours = torch.autograd.grad(scaled_dot_product_attention(*inputs, **keywords), inputs, do)
    exact = torch.autograd.grad(torch_sdpa(*wide, **keywords), wide, do.cpu().double())
    assert_gradients_are_near(ours, exact)


@pytest.mark.parametrize("shape", [(33, 47), (4, 1, 47), (2, 1, 1, 47)])
def test_masks_have_gradients(make, shape):
    inputs = [tensor.requires_grad_() for tensor in (*random_qkv(make), make(*shape))]
    wide = [tensor.detach().cpu().double().requires_grad_() for tensor in inputs]
    do = make(2, 4, 33, 16)
    ours = torch.autograd.grad(scaled_dot_product_attention(*inputs), inputs, do)
    exact = torch.autograd.grad(torch_sdpa(*wide), wide, do.cpu().double())
    assert_gradients_are_near(ours, exact)
    assert ours[3].shape == shape
