"""jit_attention.flash_attn with PyTorch: gradients beside autograd in double precision, compiled, dropout, head dims."""

import pathlib
import re

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

import jit_attention as ja  # noqa: E402
import jit_attention.flash_attn as fa  # noqa: E402
from jit_attention.flash_attn import v3, v4  # noqa: E402


def exact(q, k, v, *, causal=False, softcap=0.0, slopes=None, sinks=None, scale=None):
    """Attention of (batch, seqlen, heads, head_dim) in double precision."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    scores = q @ k.mT * (scale or q.shape[-1] ** -0.5)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    at = torch.arange(q.shape[2], device=q.device)[:, None] + k.shape[2] - q.shape[2]
    away = at - torch.arange(k.shape[2], device=q.device)
    if slopes is not None:
        scores = scores - slopes[:, None, None] * away.abs()
    if causal:
        scores = scores.masked_fill(away < 0, float("-inf"))
    if sinks is not None:
        scores = torch.cat([scores, sinks[None, :, None, None].expand(*scores.shape[:3], 1)], -1)
    return (torch.softmax(scores, -1)[..., : k.shape[2]] @ v).transpose(1, 2)


def wide(*tensors):
    return [x.detach().double().requires_grad_() for x in tensors]


def check_gradients(function, tensors, reference, expected_from):
    """Results and gradients of `function(*tensors)` are those of the reference."""
    o, expected = function(*tensors), reference(*expected_from)
    torch.testing.assert_close(o.double(), expected, rtol=0, atol=2e-2)
    do = torch.randn_like(o)
    ours = torch.autograd.grad(o, tensors, do)
    theirs = torch.autograd.grad(expected, expected_from, do.double())
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype != torch.double
        torch.testing.assert_close(a.double(), b, rtol=2e-2, atol=3e-2 * max(1, b.abs().max().item()))
    return ours


def leaves(*tensors):
    return [x.requires_grad_() for x in tensors]


def test_gradients(make):
    q, k, v = leaves(make(2, 20, 4, 32), make(2, 33, 2, 32), make(2, 33, 2, 32))
    slopes = torch.rand(4, device=q.device).requires_grad_()
    check_gradients(
        lambda q, k, v, slopes: fa.flash_attn_func(q, k, v, causal=True, softcap=3.0, alibi_slopes=slopes),
        [q, k, v, slopes],
        lambda q, k, v, slopes: exact(q, k, v, causal=True, softcap=3.0, slopes=slopes),
        wide(q, k, v, slopes),
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_gradients_of_sinks(make, dtype):
    tensors = leaves(make(1, 20, 4, 32), make(1, 33, 2, 32), make(1, 33, 2, 32), make(4, dtype=dtype))
    check_gradients(
        lambda q, k, v, sinks: v4.flash_attn_func(q, k, v, learnable_sink=sinks, causal=True)[0],
        tensors,
        lambda q, k, v, sinks: exact(q, k, v, causal=True, sinks=sinks),
        wide(*tensors),
    )


def test_gradients_of_packed_tensors(make):
    qkv, q, kv = leaves(make(1, 24, 3, 2, 32), make(1, 24, 4, 32), make(1, 24, 2, 2, 32))
    check_gradients(
        lambda qkv: fa.flash_attn_qkvpacked_func(qkv, causal=True), [qkv],
        lambda qkv: exact(*qkv.unbind(2), causal=True), wide(qkv),
    )
    check_gradients(
        lambda q, kv: fa.flash_attn_kvpacked_func(q, kv), [q, kv], lambda q, kv: exact(q, *kv.unbind(2)), wide(q, kv)
    )


LENGTHS = (7, 0, 25, 1)


def varlen_exact(q, k, v, **arguments):
    parts = [[x[None] for x in torch.split(tensor, LENGTHS)] for tensor in (q, k, v)]
    return torch.cat([exact(*own, **arguments)[0] for own in zip(*parts) if own[0].shape[1]])


def begins(like):
    return torch.tensor([0, 7, 7, 32, 33], dtype=torch.int32, device=like.device)


def test_gradients_of_varlen_sequences(make):
    qkv = make(33, 3, 2, 32).requires_grad_()
    check_gradients(
        lambda qkv: fa.flash_attn_varlen_qkvpacked_func(qkv, begins(qkv), 25, causal=True), [qkv],
        lambda qkv: varlen_exact(*qkv.unbind(1), causal=True), wide(qkv),
    )
    q, k, v = leaves(make(33, 4, 32), make(33, 2, 32), make(33, 2, 32))
    call = lambda q, k, v: v3.flash_attn_varlen_func(q, k, v, begins(q), begins(q), 25, 25, deterministic=True)
    first = check_gradients(call, [q, k, v], varlen_exact, wide(q, k, v))
    do = torch.randn_like(q)
    again = [torch.autograd.grad(call(q, k, v), [q, k, v], do) for _ in range(2)]
    assert all(torch.equal(a, b) for a, b in zip(*again)) and len(first) == 3


def test_deterministic_is_asked_for(make, monkeypatch):
    from jit_attention.torch import operator

    asked = []
    backward = operator._attention_backward

    def noted(*arrays, **options):
        asked.append(options["deterministic"])
        return backward(*arrays, **options)

    monkeypatch.setattr(operator, "_attention_backward", noted)
    q, k, v = leaves(*(make(1, 16, 1, 16) for _ in "qkv"))
    for deterministic in (False, True):
        fa.flash_attn_func(q, k, v, deterministic=deterministic).sum().backward()
    assert asked == [False, True]


@pytest.mark.parametrize("head_dim, head_dim_v", [(20, 20), (32, 13)])
def test_head_dims_between(make, head_dim, head_dim_v):
    """Padded as flash-attention pads them; the scale is that of the head dim itself."""
    tensors = leaves(make(1, 20, 2, head_dim), make(1, 20, 2, head_dim), make(1, 20, 2, head_dim_v))
    check_gradients(fa.flash_attn_func, tensors, exact, wide(*tensors))
    o, lse, _ = fa.flash_attn_func(*tensors, return_attn_probs=True)
    assert o.shape == (1, 20, 2, head_dim_v) and lse.shape == (1, 2, 20)


def test_columns_before_rows(make):
    """Tensors whose last stride is not 1 are copied, as flash-attention does."""
    q, k, v = (make(1, 20, 32, 2).transpose(2, 3) for _ in "qkv")
    torch.testing.assert_close(fa.flash_attn_func(q, k, v).double(), exact(*wide(q, k, v)).detach(), rtol=0, atol=2e-2)


def test_dropout(make):
    q, k, v = make(1, 40, 2, 32), make(1, 40, 2, 32), make(1, 40, 2, 32)
    torch.manual_seed(3)
    first, second = (fa.flash_attn_func(q, k, v, 0.4) for _ in range(2))
    torch.manual_seed(3)
    assert torch.equal(fa.flash_attn_func(q, k, v, dropout_p=0.4), first)
    assert not torch.equal(first, second) and not torch.equal(first, fa.flash_attn_func(q, k, v))


def test_dropout_of_varlen_sequences_is_that_of_dense_ones(make):
    """With equal lengths the same scores are kept: with queries of zeros, and unit vectors as values, o shows which."""
    q = torch.zeros_like(make(2, 40, 2, 64)).requires_grad_()
    v = torch.eye(40, 64, device=q.device, dtype=q.dtype)[None, :, None].expand(2, 40, 2, 64).contiguous()
    ends = torch.tensor([0, 40, 80], dtype=torch.int32, device=q.device)
    torch.manual_seed(3)
    dense = fa.flash_attn_func(q, q, v, 0.4)
    torch.manual_seed(3)
    varlen = fa.flash_attn_varlen_func(q.flatten(0, 1), q.flatten(0, 1), v.flatten(0, 1), ends, ends, 40, 40, 0.4)
    assert torch.equal(varlen > 0, dense.flatten(0, 1) > 0) and 0.5 < (varlen[..., :40] > 0).float().mean() < 0.7
    varlen.sum().backward()
    assert torch.isfinite(q.grad).all()
    with pytest.raises(ja.InvalidArgumentError, match="return_attn_probs: is True with dropout_p = 0.4"):
        fa.flash_attn_varlen_func(*(x.detach().flatten(0, 1) for x in (q, q, v)), ends, ends, 40, 40, 0.4,
                                  return_attn_probs=True)


@pytest.mark.filterwarnings("error:Dynamo detected")
def test_compiled_equals_eager(make):
    arrays = make(33, 4, 32), make(33, 2, 32), make(33, 2, 32)
    slopes = torch.rand(4, device=arrays[0].device)

    def compute(q, k, v, slopes):
        dense = fa.flash_attn_func(q[None], k[None], v[None], causal=True, window_size=(9, -1), softcap=5.0)
        varlen = fa.flash_attn_varlen_func(q, k, v, begins(q), begins(q), 25, 25, alibi_slopes=slopes)
        return dense[0], varlen, v4.flash_attn_func(q[None], k[None], v[None], return_lse=True)[1]

    for a, b in zip(torch.compile(compute, fullgraph=True)(*arrays, slopes), compute(*arrays, slopes), strict=True):
        assert torch.equal(a, b)


def test_the_cache_has_no_gradients(make):
    """As flash-attention's has none: what is stored and read is detached."""
    q, k, v = leaves(make(2, 1, 2, 32), make(2, 1, 2, 32), make(2, 1, 2, 32))
    caches = make(2, 16, 2, 32), make(2, 16, 2, 32)
    o = fa.flash_attn_with_kvcache(q, *caches, k, v, cache_seqlens=7, causal=True)
    assert not o.requires_grad
    assert torch.equal(caches[0][:, 7:8], k) and torch.equal(caches[1][:, 7:8], v)
    expected = exact(*wide(q, caches[0][:, :8], caches[1][:, :8]))
    torch.testing.assert_close(o.double(), expected.detach(), rtol=0, atol=2e-2)


def test_gradients_of_pages_are_refused_by_name(make):
    q, pages = make(4, 2, 32).requires_grad_(), make(2, 8, 2, 32)
    at = torch.tensor([0, 4], dtype=torch.int32, device=q.device)
    table = torch.zeros((1, 1), dtype=torch.int32, device=q.device)
    with pytest.raises(ja.InvalidArgumentError, match="^block_table: was given with a q, k or v that requires grad"):
        fa.flash_attn_varlen_func(q, pages, pages, at, at, 4, 4, block_table=table)


def test_the_document_runs(emulated):
    text = (pathlib.Path(__file__).resolve().parents[2] / "docs/flash_attention.md").read_text()
    (snippet,) = (code for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "backward" in code)
    names = {}
    exec(snippet.replace("cuda", "cpu") if emulated else snippet, names)
    assert names["q"].grad.shape == (1, 300, 8, 64)


def test_the_cache_in_a_compiled_function(make):
    """It breaks the graph, and computes the same."""
    q, k, v = (make(2, 1, 2, 32) for _ in "qkv")
    caches = make(2, 16, 2, 32), make(2, 16, 2, 32)
    again = [cache.clone() for cache in caches]
    lengths = torch.tensor([3, 9], dtype=torch.int32, device=q.device)

    def decode(q, k, v, k_cache, v_cache, lengths):
        return fa.flash_attn_with_kvcache(q * 2, k_cache, v_cache, k, v, cache_seqlens=lengths, causal=True) + 1

    eager = decode(q, k, v, *caches, lengths)
    assert torch.equal(torch.compile(decode)(q, k, v, *again, lengths), eager)
    assert all(torch.equal(a, b) for a, b in zip(again, caches))


@pytest.mark.parametrize("varlen", [False, True])
def test_queries_that_are_rotated_alone_as_numpy_has_them(make, emulated, varlen):
    """Positions are worked out by each framework's own functions."""
    if not emulated:
        pytest.skip("arrays of NumPy are for emulated devices")
    tokens = (7,) if varlen else (2, 3)
    q, k, v = (make(*tokens, 2, 32, dtype=torch.float16) for _ in "qkv")
    caches = [make(2, 16, 2, 32, dtype=torch.float16) for _ in "kv"]
    int32 = lambda *values: torch.tensor(values, dtype=torch.int32)
    arguments = dict(cache_seqlens=int32(4, 9), rotary_cos=make(16, 8, dtype=torch.float16),
                     rotary_sin=make(16, 8, dtype=torch.float16), cache_leftpad=int32(0, 3))
    if varlen:
        arguments |= dict(cu_seqlens_q=int32(0, 5, 7), cu_seqlens_k_new=int32(0, 5, 7), rotary_seqlens=int32(1, 2))
    as_numpy = [x.clone().numpy() for x in (q, *caches, k, v)]
    theirs = v3.flash_attn_with_kvcache(*as_numpy, **{name: x.numpy() for name, x in arguments.items()})
    ours = v3.flash_attn_with_kvcache(q, *caches, k, v, **arguments)
    assert torch.equal(ours, torch.from_numpy(theirs))
    assert all(torch.equal(a, torch.from_numpy(b)) for a, b in zip(caches, as_numpy[1:3]))


def test_types_that_are_not_served_are_refused(make):
    q = make(1, 4, 1, 16)
    with pytest.raises(ja.Error, match="fp32"):
        fa.flash_attn_func(q.float(), q.float(), q.float())
    with pytest.raises(ja.InvalidArgumentError, match="^k: "):
        fa.flash_attn_func(q, q.half(), q)
