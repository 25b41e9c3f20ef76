#!/usr/bin/env python3
"""The cost of bits that the batch does not change, in decoding: split_keys beside FlashAttention-3 with num_splits=1.

Both are timed as they choose, too.

    bench/invariant_time.py
    bench/invariant_time.py --split-keys 512 4096 --seconds 3

One query a request over pages of 64 keys, 32 query and 8 KV heads, head_dim 128, bf16: few long requests, many short ones,
and the tail of a rollout, in which one is left that is far longer. FlashAttention-3 reads dense caches, since fa3-fwd is
built without pages. Medians of CUDA graphs of one call in turns, the L2 cache
overwritten before each. "over" is FlashAttention-3's time with num_splits=1 over ours with split_keys. Results are
compared before they are timed. Needs a GPU, PyTorch, and for its columns FlashAttention-3.

Exit status 1 where results differ, 2 without a GPU and for wrong arguments.
"""

import argparse
import functools
import importlib
import itertools
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from comparison import environment, report, timing  # noqa: E402
from comparison.contender import missing  # noqa: E402

HEADS, HEADS_KV, HEAD_DIM, PAGE = 32, 8, 128, 64
BATCHES = {"1 of 32k": [32768], "4 of 32k": [32768] * 4, "64 of 4k": [4096] * 64,
           "63 of 2k, 1 of 64k": [2048] * 63 + [65536]}  # fmt: skip
MODULES = ("flash_attn_interface", "fa3_fwd_interface")
FREE, PEER_ONE, PEER_FREE = "without split_keys", "FA3 num_splits=1", "FA3"
TOLERANCE = 0.02


def spans(split_keys):
    return f"split_keys={split_keys}"


class Problem:
    """Random requests, and calls by name that decode a token of each. The constructor compiles kernels."""

    def __init__(self, lengths, split_keys, device="cuda"):
        import jit_attention as ja
        import torch

        pages = [-(-n // PAGE) for n in lengths]
        random = functools.partial(torch.randn, device=device, dtype=torch.bfloat16)
        q = random(len(lengths), HEADS, HEAD_DIM)
        k, v = (random(sum(pages), PAGE, HEADS_KV, HEAD_DIM) for _ in "kv")
        table = torch.zeros(len(lengths), max(pages), dtype=torch.int32)
        order = torch.randperm(sum(pages), dtype=torch.int32)
        for row, own in zip(table, order.split(pages)):
            row[:len(own)] = own
        arrays = dict(page_table=table.to(device), seqused_k=torch.tensor(lengths, dtype=torch.int32, device=device))
        ends = torch.arange(len(lengths) + 1, dtype=torch.int32, device=device)
        make = functools.partial(ja.AttentionSpec, head_dim=HEAD_DIM, gqa_ratio=HEADS // HEADS_KV,
                                 sequences_q="varlen", sequences_kv="paged", page_size=PAGE)
        kernels = {FREE: make()} | {spans(count): make(split_keys=count) for count in split_keys}
        self.calls = {name: functools.partial(ja.prepare(spec, tuning="off"), q, k, v, cu_seqlens_q=ends, **arrays)
                      for name, spec in kernels.items()}
        module = next((name for name in MODULES if missing(name) is None), None)
        if module is not None:
            decode = importlib.import_module(module).flash_attn_with_kvcache
            dense = [torch.zeros(len(lengths), max(pages) * PAGE, HEADS_KV, HEAD_DIM, dtype=q.dtype, device=device)
                     for _ in "kv"]
            for cache, x in zip(dense, (k, v)):
                for row, own, count in zip(cache, table.to(device), pages):
                    row[:count * PAGE] = x[own[:count].long()].flatten(0, 1)
            for name, count in ((PEER_ONE, 1), (PEER_FREE, 0)):
                self.calls[name] = functools.partial(decode, q[:, None], *dense, cache_seqlens=arrays["seqused_k"],
                                                     num_splits=count)

    def differing(self):
        """Names of calls whose results differ from the first one's."""
        results = {name: call().reshape(-1, HEADS, HEAD_DIM).float() for name, call in self.calls.items()}
        first = next(iter(results.values()))
        return [name for name, o in results.items() if not (o - first).abs().max() < TOLERANCE]


def times(calls, seconds):
    """{name: microseconds} of calls."""
    from graph_time import captured, cold_us

    graphs = {name: captured(call) for name, call in calls.items()}
    samples = {name: [] for name in graphs}
    for order in timing.rounds(graphs, seconds):
        for name, own in zip(order, cold_us([graphs[name] for name in order], rounds=1)):
            samples[name].append(own)
    return {name: statistics.median(own) for name, own in samples.items()}


def columns(split_keys):
    """Pairs of a title and a function from times by name to text, empty without FlashAttention-3."""
    figure = lambda name: (name, lambda us: f"{us[name]:.1f}" if name in us else "")
    over = lambda name: ("over", lambda us: f"{us[PEER_ONE] / us[name]:.2f}" if PEER_ONE in us else "")
    ours = itertools.chain(*((figure(spans(count)), over(spans(count))) for count in split_keys))
    return [*ours, figure(FREE), figure(PEER_ONE), figure(PEER_FREE)]


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1, metavar="S", help="for each row, at least ten rounds (1)")
    parser.add_argument("--split-keys", type=int, nargs="+", default=[512, 1024, 4096], metavar="N",
                        help="512, 1024 and 4096 if not given")
    options = parser.parse_args(arguments)
    environment.require_gpu(parser)
    shown, status = columns(options.split_keys), 0
    print(environment.one_line(), "", *report.table_lines([["µs", *(title for title, _ in shown)]]), sep="\n", flush=True)
    for label, lengths in BATCHES.items():
        problem = Problem(lengths, options.split_keys)
        if differing := problem.differing():
            print(f"{label}: results differ of {', '.join(differing)}", file=sys.stderr)
            status = 1
            continue
        us = times(problem.calls, options.seconds)
        print("| " + " | ".join([label, *(text(us) for _, text in shown)]) + " |", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
