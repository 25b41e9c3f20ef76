"""Attention and its gradients with their own arrays, for the small programs beside compare.py. Needs PyTorch."""

import functools
import itertools

import jit_attention as ja
import torch
from comparison.ahead import call_at_once


class TrainingProblem:
    """Random bf16 q, k, v and do, and buffers for all results. lengths: varlen sequences instead of `batch` and `rows`;
    mask, dropout_p and deterministic: see attention_backward. The cost model chooses configs."""

    def __init__(self, batch, rows, heads, head_dim, heads_kv=None, lengths=None, mask=None, dropout_p=0,
                 deterministic=False, device="cuda"):
        shape, heads_kv = (sum(lengths),) if lengths else (batch, rows), heads_kv or heads
        q, k, v, do = (torch.randn(*shape, count, head_dim, device=device).bfloat16()
                       for count in (heads, heads_kv, heads_kv, heads))
        self.inputs, self.do, self.o = (q, k, v), do, torch.empty_like(q)
        self.lse = torch.empty((heads, *shape) if lengths else (batch, heads, rows), device=device)
        self.gradients = [torch.empty_like(one) for one in (q, k, v)]
        self.spec = ja.AttentionSpec(dtype="bf16", head_dim=head_dim, gqa_ratio=heads // heads_kv, mask=mask,
                                     dropout=dropout_p > 0, **(dict(sequences_q="varlen", sequences_kv="varlen")
                                                               if lengths else {}))
        self.arrays = {}  # additional arrays
        if lengths:
            begins = torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32, device=device)
            self.arrays |= dict(cu_seqlens_q=begins, cu_seqlens_k=begins)
        if dropout_p:
            self.arrays["rng_state"] = torch.tensor([42, 0], device=device)
        self.options = dict(mask=mask, dropout_p=dropout_p, tuning="off", **self.arrays)
        self.backward_options = dict(deterministic=deterministic, **dict(zip(("dq", "dk", "dv"), self.gradients)))

    def forward(self):
        ja.attention(*self.inputs, out=self.o, return_lse=self.lse, **self.options)

    def backward(self):
        ja.attention_backward(*self.backward_inputs(), **self.options, **self.backward_options)

    def both(self):
        self.forward()
        self.backward()

    def backward_inputs(self):
        return self.do, *self.inputs, self.o, self.lse


def compile_ahead(problems):
    """Compiles many problems' kernels at once, without running them."""
    call_at_once(call for one in problems for call in (
        functools.partial(ja.prepare, one.spec, *one.inputs, tuning="off", **one.arrays),
        functools.partial(ja.prepare_backward, *one.backward_inputs(), **one.options, **one.backward_options)))
