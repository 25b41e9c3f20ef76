#!/usr/bin/env python3
"""Errors of jit-attention, cuDNN, FlashAttention-3 and -4 against fp64 attention, on easy and hard inputs.

Root mean squares of o and of the LSE, bf16 and fp16, with and without a causal mask, and of o over q, k and v of e4m3,
which all are given with scales of 1. jit-attention runs with the
config that its cost model chooses, and with variants of it.

    bench/accuracy.py --out errors.jsonl --table errors.md
    bench/accuracy.py --variants rescale=lazy "family=forward_mma_sync rescale=always" --cells bf16/d128

Exit status 1 when ours is wrong or fails anywhere, or nothing can be measured; 2 for wrong arguments.
"""

import argparse
import functools
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from comparison import accuracy, environment  # noqa: E402
from comparison.ahead import call_at_once  # noqa: E402
from comparison.contenders import all_contenders  # noqa: E402
from comparison.ours import InterpolatedExponentials  # noqa: E402

VARIANTS = ("rescale=on_overflow", "rescale=lazy", "family=forward_mma_sync")
PEERS = ("cudnn", "fa3", "fa4")


def variant(text):
    if not all("=" in word for word in text.split()):
        raise argparse.ArgumentTypeError(f'"{text}" is no list of fields such as "rescale=lazy"')
    return text


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variants", nargs="*", type=variant, metavar="FIELDS", default=VARIANTS,
                        help=f"fields of a config to change ({', '.join(VARIANTS)})")
    accuracy.add_arguments(parser)
    options = parser.parse_args(arguments)
    options.problems = accuracy.chosen_problems(parser, options, accuracy.problems(dtypes=(*accuracy.DTYPES, accuracy.FP8)))
    return parser, options


def compile_ahead(ours, problems, seed):
    problems = [one for one in problems if one.dtype != accuracy.FP8]
    kernels = {(one.dtype, one.cell.head_dim, one.cell.mask): one for one in problems}.values()
    call_at_once(functools.partial(contender.prepared, problem.cell, inputs) for problem in kernels
                 for inputs in [accuracy.make_inputs(problem, "cuda", seed)] for contender in ours)


def main(arguments=None):
    parser, options = parse(arguments)
    reason = environment.no_gpu()
    if reason:
        parser.exit(1, f"{parser.prog}: {reason}\n")
    ours = [accuracy.Variant(text) for text in ("", *options.variants)]
    others = [one for one in all_contenders() if one.name in (InterpolatedExponentials.name, *PEERS)]
    return accuracy.run(parser, options, [*ours, *others, accuracy.Plain()], functools.partial(compile_ahead, ours),
                        accuracy.measure, accuracy.markdown)


if __name__ == "__main__":
    sys.exit(main())
