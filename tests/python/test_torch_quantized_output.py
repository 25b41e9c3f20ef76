"""o of e4m3 and int8 of the PyTorch operator: eager, compiled, and beside gradients, which it has none of."""

import jit_attention as ja
import pytest

torch = pytest.importorskip("torch")
jt = pytest.importorskip("jit_attention.torch")


@pytest.mark.parametrize("out_dtype", [torch.float8_e4m3fn, "int8"])
@pytest.mark.parametrize("compiled", [False, True])
def test_scales_of_rows(make, out_dtype, compiled):
    q, k, v = make(1, 40, 4, 64), make(1, 50, 2, 64), make(1, 50, 2, 64)
    attend = torch.compile(jt.attention, fullgraph=True, backend="aot_eager") if compiled else jt.attention
    o, aux = attend(q, k, v, mask=ja.mask.causal(), out_dtype=out_dtype, return_aux=("o_descale",))
    wanted = torch.int8 if out_dtype == "int8" else out_dtype
    plain = jt.attention(q, k, v, mask=ja.mask.causal()).float()
    assert o.dtype == wanted and aux["o_descale"].shape == (1, 4, 40)
    most = 127 if out_dtype == "int8" else 448
    torch.testing.assert_close(aux["o_descale"] * most, plain.abs().amax(-1).transpose(1, 2), rtol=0.01, atol=0)
    number = o.float() * aux["o_descale"].transpose(1, 2)[..., None]
    assert ((number - plain).abs() <= plain.abs() / 15 + plain.abs().amax(-1, keepdim=True) / 200).all()
    given = attend(q, k, v, mask=ja.mask.causal(), out_dtype=out_dtype, o_descale=aux["o_descale"])
    assert torch.equal(given.view(torch.uint8), o.view(torch.uint8))
    held = torch.full_like(aux["o_descale"], 7)
    again = jt.attention(q, k, v, mask=ja.mask.causal(), out_dtype=out_dtype, return_aux={"o_descale": held})[1]
    assert again["o_descale"] is held and torch.equal(held, aux["o_descale"])


def test_there_are_no_gradients(make):
    q, k, v = (make(1, 16, 2, 64).requires_grad_() for _ in range(3))
    with pytest.raises(ja.InvalidArgumentError, match="out_dtype: is torch.int8 beside a q, k or v that requires grad"):
        jt.attention(q, k, v, out_dtype="int8", return_aux=("o_descale",))
    with pytest.raises(ja.InvalidArgumentError, match="o_descale: is missing"):
        jt.attention(q.detach(), k.detach(), v.detach(), out_dtype="int8")


@pytest.mark.parametrize("compiled", [False, True])
def test_means_of_scores_have_gradients(make, compiled):
    """A loss of entropies, as reinforcement learning has it: LSE less the mean."""
    q, k, v = (make(1, 40, heads, 64).requires_grad_() for heads in (4, 2, 2))

    def loss(attend):
        o, lse, aux = attend(q, k, v, mask=ja.mask.causal(), return_lse=True, return_aux=("mean_score",))
        return o.float().square().sum() / 50 + ((lse - aux["mean_score"]) * lse.detach().sin()).sum()

    def plain(q, k, v, **_):
        qs, ks, vs = (x.float().transpose(1, 2) for x in (q, k.repeat_interleave(2, 2), v.repeat_interleave(2, 2)))
        s = (qs @ ks.transpose(2, 3) / 8).masked_fill(~torch.ones(40, 40, device=q.device).tril().bool(), -torch.inf)
        p = s.softmax(-1)
        mean = (p * s.masked_fill(torch.isinf(s), 0)).sum(-1)
        return (p @ vs).transpose(1, 2), s.logsumexp(-1), {"mean_score": mean}

    attend = torch.compile(jt.attention, fullgraph=True, backend="aot_eager") if compiled else jt.attention
    got, wanted = (torch.autograd.grad(loss(one), (q, k, v)) for one in (attend, plain))
    for one, other in zip(got, wanted, strict=True):
        assert (one - other).abs().max() < 0.02 * other.abs().max()
    mean = jt.attention(q, k, v, mask=ja.mask.causal(), return_aux=("mean_score", "row_max"))[1]["mean_score"]
    assert mean.requires_grad
    (only,) = torch.autograd.grad(mean.sum(), q)
    assert only.abs().max() > 0
