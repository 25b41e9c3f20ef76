#!/usr/bin/env python3
"""Errors of jit-attention, cuDNN, FlashAttention-3 and -4 against fp64 attention, on easy and hard inputs.

Root mean squares of o and of the LSE, bf16 and fp16, with and without a causal mask. jit-attention runs with the
config that its cost model chooses, and with variants of it.

    bench/accuracy.py --out errors.jsonl --table errors.md
    bench/accuracy.py --variants rescale=always "family=forward_mma_sync rescale=always" --cells bf16/d128

Exit status 1 when ours is wrong or fails anywhere, or nothing can be measured; 2 for wrong arguments.
"""

import argparse
import concurrent.futures
import pathlib
import shlex
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from comparison import accuracy, environment, records, report  # noqa: E402
from comparison.contenders import all_contenders  # noqa: E402

VARIANTS = ("rescale=on_overflow", "rescale=lazy", "rescale=always", "family=forward_mma_sync")
PEERS = ("cudnn", "fa3", "fa4")


def variant(text):
    if not all("=" in word for word in text.split()):
        raise argparse.ArgumentTypeError(f'"{text}" is no list of fields such as "rescale=lazy"')
    return text


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variants", nargs="*", type=variant, metavar="FIELDS", default=VARIANTS,
                        help=f"fields of a config to change ({', '.join(VARIANTS)})")
    parser.add_argument("--cells", metavar="SUBSTRING", default="", help="only problems whose name holds this")
    parser.add_argument("--seed", type=int, default=0, help="of the random inputs (0)")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE.jsonl", help="all errors as JSON lines")
    parser.add_argument("--table", type=pathlib.Path, metavar="FILE.md", help="tables, which are printed otherwise")
    options = parser.parse_args(arguments)
    options.problems = [one for one in accuracy.problems() if options.cells in one.name]
    if not options.problems:
        names = ", ".join(one.name for one in accuracy.problems())
        parser.error(f'--cells "{options.cells}": no problem has that in its name, of {names}')
    return parser, options


def compile_ahead(ours, problems, seed):
    """Compiles all kernels at once, so that measuring does not wait for one after another. What fails here fails
    again, and is reported, when it is measured."""
    def one(task):
        contender, problem, inputs = task
        try:
            contender.prepared(problem.cell, inputs)
        except Exception:
            pass

    kernels = {(one.dtype, one.cell.head_dim, one.cell.mask): one for one in problems}.values()
    tasks = [(contender, problem, inputs) for problem in kernels
             for inputs in [accuracy.make_inputs(problem, "cuda", seed)] for contender in ours]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(one, tasks))


def main(arguments=None):
    parser, options = parse(arguments)
    reason = environment.no_gpu()
    if reason:
        parser.exit(1, f"{parser.prog}: {reason}\n")
    ours = [accuracy.Variant(text) for text in ("", *options.variants)]
    peers = [one for one in all_contenders() if one.name in PEERS]
    chosen = [(one, one.absent()) for one in (*ours, *peers, accuracy.Plain())]
    if chosen[0][1]:
        parser.exit(1, f"{parser.prog}: {chosen[0][1]}\n")
    command = shlex.join([pathlib.Path(sys.argv[0]).name, *sys.argv[1:]])
    run = records.Run(environment.describe(command, chosen, seed=options.seed))
    writer = records.Writer(options.out)
    writer.write(run.header)
    compile_ahead(ours, options.problems, options.seed)
    for problem in options.problems:
        for one in accuracy.measure(problem, [one for one, absent in chosen if not absent], options.seed):
            run.results.append(one)
            writer.write(one)
    text = accuracy.markdown(run)
    if options.table:
        options.table.parent.mkdir(parents=True, exist_ok=True)
        options.table.write_text(text, encoding="utf-8")
    else:
        print(text)
    lost = [one["cell"] for one in run.results if one["contender"] == report.OURS and one["status"] != records.OK]
    if lost:
        print(f"{parser.prog}: jit-attention is wrong or failed in {', '.join(lost)}", file=sys.stderr)
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
