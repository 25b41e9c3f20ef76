"""Attention on the CPU that autograd differentiates, from arguments as FlashAttention and FlexAttention take them: what
stands in for these in tests of bench/compare.py."""

import math

import torch
from serving_stand_ins import parts


def attend(q, k, v, change=lambda scores, h, q, k: scores, keep=None):
    """fp64 attention of one sequence: q (rows, heads_q, d), k and v (keys, heads_kv, d). change: of its scores; keep:
    which of them count; both of heads, rows and keys that broadcast."""
    heads, rows, keys = torch.arange(q.shape[1])[:, None, None], torch.arange(len(q))[:, None], torch.arange(len(k))
    k, v = (t.double().repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    scores = change(torch.einsum("qhd,khd->hqk", q.double(), k) * q.shape[-1] ** -0.5, heads, rows, keys)
    if keep is not None:
        scores = scores.masked_fill(~keep(heads, rows, keys), -math.inf)
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).to(q.dtype)


class FlashAttention:
    """flash_attn_func and flash_attn_varlen_func for q and k of equal lengths; `calls`: the options of each call."""

    def __init__(self):
        self.calls = []

    def attend(self, q, k, v, causal=False, window_size=(None, None), softcap=0.0, **_):
        left = window_size[0]
        keep = None
        if causal or left is not None:
            keep = lambda h, q, k: (k <= q) & (k >= q - (math.inf if left is None else left))
        change = (lambda s, h, q, k: softcap * torch.tanh(s / softcap)) if softcap else lambda s, h, q, k: s
        return attend(q, k, v, change, keep)

    def flash_attn_func(self, q, k, v, **options):
        self.calls.append(options)
        return torch.stack([self.attend(*one, **options) for one in zip(q, k, v)]), None

    def flash_attn_varlen_func(self, q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, **options):
        self.calls.append(options)
        assert max_seqlen_q == max_seqlen_k == cu_seqlens_q.diff().max()
        sequences = zip(parts(q, cu_seqlens_q), parts(k, cu_seqlens_k), parts(v, cu_seqlens_k))
        return torch.cat([self.attend(*one, **options) for one in sequences]), None


def flex_attention(q, k, v, score_mod=None, block_mask=None, enable_gqa=False):
    """As FlexAttention's: q, k, v (batch, heads, seqlen, d)."""
    assert enable_gqa == (q.shape[1] != k.shape[1])
    results = []
    for b, one in enumerate(zip(*(t.transpose(1, 2) for t in (q, k, v)))):
        change = (lambda s, h, q, k: s) if score_mod is None else lambda s, h, q, k: score_mod(s, b, h, q, k)
        keep = None if block_mask is None else lambda h, q, k: block_mask.mask_mod(b, h, q, k)
        results.append(attend(*one, change, keep))
    return torch.stack(results).transpose(1, 2)
