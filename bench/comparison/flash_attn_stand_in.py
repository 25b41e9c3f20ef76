"""flash-attn's functions of PyTorch's kernels, for packages that call them.

Where flash-attn is not installed, `provide_flash_attn` makes a module of that name of the FlashAttention-2 kernels in PyTorch,
and of plain fp32 arithmetic for tensors in CPU memory, so that what a package exchanges can be checked without GPUs.
"""

import importlib.machinery
import importlib.util
import sys
import types

import torch


def _heads_of(k, like):
    return k.repeat_interleave(like.shape[-2] // k.shape[-2], -2)


def _plain(q, k, v, scale, causal):
    """O and LSE (batch, heads, rows) in fp32; causal masks are aligned to the last query and key."""
    q, k, v = q.float(), _heads_of(k, q).float(), _heads_of(v, q).float()
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * scale
    if causal:
        keep = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril(k.shape[1] - q.shape[1])
        scores = scores.masked_fill(~keep, -torch.inf)
    lse = scores.logsumexp(-1)
    return torch.einsum("bhqk,bkhd->bqhd", torch.exp(scores - lse[..., None]), v), lse


def _plain_backward(dout, q, k, v, out, lse, scale, causal):
    """Gradients of q, k and v that belong to an LSE over more keys than these, perhaps."""
    kept, ratio = _heads_of(k, q).float(), q.shape[2] // k.shape[2]
    scores = torch.einsum("bqhd,bkhd->bhqk", q.float(), kept) * scale
    if causal:
        keep = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril(k.shape[1] - q.shape[1])
        scores = scores.masked_fill(~keep, -torch.inf)
    p = torch.exp(scores - lse[..., None])
    dp = torch.einsum("bqhd,bkhd->bhqk", dout.float(), _heads_of(v, q).float())
    ds = p * (dp - (dout.float() * out.float()).sum(-1).transpose(1, 2)[..., None]) * scale
    of_kv = lambda x: x.unflatten(2, (-1, ratio)).sum(3)  # noqa: E731
    return (torch.einsum("bhqk,bkhd->bqhd", ds, kept), of_kv(torch.einsum("bhqk,bqhd->bkhd", ds, q.float())),
            of_kv(torch.einsum("bhqk,bqhd->bkhd", p, dout.float())))


def _by_sequence(function, cu_q, cu_k, packed_q, packed_k, lse=None):
    """Results of a function of one sequence for each of several, of packed rows (rows, heads, head_dim), as lists."""
    bounds = zip(cu_q.tolist(), cu_q.tolist()[1:], cu_k.tolist(), cu_k.tolist()[1:])
    found = [function(*(x[None, a:b] for x in packed_q), *(x[None, c:d] for x in packed_k),
                      *(() if lse is None else (lse[None, :, a:b],))) for a, b, c, d in bounds]
    return list(zip(*found))


def _flash_attn_forward(q, k, v, dropout_p, softmax_scale, causal, window_size_left=-1, window_size_right=-1, softcap=0.0,
                        alibi_slopes=None, return_softmax=False):
    if q.is_cuda:
        o, lse, state, *_ = torch.ops.aten._flash_attention_forward(q, k, v, None, None, q.shape[1], k.shape[1], dropout_p, causal,
                                                                    False, scale=softmax_scale)
        return o, lse, None, state
    o, lse = _plain(q, k, v, softmax_scale, causal)
    return o.to(q.dtype), lse, None, None


def _flash_attn_backward(dout, q, k, v, out, softmax_lse, dq, dk, dv, dropout_p, softmax_scale, causal, window_size_left=-1,
                         window_size_right=-1, softcap=0.0, alibi_slopes=None, deterministic=False, rng_state=None):
    if q.is_cuda:
        none = torch.empty(0, dtype=torch.uint64, device=q.device)
        found = torch.ops.aten._flash_attention_backward(dout, q, k, v, out, softmax_lse, None, None, q.shape[1], k.shape[1],
                                                         dropout_p, causal, none, none, scale=softmax_scale)
    else:
        found = _plain_backward(dout, q, k, v, out, softmax_lse, softmax_scale, causal)
    for target, gradient in zip((dq, dk, dv), found):
        target.copy_(gradient)


def _flash_attn_varlen_forward(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p, softmax_scale, causal,
                               window_size_left=-1, window_size_right=-1, softcap=0.0, alibi_slopes=None, return_softmax=False):
    if q.is_cuda:
        o, lse, state, *_ = torch.ops.aten._flash_attention_forward(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k,
                                                                    dropout_p, causal, False, scale=softmax_scale)
        return o, lse, None, state
    attend = lambda q, k, v: _plain(q, k, v, softmax_scale, causal)  # noqa: E731
    o, lse = _by_sequence(attend, cu_seqlens_q, cu_seqlens_k, (q,), (k, v))
    return torch.cat(o, 1)[0].to(q.dtype), torch.cat(lse, 2)[0], None, None


def _flash_attn_varlen_backward(dout, q, k, v, out, softmax_lse, dq, dk, dv, cu_seqlens_q, cu_seqlens_k, max_seqlen_q,
                                max_seqlen_k, dropout_p, softmax_scale, causal, window_size_left=-1, window_size_right=-1,
                                softcap=0.0, alibi_slopes=None, deterministic=False, rng_state=None):
    if q.is_cuda:
        none = torch.empty(0, dtype=torch.uint64, device=q.device)
        found = torch.ops.aten._flash_attention_backward(dout, q, k, v, out, softmax_lse, cu_seqlens_q, cu_seqlens_k, max_seqlen_q,
                                                         max_seqlen_k, dropout_p, causal, none, none, scale=softmax_scale)
    else:
        attend = lambda q, dout, out, k, v, lse: _plain_backward(dout, q, k, v, out, lse, softmax_scale, causal)  # noqa: E731
        parts = _by_sequence(attend, cu_seqlens_q, cu_seqlens_k, (q, dout, out), (k, v), softmax_lse)
        found = [torch.cat(part, 1)[0] for part in parts]
    for target, gradient in zip((dq, dk, dv), found):
        target.copy_(gradient)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, scale, causal):
        o, lse, _, _ = _flash_attn_forward(q, k, v, 0.0, scale, causal)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.options = 0.0, scale, causal
        return o

    @staticmethod
    def backward(ctx, do):
        q, k, v, *results = ctx.saved_tensors
        gradients = [torch.empty_like(x) for x in (q, k, v)]
        _flash_attn_backward(do.contiguous(), q, k, v, *results, *gradients, *ctx.options)
        return *gradients, None, None


def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, **others):
    """O alone, with gradients."""
    return _Attention.apply(q, k, v, q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale, causal)


def provide_flash_attn():
    """Makes flash_attn.flash_attn_interface importable."""
    if "flash_attn" in sys.modules or importlib.util.find_spec("flash_attn") is not None:
        return
    interface = types.ModuleType("flash_attn.flash_attn_interface")
    for function in (_flash_attn_forward, _flash_attn_backward, _flash_attn_varlen_forward, _flash_attn_varlen_backward):
        setattr(interface, function.__name__, function)
    package = types.ModuleType("flash_attn")
    package.__version__, package.__path__, package.flash_attn_interface = "2.8.3", [], interface
    package.flash_attn_func = flash_attn_func
    for module in (package, interface):
        install(module)


def install(module):
    module.__spec__ = importlib.machinery.ModuleSpec(module.__name__, None)
    sys.modules[module.__name__] = module
