#!/usr/bin/env python3
"""Times dropout: times of attention, of its gradients, and of both, without dropout and with a rate of 0.1.

    bench/dropout_time.py
    bench/dropout_time.py --seconds 5

16,384 tokens, heads * head_dim 2,048, bf16, with the configs that the cost model chooses. Medians of bursts of CUDA
graphs without a pause, in turns; "share" is the time with dropout over that without. Needs a GPU and PyTorch.

Exit status 2 without a GPU and for wrong arguments.
"""

import argparse
import itertools
import math
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from comparison import environment, report, timing  # noqa: E402

TOKENS, HIDDEN, RATE = 16384, 2048, 0.1
HEAD_DIMS, ROWS, MASKS = (64, 128), (2048, 8192), ("full", "causal")
PASSES = ("forward", "backward", "both")
HEAD = ["µs", *(text for one in PASSES for text in (one, "with dropout", "share"))]
WARM_UP = 3


def problem(head_dim, rows, mask, rate):
    import jit_attention as ja
    from training_problem import TrainingProblem

    return TrainingProblem(TOKENS // rows, rows, HIDDEN // head_dim, head_dim, dropout_p=rate,
                           mask=ja.mask.causal() if mask == "causal" else None)


def times(pair, seconds):
    """{(pass, rate): microseconds} of the problems {rate: problem}, without dropout and with it."""
    from graph_time import captured, replay_us

    graphs = {}
    for rate, one in pair.items():
        one.both()  # backward reads the forward pass's outputs
        graphs |= {(name, rate): captured(getattr(one, name)) for name in PASSES}
    counts = {}
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
    texts = [label]
    for name in PASSES:
        without, given = us[name, 0], us[name, RATE]
        texts += [f"{without:.1f}", f"{given:.1f}", f"{given / without:.2f}"]
    return texts


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3, metavar="S", help="for each row, at least ten rounds (3)")
    options = parser.parse_args(arguments)
    environment.require_gpu(parser)
    from training_problem import compile_ahead

    pairs = {(head_dim, rows, mask): {rate: problem(head_dim, rows, mask, rate) for rate in (0, RATE)}
             for head_dim, mask, rows in itertools.product(HEAD_DIMS, MASKS, ROWS)}
    compile_ahead([one for pair in pairs.values() for one in pair.values()])
    print(environment.one_line(), "", *report.table_lines([HEAD]), sep="\n", flush=True)
    for (head_dim, rows, mask), pair in pairs.items():
        texts = row(f"head_dim {head_dim}, {rows} tokens, {mask}", times(pair, options.seconds))
        print("| " + " | ".join(texts) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
