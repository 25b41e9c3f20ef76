"""Gradients of jit_attention.sparse in PyTorch, against those of every score in double precision."""

import jit_attention as ja
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from seeded import some  # noqa: E402


def exact(keep):
    """Attention of all scores, in double precision. `keep` may count: a key that is listed twice counts twice."""
    def compute(q, k, v):
        q, k, v = (x.double() for x in (q, k, v))
        k, v = (x.repeat_interleave(q.shape[-2] // k.shape[-2], -2) for x in (k, v))
        scores = torch.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5 + keep.double().log()
        largest = scores.amax(-1, keepdim=True).clamp(min=-1e300)
        weights = (scores - largest.detach()).exp()
        total = weights.sum(-1, keepdim=True)
        return torch.einsum("bhij,bjhd->bihd", weights / torch.where(total == 0, 1, total), v)
    return compute


def gradients_of(compute, inputs, do):
    inputs = [x.detach().requires_grad_() for x in inputs]
    o = compute(*inputs)
    return o.detach(), *torch.autograd.grad(o, inputs, do)


def assert_near(ours, right):
    for a, b in zip(ours, right, strict=True):
        assert a.shape == b.shape and not a.isnan().any()
        assert (a.double() - b).abs().max() <= 0.02 * b.abs().max() + 1e-6


@pytest.mark.parametrize("block,ratio,is_ragged", some([(64, 1, True), (64, 2, False), (128, 2, True)]))
def test_video(make, block, ratio, is_ragged):
    seqlen_q, seqlen_k = 3 * block - 9, 5 * block - 17
    q, k, v, do = make(1, seqlen_q, 2, 64), make(1, seqlen_k, 2 // ratio, 64), make(1, seqlen_k, 2 // ratio, 64), make(1, seqlen_q, 2, 64)
    lists = torch.randint(-2, 7, (1, 2, 3, 4), dtype=torch.int32, device=q.device)
    counts = torch.randint(0, 6, (1, 2, 3), dtype=torch.int32, device=q.device)
    counts[0, 0, 1] = 0
    valid = torch.randint(0, block + 1, (5,), dtype=torch.int32, device=q.device) if is_ragged else None
    listed = (torch.arange(4, device=q.device) < counts[..., None]) & (lists >= 0) & (lists < 5)
    blocks = torch.zeros(2, 3, 6, dtype=torch.bool, device=q.device).scatter_(2, torch.where(listed[0], lists[0], 5).long(), 1)[..., :5]
    keep = blocks.repeat_interleave(block, 1).repeat_interleave(block, 2)[:, :seqlen_q, :seqlen_k]
    if is_ragged:
        j = torch.arange(seqlen_k, device=q.device)
        keep = keep & (j % block < valid[j // block])

    def compute(q, k, v, **options):
        return ja.sparse.video(q, k, v, lists, counts, block=block, valid_rows=valid, **options)

    results = gradients_of(compute, (q, k, v), do)
    assert torch.equal(results[0], compute(q, k, v))
    assert_near(results, gradients_of(exact(keep[None]), (q, k, v), do.double()))
    again = [gradients_of(lambda *x: compute(*x, deterministic=True), (q, k, v), do) for _ in range(2)]
    assert all(torch.equal(a, b) for a, b in zip(*again, strict=True))
    assert_near(again[0], results)
