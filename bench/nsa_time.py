#!/usr/bin/env python3
"""Times native sparse attention beside dense causal attention of the same heads.

    bench/nsa_time.py
    bench/nsa_time.py --tokens 8192 16384

64 query heads and 4 KV heads of 128 in bf16, compressed keys of 32 tokens every 16, 16 blocks of 64 and a window of 512.
Queries are random, or those of 32 neighbors have most in common (cosine 0.9), so that they choose alike. Microseconds of CUDA
graphs with a cold L2 cache, in turns; compressing keys is no part of it. Needs a GPU of sm_90a and PyTorch.

Exit status 2 without a GPU and for wrong arguments.
"""

import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from comparison import environment  # noqa: E402

HEADS_Q, HEADS_KV, HEAD_DIM = 64, 4, 128
SPAN, STRIDE, NEIGHBORS, ALIKE = 32, 16, 32, 0.9


def inputs_of(tokens, device):
    """Random queries, queries that are alike, and what both share: k, v, compressed keys and values, gates."""
    import torch

    generator = torch.Generator(device).manual_seed(1)
    make = lambda rows, heads, columns=HEAD_DIM: torch.randn(  # noqa: E731
        rows, heads, columns, device=device, dtype=torch.bfloat16, generator=generator)
    q, rows = make(tokens, HEADS_Q), (tokens - SPAN) // STRIDE + 1
    common = make(-(-tokens // NEIGHBORS), HEADS_Q).repeat_interleave(NEIGHBORS, 0)[:tokens]
    alike = ALIKE**0.5 * common + (1 - ALIKE) ** 0.5 * q
    return q, alike, (*(make(tokens, HEADS_KV) for _ in "kv"), *(make(rows, HEADS_KV) for _ in "kv"), make(tokens, HEADS_Q, 3).sigmoid())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[8192, 16384, 32768, 65536], metavar="N",
                        help="of the sequence (8192 16384 32768 65536)")
    options = parser.parse_args()
    environment.require_gpu(parser)
    import jit_attention as ja
    import torch
    from graph_time import captured, cold_us

    print(environment.one_line(), flush=True)
    for tokens in options.tokens:
        q, alike, (k, v, *others) = inputs_of(tokens, torch.device("cuda"))
        calls = [lambda: ja.attention(q[None], k[None], v[None], mask=ja.mask.causal()),
                 lambda: ja.sparse.nsa(q, k, v, *others), lambda: ja.sparse.nsa(alike, k, v, *others)]
        dense, random, near = cold_us([captured(call) for call in calls])
        print(f"{tokens} tokens: dense {dense:.0f} us, NSA {random:.0f} us ({dense / random:.2f} times as fast), of neighbors alike "
              f"{near:.0f} us ({dense / near:.2f})", flush=True)


if __name__ == "__main__":
    main()
