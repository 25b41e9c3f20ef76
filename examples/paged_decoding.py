"""Decoding from a paged cache: three requests of different lengths, one new token each per step.

    JIT_ATTENTION_DEVICE=emulated:sm_90a python examples/paged_decoding.py

`ja.append` stores the keys and values of new tokens in the pages of their requests, `ja.attention` reads the pages.
examples/decode.cpp does the same in C++, with rotary embedding and a CUDA graph.
"""

import numpy as np
from arrays import exact_attention, fetch, place, random_arrays, report

import jit_attention as ja

HEADS_Q, HEADS_KV, HEAD_DIM, PAGE_SIZE, PAGES_PER_REQUEST = 8, 2, 64, 16, 4
PROMPTS = [37, 1, 20]  # tokens that each request has already
batch = len(PROMPTS)

# Pages of all requests lie mixed in one pool; a row of the table lists those of a request, in order.
pool = np.random.default_rng(5).permutation(batch * PAGES_PER_REQUEST).astype(np.int32)
page_table = place(pool.reshape(batch, PAGES_PER_REQUEST))
pages = (batch * PAGES_PER_REQUEST, PAGE_SIZE, HEADS_KV, HEAD_DIM)
k_cache, v_cache = (place(np.zeros(pages, np.float16)) for _ in range(2))


def store(k, v, lengths, new):
    """Adds `new` tokens to each request, whose lengths then are `lengths`."""
    starts = place(np.cumsum([0, *new]).astype(np.int32))
    ja.append(k, v, k_cache, v_cache, seqused_k=place(lengths), cu_seqlens_q=starts, page_table=page_table)


lengths = np.array(PROMPTS, np.int32)
k, v = random_arrays(2, sum(PROMPTS), HEADS_KV, HEAD_DIM, seed=6)
store(k, v, lengths, PROMPTS)
starts = np.cumsum([0, *PROMPTS])
history = [[fetch(x)[begin:end] for x in (k, v)] for begin, end in zip(starts, starts[1:])]  # for the check

for step in range(3):
    lengths = lengths + 1
    (q,) = random_arrays(1, batch, 1, HEADS_Q, HEAD_DIM, seed=10 + step)
    k, v = random_arrays(2, batch, HEADS_KV, HEAD_DIM, seed=20 + step)
    store(k, v, lengths, [1] * batch)
    o = ja.attention(q, k_cache, v_cache, page_table=page_table, seqused_k=place(lengths), mask=ja.mask.causal())

    for request in range(batch):
        history[request] = [np.vstack([old, fetch(new)[request : request + 1]])
                            for old, new in zip(history[request], (k, v))]  # fmt: skip
        keys, values = (x[None] for x in history[request])
        exact, _ = exact_attention(q[request : request + 1], keys, values)
        report(f"step {step}, request {request} of {lengths[request]} keys", o[request : request + 1], exact)
