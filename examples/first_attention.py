"""Causal attention with grouped queries, checked against double precision.

    python examples/first_attention.py
    JIT_ATTENTION_DEVICE=emulated:sm_90a python examples/first_attention.py      # without a GPU

On a GPU the arrays are PyTorch's, on an emulated one NumPy's.
"""

from arrays import causal, exact_attention, random_arrays, report

import jit_attention as ja

# (batch, seqlen, heads, head_dim): four query heads share a KV head
(q,) = random_arrays(1, 1, 200, 8, 64, seed=1)
k, v = random_arrays(2, 1, 200, 2, 64, seed=2)

o, lse = ja.attention(q, k, v, mask=ja.mask.causal(), return_lse=True)

exact_o, exact_lse = exact_attention(q, k, v, keep=causal(200, 200))
report("o", o, exact_o)
report("lse", lse, exact_lse)
