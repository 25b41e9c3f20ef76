#!/usr/bin/env python3
"""Attention to lists of keys and its gradients: chosen latents, and chosen blocks alone and with unions of neighbors.

    bench/list_gradients_time.py
    bench/list_gradients_time.py --seconds 3 --tokens 2048

Random lists, bf16, one sequence of as many queries as --tokens; keys are so many that each list has a fraction of them, as
models have it. Backward is jit/list_gradients.h with its transposed lists; products count as 4 · pairs · (head_dim +
head_dim_v) / 2 forward, and 2.5 times that backward. Medians of bursts of CUDA graphs without a pause, in turns. Needs a GPU
and PyTorch.

Exit status 2 without a GPU and for wrong arguments.
"""

import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from comparison import environment, report  # noqa: E402
from output_time import times  # noqa: E402

#: Query heads, KV heads, head_dim, head_dim_v, keys, entries, keys per entry, queries per list. A head_dim_v below
#: head_dim: values are columns of keys.
PROBLEMS = {"latents, 128 heads": (128, 1, 576, 512, 65536, 2048, 1, 1), "latents, 16 heads": (16, 1, 576, 512, 65536, 2048, 1, 1),
            "blocks of 128": (64, 4, 128, 128, 65536, 16, 128, 1), "blocks of 128, unions of 4": (64, 4, 128, 128, 65536, 16, 128, 4),
            "blocks of 16": (32, 8, 128, 128, 32768, 64, 16, 1)}
WAYS = FORWARD, BACKWARD, TRANSPOSED = "forward", "backward", "transposing"
HEAD = ["", *(f"{way} µs" for way in WAYS), "forward TFLOP/s", "backward TFLOP/s"]


def calls_of(sizes, tokens, device="cuda"):
    """Calls by ways."""
    import jit_attention as ja
    import torch
    from jit_attention import _core
    from jit_attention.sparse.lists import list_tensors

    heads, heads_kv, head_dim, head_dim_v, keys, entries, block, queries = sizes
    random = lambda *shape: torch.randn(*shape, device=device).bfloat16()
    q, k, do = random(tokens, heads, head_dim), random(keys, heads_kv, head_dim), random(tokens, heads, head_dim_v)
    v = random(keys, heads_kv, head_dim_v) if head_dim_v == head_dim else None
    lists = torch.rand(tokens, heads_kv, keys // block, device=device).topk(entries).indices.int()
    ends = dict(cu_seqlens_q=torch.tensor([0, tokens], dtype=torch.int32, device=device),
                cu_seqlens_k=torch.tensor([0, keys], dtype=torch.int32, device=device))
    spec = ja.AttentionSpec(dtype="bf16", head_dim=head_dim, head_dim_v=head_dim_v, gqa_ratio=heads // heads_kv,
                            sequences_q="varlen", sequences_kv="varlen", values_in_keys=v is None, list_block=block,
                            list_queries=queries)
    tensors = list_tensors(q, lists, None, queries, keys // block)
    attention = ja.prepare(spec)
    o, lse = attention(q, k, v, tensors=tensors, return_lse=True, **ends)
    return {FORWARD: lambda: attention(q, k, v, tensors=tensors, return_lse=True, **ends),
            BACKWARD: lambda: _core._list_gradients(do, q, k, v, o, lse, spec, tensors=tensors, **ends),
            TRANSPOSED: lambda: ja.transpose_lists(lists, limit=keys // block)}


def row(label, sizes, tokens, us):
    """A line of the table, from the result of times()."""
    heads, _, head_dim, head_dim_v, _, entries, block, _ = sizes
    flops = 2 * tokens * heads * entries * block * (head_dim + head_dim_v)
    return [label, *(f"{us[way]:.1f}" for way in WAYS), f"{flops / us[FORWARD] / 1e6:.0f}",
            f"{2.5 * flops / us[BACKWARD] / 1e6:.0f}"]


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1, metavar="S", help="for each row, at least ten rounds (1)")
    parser.add_argument("--tokens", type=int, default=4096, metavar="N", help="queries (4096)")
    options = parser.parse_args(arguments)
    environment.require_gpu(parser)
    print(environment.one_line(), "", *report.table_lines([HEAD]), sep="\n", flush=True)
    for name, sizes in PROBLEMS.items():
        calls = calls_of(sizes, options.tokens)
        for call in calls.values():
            call()
        print("| " + " | ".join(row(name, sizes, options.tokens, times(calls, options.seconds))) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
