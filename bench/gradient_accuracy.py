#!/usr/bin/env python3
"""Errors of the gradients of jit-attention, cuDNN, FlashAttention-4 and plain attention against fp64 gradients.

    bench/gradient_accuracy.py --out errors.jsonl --table errors.md
    bench/gradient_accuracy.py --cells "d128 outlier"

Root mean squares of the differences of dq, dk and dv over those of the fp64 gradients, bf16, 2,048 tokens, 4 heads,
head_dim 64, 128 and 256, with and without a causal mask. q, k and v are the inputs of comparison/accuracy.py, do is
N(0, 1). jit-attention runs with the configs that its cost model chooses, with sums in any order and with
deterministic sums; plain attention is PyTorch's autograd of attention step by step in bf16.

Exit status 1 when ours is wrong or fails anywhere; 2 without a GPU and for wrong arguments.
"""

import argparse
import dataclasses
import functools
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from comparison import accuracy, environment, report  # noqa: E402
from comparison.ahead import call_at_once  # noqa: E402
from comparison.backward import BackwardInputs, gradients_in  # noqa: E402
from comparison.cells import backward_of  # noqa: E402
from comparison.contenders import all_contenders  # noqa: E402
from comparison.ours import JitAttention  # noqa: E402

SUITE = "gradient-accuracy"
GRADIENTS = ("dq", "dk", "dv")
PEERS = ("cudnn", "fa4")


class Deterministic(JitAttention):
    name, label = "ours deterministic", "jit-attention, deterministic"

    def differentiate(self, cell, inputs):
        return super().differentiate(dataclasses.replace(cell, deterministic=True), inputs)


def problems(seqlen=2048, heads=4, head_dims=(64, 128, 256)):
    found = accuracy.problems(1, seqlen, heads, head_dims, SUITE, ("bf16",), ("normal", "outlier", "peaky"))
    return [dataclasses.replace(one, cell=backward_of(one.cell, SUITE)) for one in found]


def make_inputs(problem, device, seed):
    import torch

    inputs, generator = accuracy.make_inputs(problem, device, seed), torch.Generator(device).manual_seed(seed + 1)
    d_o = torch.randn(problem.cell.output_shape(), device=device, generator=generator).to(inputs.q.dtype)
    return BackwardInputs(**vars(inputs), d_o=d_o)


def compile_ahead(problems, seed, device="cuda"):
    import jit_attention as ja
    import torch

    def forward(cell, inputs):
        accuracy.Variant().prepared(cell, inputs)

    def backward(cell, inputs, deterministic):
        q, lse = inputs.q, torch.empty(cell.batch, cell.heads_q, cell.seqlen_q, device=inputs.q.device)
        ja.prepare_backward(inputs.d_o, q, inputs.k, inputs.v, torch.empty_like(q), lse, deterministic=deterministic,
                            tuning="off", **JitAttention().problem(cell, inputs))

    kernels = {(one.cell.head_dim, one.cell.mask): one for one in problems}.values()
    prepared = [(one.cell, make_inputs(one, device, seed)) for one in kernels]
    call_at_once(call for one in prepared for call in (
        functools.partial(forward, *one), functools.partial(backward, *one, False),
        functools.partial(backward, *one, True)))


def errors(gradients, exact):
    """{name: root mean square of the difference over that of the exact gradient}."""
    return {name: ((one.double() - right).square().mean() / right.square().mean()).sqrt().item()
            for name, one, right in zip(GRADIENTS, gradients, exact, strict=True)}


def measure(problem, contenders, seed=0, device="cuda"):
    """One result for each of `contenders`, in the order given."""
    import torch

    inputs = make_inputs(problem, device, seed)
    exact = gradients_in(torch.float64, problem.cell, inputs)

    def find(contender):
        runner = contender.differentiate(problem.cell, inputs)
        with runner.context():
            return errors(runner.call(), exact), runner.detail

    return [accuracy.result(problem, one, find) for one in contenders]


def table(cells, gradient, labels):
    """Rows for a gradient, header first. The last column is ours over the best peer except plain attention."""
    rows, ratios = [[gradient, *labels.values(), "over best peer"]], []
    for cell, row in cells.items():
        shown = [f"{row[name][gradient]:.2e}" if gradient in row.get(name, {}) else "–" for name in labels]
        ratio = accuracy.ratio(row, report.OURS, gradient)
        ratios += [ratio] if ratio else []
        rows.append([cell.split("/", 1)[1], *shown, f"{ratio:.2f}" if ratio else ""])
    for what, of in (("geometric mean", report.geometric_mean), ("largest", max)):
        rows.append([what, *[""] * len(labels), f"{of(ratios):.2f}" if ratios else ""])
    return rows


def markdown(run):
    cells = run.of(SUITE)
    served = [name for name in report.contenders(cells) if any("dq" in row.get(name, {}) for row in cells.values())]
    parts = [report.conditions(run, SUITE), f"Command: `{run.header.get('command', 'unknown')}`.", ""]
    for gradient in GRADIENTS:
        rows = table(cells, gradient, {name: report.label(run, name) for name in served})
        parts += [f"## {gradient}, bf16: RMSE against fp64 over the RMS of the gradient", "",
                  *report.table_lines(rows), ""]
    parts += [report.filled(line, "- ") for line in report.notes(run, SUITE) + report.absent(run)]
    return "\n".join(parts).rstrip() + "\n"


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    accuracy.add_arguments(parser)
    options = parser.parse_args(arguments)
    options.problems = accuracy.chosen_problems(parser, options, problems())
    environment.require_gpu(parser)
    peers = [one for one in all_contenders() if one.name in PEERS]
    everyone = [JitAttention("off"), Deterministic("off"), *peers, accuracy.Plain()]
    return accuracy.run(parser, options, everyone, compile_ahead, measure, markdown)


if __name__ == "__main__":
    sys.exit(main())
