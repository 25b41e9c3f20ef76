"""PyTorch's own scaled_dot_product_attention by way of register_with_torch, and its operators on any device."""

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
if not hasattr(torch.nn.attention, "register_flash_attention_impl"):
    pytest.skip("needs a PyTorch that has register_flash_attention_impl", allow_module_level=True)

import jit_attention as ja  # noqa: E402
import jit_attention.torch as jt  # noqa: E402
from jit_attention.torch import flash_impl  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

OPERATOR = torch.ops.aten._scaled_dot_product_flash_attention


@pytest.fixture
def activated(emulated):
    """PyTorch's operators replaced; those of the CPU, which has none, on an emulated device."""
    activation = flash_impl.Activation("CPU" if emulated else "CUDA")
    yield
    activation.remove()


def exact(q, k, v, is_causal, scale):
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal, scale=scale)


@pytest.mark.parametrize("is_causal, scale", [(False, None), (True, 0.3)])
@pytest.mark.parametrize("heads_first", [False, True])
def test_operator_and_its_gradients(make, activated, heads_first, is_causal, scale):
    """PyTorch's own autograd calls the backward operator with what the forward one returned."""
    shapes = (2, 4, 30, 32), (2, 2, 30, 32), (2, 2, 30, 32)
    tensors = [make(*s) if heads_first else make(s[0], s[2], s[1], s[3]).transpose(1, 2) for s in shapes]
    tensors = [x.requires_grad_() for x in tensors]
    wide = [x.detach().double().requires_grad_() for x in tensors]
    o, lse, *_ = OPERATOR(*tensors, is_causal=is_causal, scale=scale)
    expected = exact(*wide, is_causal, scale)
    torch.testing.assert_close(o.double(), expected, rtol=0, atol=2e-2)
    assert o.stride() == tensors[0].stride()
    _, ours = ja.attention(*(x.detach() for x in tensors), return_lse=True, layout="BHSD", softmax_scale=scale,
                           mask=ja.mask.causal() if is_causal else None)
    assert torch.equal(lse, ours)
    do = torch.randn_like(o)
    gradients = torch.autograd.grad(o, tensors, do)
    for a, b in zip(gradients, torch.autograd.grad(expected, wide, do.double()), strict=True):
        torch.testing.assert_close(a.double(), b, rtol=2e-2, atol=3e-2 * max(1, b.abs().max().item()))


def test_dropout_is_the_same_in_backward(make, activated):
    """With dropout the output is linear in v, so that dv says which probabilities were kept."""
    q, k, v = make(1, 2, 20, 16), make(1, 2, 20, 16), make(1, 2, 20, 16).requires_grad_()
    torch.manual_seed(5)
    o, *_ = OPERATOR(q, k, v, 0.5)
    (dv,) = torch.autograd.grad(o, v, torch.ones_like(o))
    torch.testing.assert_close((dv.float() * v.float()).sum(), o.float().sum(), rtol=2e-2, atol=0.5)
    torch.manual_seed(5)
    assert torch.equal(OPERATOR(q, k, v, 0.5)[0], o) and not torch.equal(OPERATOR(q, k, v, 0.5)[0], o)


def test_name_is_activated_and_restored(emulated, make):
    jt.register_with_torch()
    assert "jit_attention" in torch.nn.attention.list_flash_attention_impls()
    torch.nn.attention.activate_flash_attention_impl("jit_attention")
    try:
        assert torch.nn.attention.current_flash_attention_impl() == "jit_attention"
        if not emulated:
            q = make(1, 2, 64, 64)
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                o = torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
            assert torch.equal(o, ja.attention(q, q, q, layout="BHSD", mask=ja.mask.causal("top_left")))
    finally:
        torch.nn.attention.restore_flash_attention_impl()
    assert torch.nn.attention.current_flash_attention_impl() != "jit_attention"


def test_debug_mask_is_refused(make, activated):
    q = make(1, 1, 8, 16)
    with pytest.raises(ja.InvalidArgumentError, match="return_debug_mask: is True"):
        OPERATOR(q, q, q, return_debug_mask=True)
