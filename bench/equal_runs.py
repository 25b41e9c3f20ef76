#!/usr/bin/env python3
"""Whether gradients of equal inputs are bitwise identical, over many runs on a busy GPU.

    bench/equal_runs.py
    bench/equal_runs.py --runs 10000

attention_backward with deterministic=True, bf16, 4,096 tokens, 8 heads, head_dim 64, 128 and 256: full, causal, with
four query heads for each KV head, with varlen sequences, and with dropout. Each run's dq, dk and dv are compared on
the device with the first run's, which had the GPU for itself. Beside the others a second stream multiplies matrices
and writes memory, of sizes that change from run to run. A line for each case says how many runs were different. Needs
a GPU and PyTorch.

Exit status 1 when any run was different or a gradient is not finite; 2 without a GPU and for wrong arguments.
"""

import argparse
import math
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from comparison import environment  # noqa: E402

HEAD_DIMS = (64, 128, 256)
CASES = {
    "full": {},
    "causal": dict(causal=True),
    "causal, GQA 4": dict(causal=True, heads_kv=2),
    "causal, varlen": dict(causal=True, lengths=(1, 300, 1027, 2048, 720)),
    "causal, dropout 0.1": dict(causal=True, dropout_p=0.1),
}
SIDES = (0, 1024, 2048, 4096, 6144)  # sides of the matrices that keep the GPU busy
BYTES = 1 << 16  # written for each row of such a matrix


class Load:
    """Work of changing size on its own stream; step() enqueues some without waiting."""

    def __init__(self):
        import torch

        self.torch, self.stream, self.random = torch, torch.cuda.Stream(), random.Random(0)
        self.matrix = torch.randn(SIDES[-1], SIDES[-1], device="cuda").bfloat16()
        self.memory = torch.zeros(SIDES[-1] * BYTES, dtype=torch.uint8, device="cuda")
        torch.cuda.synchronize()

    def step(self):
        side, multiplies = self.random.choice(SIDES), self.random.random() < 0.5
        with self.torch.cuda.stream(self.stream):
            if side and multiplies:
                part = self.matrix[:side, :side]
                part @ part
            elif side:
                self.memory[:side * BYTES].add_(1)


def different_runs(gradients, run, runs, step):
    """How many of `runs` calls of run() differ from the first in each of its output tensors, [count]; None if the first
    outputs are not finite. step() is called before each."""
    import torch

    def fresh():
        for one in gradients:
            one.fill_(math.nan)  # exposes missing writes
        run()

    fresh()
    if not all(one.isfinite().all() for one in gradients):
        return None
    first = [one.view(torch.int16).clone() for one in gradients]
    different = torch.zeros(len(first), dtype=torch.int64, device=first[0].device)
    for _ in range(runs):
        step()
        fresh()
        different += torch.stack([(one.view(torch.int16) != right).any() for one, right in zip(gradients, first)])
    return different.tolist()


def line(name, runs, counts):
    if counts is None:
        return f"{name}: a gradient is not finite"
    return f"{name}: of {runs:,} runs different in " + ", ".join(
        f"{gradient} {count}" for gradient, count in zip(("dq", "dk", "dv"), counts))


def problem(head_dim, causal=False, **options):
    import jit_attention as ja
    from training_problem import TrainingProblem

    return TrainingProblem(2, 2048, 8, head_dim, deterministic=True, mask=ja.mask.causal() if causal else None,
                           **options)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000, metavar="N", help="of each case (1000)")
    options = parser.parse_args(arguments)
    environment.require_gpu(parser)
    from training_problem import compile_ahead

    problems = {f"head_dim {head_dim}, {name}": problem(head_dim, **fields)
                for head_dim in HEAD_DIMS for name, fields in CASES.items()}
    compile_ahead(problems.values())
    print(environment.one_line(), flush=True)
    load, failed = Load(), False
    for name, one in problems.items():
        one.forward()
        counts = different_runs(one.gradients, one.backward, options.runs, load.step)
        print(line(name, options.runs, counts), flush=True)
        failed |= counts is None or any(counts)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
