"""Dropout in PyTorch: gradients, torch's generator, recomputation, compilation, and torch's flash backend beside it."""

import itertools

import jit_attention as ja
import numpy
import pytest
from test_dropout import exact, kept

torch = pytest.importorskip("torch", reason="needs PyTorch")

import jit_attention.torch as jt  # noqa: E402
from torch import library  # noqa: E402
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts  # noqa: E402

RATE = 0.3


def inputs(make, batch=2, seqlen_q=19, seqlen_kv=45, dtype=torch.float16):
    shapes = (batch, seqlen_q, 4, 16), (batch, seqlen_kv, 2, 16), (batch, seqlen_kv, 2, 16)
    return [torch.nn.Parameter(make(*shape, dtype=dtype)) for shape in shapes]


def rng_state(q, seed=3, offset=5):
    return torch.tensor([seed, offset], device=q.device)


@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_equal_double_precision(make, compiled):
    q, k, v = inputs(make)
    state = rng_state(q)

    def compute(q, k, v):
        return jt.attention(q, k, v, dropout_p=RATE, rng_state=state)

    o = (torch.compile(compute, fullgraph=True) if compiled else compute)(q, k, v)
    do = make(*o.shape, dtype=q.dtype)
    gradients = torch.autograd.grad(o, (q, k, v), do)
    problem = [x.detach().cpu().double().numpy() for x in (do, q, k, v)]
    o_exact, _, gradients_exact = exact(problem, kept((2, 4, 19, 45), RATE, 3, 5), RATE)
    for ours, right in zip((o, *gradients), (o_exact, *gradients_exact), strict=True):
        assert numpy.abs(ours.detach().cpu().double().numpy() - right).max() <= 0.02 * numpy.abs(right).max()


def test_gradients_of_varlen_sequences_equal_double_precision(make):
    lengths_q, lengths_kv = (19, 0, 7), (45, 9, 33)
    q, k, v = (x.squeeze(0) for x in inputs(make, 1, sum(lengths_q), sum(lengths_kv)))
    ends = [torch.tensor([0, *itertools.accumulate(side)], dtype=torch.int32, device=q.device)
            for side in (lengths_q, lengths_kv)]
    o = jt.attention(q, k, v, cu_seqlens_q=ends[0], cu_seqlens_k=ends[1], dropout_p=RATE, rng_state=rng_state(q))
    do = make(*o.shape, dtype=q.dtype)
    gradients = torch.autograd.grad(o, (q, k, v), do)
    keep = kept((3, 4, 19, 45), RATE, 3, 5)
    parts = [torch.split(x, side) for x, side in ((do, lengths_q), (q, lengths_q), (k, lengths_kv), (v, lengths_kv))]
    results = [torch.split(x, side) for x, side in
               zip((o, *gradients), (lengths_q, lengths_q, lengths_kv, lengths_kv), strict=True)]
    for b, (count_q, count_kv) in enumerate(zip(lengths_q, lengths_kv)):
        problem = [x[b].detach().cpu().double().numpy()[None] for x in parts]
        o_exact, _, gradients_exact = exact(problem, keep[b : b + 1, :, :count_q, :count_kv], RATE)
        for ours, right in zip(results, (o_exact, *gradients_exact), strict=True):
            error = numpy.abs(ours[b].detach().cpu().double().numpy() - right[0]).max(initial=0)
            assert error <= 0.02 * numpy.abs(right).max(initial=0)


def test_random_numbers_are_those_of_torchs_generator(make):
    q, k, v = (x.detach() for x in inputs(make))
    torch.manual_seed(1)
    first, second = (jt.attention(q, k, v, dropout_p=RATE) for _ in range(2))
    torch.manual_seed(1)
    assert torch.equal(jt.attention(q, k, v, dropout_p=RATE), first)
    assert not torch.equal(first, second)
    assert torch.equal(jt.attention(q, k, v, dropout_p=0.0), jt.attention(q, k, v))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("wants_gradient", [False, True])
def test_the_state_that_was_drawn_repeats_a_call(make, wants_gradient, compiled):
    q, k, v = (x.requires_grad_(wants_gradient) for x in inputs(make))

    def compute(q, k, v):
        return jt.attention(q, k, v, return_lse=True, dropout_p=RATE, return_rng_state=True)

    o, lse, state = (torch.compile(compute, fullgraph=True) if compiled else compute)(q, k, v)
    assert state.dtype == torch.int64 and state.shape == (2,) and state.device == q.device
    dropout = dict(dropout_p=RATE, rng_state=state)
    again, same = jt.attention(q, k, v, return_rng_state=True, **dropout)
    assert torch.equal(again, o) and same is state
    if wants_gradient:
        do = make(*o.shape, dtype=q.dtype)
        gradients = torch.autograd.grad(o, (q, k, v), do)
        given = (x.detach() for x in (do, q, k, v, o, lse))
        by_hand = ja.attention_backward(*given, deterministic=True, **dropout)
        for ours, right in zip(by_hand, gradients, strict=True):
            torch.testing.assert_close(ours, right, atol=2e-3, rtol=2e-3)  # sums in another order


def test_without_dropout_there_is_no_state(make):
    q, k, v = (x.detach() for x in inputs(make))
    o, state = jt.attention(q, k, v, dropout_p=0.0, rng_state=rng_state(q), return_rng_state=True)
    assert state is None and torch.equal(o, jt.attention(q, k, v))
    o, lse, state = jt.attention(q, k, v, return_lse=True, return_rng_state=True)
    assert state is None
    ja.attention_backward(torch.ones_like(o), q, k, v, o, lse, dropout_p=0.0, rng_state=state)


def test_what_a_checkpoint_computes_again_has_equal_bits(make):
    q, k, v = inputs(make)
    do = make(2, 19, 4, 16, dtype=q.dtype)

    def compute(q, k, v):
        return jt.attention(q * 2, k, v, dropout_p=RATE)

    results = []
    for forward in (compute, lambda *qkv: checkpoint(compute, *qkv, use_reentrant=False)):
        torch.manual_seed(2)
        o = forward(q, k, v)
        with torch.random.fork_rng():
            torch.manual_seed(99)  # others draw, too, before the backward pass
            results.append((o, *torch.autograd.grad(o, (q, k, v), do)))
    for plain, again in zip(*results, strict=True):
        assert torch.equal(plain, again)


@pytest.mark.parametrize("dropout_p", [0.0, 0.25])
@pytest.mark.parametrize("policy", [CheckpointPolicy.MUST_SAVE, CheckpointPolicy.MUST_RECOMPUTE])
def test_selective_checkpoints_have_equal_bits(make, policy, dropout_p):
    q, k, v = inputs(make)
    do = make(2, 19, 4, 16, dtype=q.dtype)
    attention = torch.ops.jit_attention.attention.default
    calls = []

    def choose(ctx, op, *args, **kwargs):
        calls.extend([ctx.is_recompute] if op == attention else [])
        return policy if op == attention else CheckpointPolicy.PREFER_RECOMPUTE

    def compute(q, k, v):
        return jt.attention(q * 2, k, v, dropout_p=dropout_p) * 3

    def checkpointed(*qkv):
        return checkpoint(compute, *qkv, use_reentrant=False,
                          context_fn=lambda: create_selective_checkpoint_contexts(choose))

    results = []
    for forward in (compute, checkpointed):
        torch.manual_seed(2)
        o = forward(q, k, v)
        with torch.random.fork_rng():
            torch.manual_seed(99)  # others draw, too, before the backward pass
            results.append((o, *torch.autograd.grad(o, (q, k, v), do)))
    assert calls == [False, True]  # the operator was seen in both passes
    for plain, again in zip(*results, strict=True):
        assert torch.equal(plain, again)


def test_opcheck(make):
    q, k, v = (x.detach() for x in inputs(make))
    problem = repr((None, None, (), None))
    dropout = dict(dropout_p=RATE, rng_state=rng_state(q))
    operators = torch.ops.jit_attention
    library.opcheck(operators.attention.default, (q, k, v, [], problem, None, True, "BSHD", None), dropout)
    o, lse = jt.attention(q, k, v, return_lse=True, **dropout)
    arguments = (make(*o.shape, dtype=q.dtype), q, k, v, o, lse, [], problem, None, "BSHD")
    library.opcheck(operators.attention_backward.default, arguments, dropout)


def test_in_place_of_torchs_function(make):
    q, k = torch.zeros(2, 2, 40, 16).half(), torch.zeros(2, 2, 64, 16).half()
    v = torch.eye(64).half().expand(2, 2, 64, 64)
    q, k, v = (x.to(make(1).device) for x in (q, k, v))
    o = jt.scaled_dot_product_attention(q, k, v, dropout_p=0.25)
    share = (o != 0).float().mean().item()
    assert abs(share - 0.75) < 0.04  # five standard deviations, and a rounding of the rate
    assert torch.allclose(o[o != 0].float(), torch.tensor(1 / 64 / 0.75), rtol=2e-3)
    for rate in (-0.1, 1.0, float("nan")):
        with pytest.raises(ja.InvalidArgumentError, match="dropout_p.*at least 0 and less than 1"):
            jt.scaled_dot_product_attention(q, k, v, dropout_p=rate)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch's flash backend needs a GPU")
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("seqlen, head_dim, rate", [(256, 64, 0.1), (333, 128, 0.5), (70, 32, 0.9)])
def test_drops_what_torchs_flash_backend_drops(make, dtype, is_causal, seqlen, head_dim, rate):
    q, k, v, do = (make(2, 4, seqlen, head_dim, dtype=dtype) for _ in range(4))
    inputs = [x.requires_grad_() for x in (q, k, v)]
    result = torch.ops.aten._scaled_dot_product_flash_attention(*inputs, rate, is_causal)
    expected, first, second = result[0], result[6], result[7]
    # Seed and offset: a number each, or, since PyTorch 2.7, both in the first one.
    state = first if first.numel() == 2 else torch.stack((first.reshape(()), second.reshape(())))
    state = state.to(expected.device).view(torch.int64)
    mask = ja.mask.causal("top_left") if is_causal else None
    ours = jt.attention(*inputs, mask=mask, layout="BHSD", dropout_p=rate, rng_state=state)
    wide = [x.detach().double().requires_grad_() for x in inputs]
    keep = torch.from_numpy(kept((2, 4, seqlen, seqlen), rate, *(int(x) % 2**64 for x in state.tolist()))).cuda()
    scores = wide[0] @ wide[1].mT * head_dim**-0.5
    if is_causal:
        scores = scores.masked_fill(torch.ones(seqlen, seqlen, device="cuda").triu(1).bool(), -torch.inf)
    right = (scores.softmax(-1) * keep / (1 - rate)) @ wide[2]
    rights = torch.autograd.grad(right, wide, do.double())
    for correct, theirs, own in zip(
        (right, *rights), (expected, *torch.autograd.grad(expected, inputs, do, retain_graph=True)),
        (ours, *torch.autograd.grad(ours, inputs, do)), strict=True,
    ):  # fmt: skip
        assert (own - correct).abs().max() <= 2 * (theirs - correct).abs().max() + 1e-3 * correct.abs().max()
