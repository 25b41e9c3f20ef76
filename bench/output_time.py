#!/usr/bin/env python3
"""Times outputs beside o: attention with largest scores of heads and rows, and key masses, beside attention alone.

    bench/output_time.py
    bench/output_time.py --seconds 3

2 sequences of 8,192 tokens, 32 query and 8 KV heads, bf16, with the configs that the cost model chooses. Medians of
bursts of CUDA graphs without a pause, in turns. "share" is the time over that of attention alone; "same config" is
attention alone with the config of the largest scores, which may differ. Needs a GPU and PyTorch.

Exit status 2 without a GPU and for wrong arguments.
"""

import argparse
import functools
import itertools
import math
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from comparison import environment, report, timing  # noqa: E402

BATCH, ROWS, HEADS, HEADS_KV = 2, 8192, 32, 8
HEAD_DIMS, MASKS = (64, 128), ("full", "causal")
PLAIN, SAME, LARGEST = "plain", "same config", ("max_logit", "row_max")
BESIDE = (SAME, *LARGEST, "key_mass")
HEAD = ["µs", PLAIN, *(text for one in BESIDE for text in (one, "share"))]
WARM_UP = 3


class Problem:
    """Random arrays for a head dim and mask, and calls by name. The constructor compiles kernels."""

    def __init__(self, head_dim, mask, device="cuda"):
        import jit_attention as ja
        import torch

        q, k, v = (torch.randn(BATCH, ROWS, heads, head_dim, device=device).bfloat16()
                   for heads in (HEADS, HEADS_KV, HEADS_KV))
        mask = ja.mask.causal() if mask == "causal" else None
        spec = dict(dtype="bf16", head_dim=head_dim, gqa_ratio=HEADS // HEADS_KV, mask=mask)
        lse = torch.empty(BATCH, HEADS, ROWS, device=device)
        out, mass = torch.empty_like(q), torch.empty(BATCH, HEADS_KV, ROWS, device=device)
        shapes = {"max_logit": (HEADS,), "row_max": lse.shape}
        held = {name: {name: torch.full(shapes[name], -math.inf, device=device)} for name in LARGEST}
        make = functools.partial(ja.prepare, q=q, k=k, v=v)
        kernels = {PLAIN: make(ja.AttentionSpec(**spec), tuning="off")}
        kernels |= {name: make(ja.AttentionSpec(**spec, **{name: True}), tuning="off") for name in LARGEST}
        self.configs = {name: kernel.kernel(q, k, v).config for name, kernel in kernels.items()}
        kernels[SAME] = make(ja.AttentionSpec(**spec), config=self.configs["max_logit"])
        self.calls = {name: functools.partial(kernel, q, k, v, out=out, return_lse=lse, return_aux=held.get(name))
                      for name, kernel in kernels.items()}
        self.calls["key_mass"] = functools.partial(ja.key_mass, q, k, lse, mask=mask, out=mass)
        self.calls[PLAIN]()  # key masses read its LSE
        self.calls["key_mass"]()


def times(calls, seconds):
    """{name: microseconds} of calls."""
    from graph_time import captured, replay_us

    graphs, counts = {name: captured(call) for name, call in calls.items()}, {}
    for name, graph in graphs.items():
        replay_us(graph, WARM_UP)
        counts[name] = math.ceil(timing.SUSTAINED_US / replay_us(graph, WARM_UP))
    samples = {name: [] for name in graphs}
    for order in timing.rounds(graphs, seconds):
        for name in order:
            samples[name].append(replay_us(graphs[name], counts[name]))
    return {name: statistics.median(own) for name, own in samples.items()}


def row(label, us):
    """A line of the table, from the result of times()."""
    return [label, f"{us[PLAIN]:.1f}",
            *(text for name in BESIDE for text in (f"{us[name]:.1f}", f"{us[name] / us[PLAIN]:.3f}"))]


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1, metavar="S", help="for each row, at least ten rounds (1)")
    options = parser.parse_args(arguments)
    environment.require_gpu(parser)
    from comparison.ahead import call_at_once

    keys = list(itertools.product(HEAD_DIMS, MASKS))
    call_at_once(functools.partial(Problem, *key) for key in keys)
    problems = {key: Problem(*key) for key in keys}
    print(environment.one_line(), "", *report.table_lines([HEAD]), sep="\n", flush=True)
    for (head_dim, mask), problem in problems.items():
        texts = row(f"head_dim {head_dim}, {mask}", times(problem.calls, options.seconds))
        print("| " + " | ".join(texts) + " |", flush=True)
    for (head_dim, mask), problem in problems.items():
        for name, config in problem.configs.items():
            fields = " ".join(f"{field}={value}" for field, value in config.items())
            print(f"head_dim {head_dim}, {mask}, {name}: {fields}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
