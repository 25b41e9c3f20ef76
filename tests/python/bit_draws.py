#!/usr/bin/env python3
"""Random pairs of calls whose bits must be equal: a request by itself, and the same one another way.

    tests/python/bit_draws.py --draws 10000 --workers 14       on a GPU, 14 processes that compile and compute
    tests/python/bit_draws.py --draws 10000 --workers 16 --of-group 625 --kernels 2 3  the same within a minute
    tests/python/bit_draws.py --seed 5 --first 1234 --draws 1  one of them again
    JIT_ATTENTION_DEVICE=emulated:sm_80 tests/python/bit_draws.py --draws 40

A group of draws has one problem, some layouts and some configs, so that a kernel that was compiled serves several: of
larger groups with fewer kernels more draws are made in a time, of fewer problems.
Exit status 1 if a draw differs, or if fewer than half were drawn within --seconds.
"""

import argparse
import concurrent.futures
import multiprocessing
import os
import secrets
import sys
import time

OF_GROUP = 80
OF_A_CALL = ("layout", "path", "batch", "family", "length")  # axes that differ within a group
KERNELS = 3, 4  # layouts and families that a group has


def axes_of_group(axes, rng, kernels):
    """The axes with the values that a group has of each."""
    chosen, counts = {}, dict(zip(("layout", "family"), kernels))
    for name, values in axes.items():
        count = counts.get(name, len(values)) if name in OF_A_CALL else 1
        chosen[name] = [values[i] for i in rng.choice(len(values), min(count, len(values)), replace=False)]
    return chosen


def drawn(seed, number, of_group=OF_GROUP, kernels=KERNELS):
    """The case of a draw, and numbers for its inputs."""
    import numpy
    from bit_cases import AXES, draw

    for attempt in range(1000):
        axes = axes_of_group(AXES, numpy.random.default_rng([seed, number // of_group, attempt]), kernels)
        rng = numpy.random.default_rng([seed, number, attempt, 1])
        case = draw(rng, axes)
        if case is not None:
            return case, rng
    raise RuntimeError(f"draw {number} of seed {seed} finds no case")


def run(seed, first, count, end=None, of_group=OF_GROUP, kernels=KERNELS):
    """The draws that differ, of so many until the clock is at `end`, and the number drawn."""
    import jit_attention as ja
    from bit_cases import differences
    from placing import to_gpu, to_numpy

    place = (lambda array: array) if ja.devices()[0].emulated else to_gpu
    wrong, done = [], 0
    for number in range(first, first + count):
        if end is not None and time.time() > end:
            break
        case, rng = drawn(seed, number, of_group, kernels)
        found = differences(case, rng, place, to_numpy)
        done += 1
        if found:
            groups = f"--of-group {of_group} --kernels {kernels[0]} {kernels[1]}"
            wrong.append(f"--seed {seed} --first {number} --draws 1 {groups}: {case}: {found}")
            print(wrong[-1], flush=True)
    return wrong, done


def run_by_workers(seed, first, count, workers, end=None, of_group=OF_GROUP, kernels=KERNELS):
    """Draws in so many processes, a group at a time."""
    edges = [first, *range((first // of_group + 1) * of_group, first + count, of_group), first + count]
    context = multiprocessing.get_context("spawn")  # a GPU's context does not survive a fork
    with concurrent.futures.ProcessPoolExecutor(workers, context) as pool:
        parts = [pool.submit(run, seed, a, b - a, end, of_group, kernels) for a, b in zip(edges, edges[1:])]
        results = [part.result() for part in parts]
    return [text for wrong, _ in results for text in wrong], sum(done for _, done in results)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=200, metavar="N", help="200 if not given")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="the number of the first one")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32), metavar="N", help="chance if not given")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes; 1 if not given")
    parser.add_argument("--of-group", type=int, default=OF_GROUP, metavar="N", help="draws of a problem (80)")
    parser.add_argument("--kernels", type=int, nargs=2, default=KERNELS, metavar=("LAYOUTS", "FAMILIES"),
                        help="of a problem (3 4)")
    parser.add_argument("--seconds", type=float, metavar="S", help="begin no draw after so long")
    options = parser.parse_args()
    os.environ.setdefault("JIT_ATTENTION_TUNING", "off")
    begin = time.time()
    end = None if options.seconds is None else begin + options.seconds
    wrong, done = run_by_workers(options.seed, options.first, options.draws, options.workers, end,
                                 options.of_group, tuple(options.kernels))
    print(f"{done} of {options.draws} draws of seed {options.seed} in {time.time() - begin:.0f} s, {len(wrong)} differ")
    return 1 if wrong or done < options.draws / 2 else 0


if __name__ == "__main__":
    sys.exit(main())
