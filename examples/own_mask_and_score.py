"""A mask and a score of your own, as C++ text, and the gradient of the table that the score reads.

    JIT_ATTENTION_DEVICE=emulated:sm_90a python examples/own_mask_and_score.py

Sequences are packed: a token sees the earlier tokens of its own document. A learned table adds to each score by the
distance of query and key. The library compiles both texts into the kernels, and differentiates the score. Kernels may
evaluate a score that the mask drops, so that the text must not read outside of the table for any key.
"""

import numpy as np
from arrays import causal, exact_attention, fetch, place, random_arrays, report

import jit_attention as ja

SEQLEN, HEADS, REACH = 96, 2, 16
same_document = ja.mask.text("return document[q] == document[k];", name="same_document", tensors={"document": "int32"})
by_distance = ja.score.text("return score + table[h * reach + min(max(q - k, 0), reach - 1)];", name="by_distance",
                            constants={"reach": REACH}, tensors={"table": "fp32"})  # fmt: skip

q, k, v, do = random_arrays(4, 1, SEQLEN, HEADS, 64, seed=3)
document = np.repeat(np.arange(3, dtype=np.int32), SEQLEN // 3)
table = np.random.default_rng(4).standard_normal((HEADS, REACH)).astype(np.float32)
problem = dict(mask=ja.mask.causal() & same_document, score=by_distance,
               tensors={"document": place(document), "table": place(table)})  # fmt: skip

o, lse = ja.attention(q, k, v, return_lse=True, **problem)
dq, dk, dv, d_tensors = ja.attention_backward(do, q, k, v, o, lse, d_tensors=["table"], **problem)

keep = causal(SEQLEN, SEQLEN) & (document[:, None] == document[None, :])
distance = np.clip(np.arange(SEQLEN)[:, None] - np.arange(SEQLEN)[None, :], 0, REACH - 1)


def exact_o(table):
    return exact_attention(q, k, v, keep, change=lambda scores: scores + table[None, :, distance])[0]


report("o", o, exact_o(table.astype(np.float64)))


def difference(head, entry, step=1e-4):
    """The derivative of sum(o · do) with respect to an entry of the table, as a quotient of differences."""
    there, back = (table.astype(np.float64) for _ in range(2))
    there[head, entry] += step
    back[head, entry] -= step
    return ((exact_o(there) - exact_o(back)) * fetch(do)).sum() / (2 * step)


exact_gradient = np.array([[difference(head, entry) for entry in range(REACH)] for head in range(HEADS)])
report("gradient of the table", d_tensors["table"], exact_gradient, bound=0.05)
