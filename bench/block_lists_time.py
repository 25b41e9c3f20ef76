#!/usr/bin/env python3
"""Attention of blocks of queries to listed blocks of keys, its gradients, and the table of the lists.

    bench/block_lists_time.py
    bench/block_lists_time.py --seconds 3 --tokens 32768

bf16, head_dim 128, 7 heads as video models have them: 109,632 tokens and 64 listed blocks of 64 queries and keys, or 32 of
128, at random or so that neighbors share half of theirs. TFLOP/s count the products of listed blocks alone, 2.5 times as
many backward. Medians of bursts of CUDA graphs without a pause, in turns. Needs a GPU and PyTorch.

Exit status 2 without a GPU and for wrong arguments.
"""

import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from comparison import environment, report  # noqa: E402
from output_time import times  # noqa: E402

HEADS, HEAD_DIM, LISTED = 7, 128, 4096  # keys of each query
BLOCKS, SHARES = (64, 128), (0, 0.5)
WAYS = TABLE, FORWARD, BACKWARD, IN_TURNS = "table", "forward", "backward", "deterministic"
HEAD = ["", *(f"{way} µs" for way in WAYS), *(f"{way} TFLOP/s" for way in WAYS[1:])]


def random_lists(rows, columns, entries, share, device="cuda"):
    """int32 (1, heads, rows, entries): distinct blocks; two neighboring rows have `share` in common."""
    import torch

    order = torch.rand(1, HEADS, rows, columns, device=device)
    common = torch.rand(1, HEADS, -(-rows // 2), columns, device=device).topk(int(entries * share)).indices
    order.scatter_(3, common.repeat_interleave(2, 2)[:, :, :rows], 2)
    return order.topk(entries).indices.int()


def calls_of(tokens, block, share, device="cuda"):
    """Calls by ways."""
    import jit_attention as ja
    import torch

    blocks = -(-tokens // block)
    q, k, v, do = (torch.randn(1, tokens, HEADS, HEAD_DIM, device=device).bfloat16() for _ in range(4))
    lists = random_lists(blocks, blocks, min(LISTED // block, blocks), share, device)
    make = lambda: ja.sparse.video_mask(q, k, lists, block=block)
    mask = make()
    o, lse = ja.attention(q, k, v, block_mask=mask, return_lse=True)
    backward = lambda **options: ja.attention_backward(do, q, k, v, o, lse, block_mask=mask, **options)
    return {TABLE: make, FORWARD: lambda: ja.attention(q, k, v, block_mask=mask, return_lse=True), BACKWARD: backward,
            IN_TURNS: lambda: backward(deterministic=True)}


def row(label, tokens, us):
    """A line of the table, from the result of times()."""
    flops = 4 * tokens * min(LISTED, tokens) * HEADS * HEAD_DIM
    rates = (flops * (1 if way == FORWARD else 2.5) / us[way] / 1e6 for way in WAYS[1:])
    return [label, *(f"{us[way]:.1f}" for way in WAYS), *(f"{rate:.0f}" for rate in rates)]


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1, metavar="S", help="for each row, at least ten rounds (1)")
    parser.add_argument("--tokens", type=int, default=109632, metavar="N", help="queries and keys (109632)")
    options = parser.parse_args(arguments)
    environment.require_gpu(parser)
    print(environment.one_line(), "", *report.table_lines([HEAD]), sep="\n", flush=True)
    for block in BLOCKS:
        for share in SHARES:
            calls = calls_of(options.tokens, block, share)
            for call in calls.values():
                call()
            label = f"blocks of {block}, " + (f"neighbors share {share:.0%}" if share else "random")
            print("| " + " | ".join(row(label, options.tokens, times(calls, options.seconds))) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
