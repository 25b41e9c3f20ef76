"""How evenly blocks end under block masks, by the order in which work is dealt: a count, without a GPU.

    python3 bench/row_order.py

Blocks of 128 queries by 128 keys, one for each work tile of forward_wgmma, which takes as long as it has blocks of
keys, and one more for its start and end. 132 persistent blocks take the next one of a list when they are done. Printed
is how much longer the last one takes than an even share, or than the longest work tile if that is more, in percent.
"""

import heapq

import numpy

MULTIPROCESSORS = 132
L2_BYTES = 50e6
TILE = 128
HEAD_DIM = 128
HEADS = 16


def work_list(rows, slices, seqlen):
    """(row, slice) as templates/scheduling/work_tiles.cuh and generator/launch/work_order.cpp have it."""
    fitting = int(L2_BYTES * 0.3 / (2 * HEAD_DIM * 2) / seqlen)
    width = min(max(fitting, 8), 32)
    width = -(-slices // -(-slices // width))
    last_rows = 0 if seqlen <= 1024 else -(-rows // 4)
    result = [(row, s)
              for first in range(0, slices, width)
              for row in range(rows - 1, last_rows - 1, -1)
              for s in range(first, min(first + width, slices))]
    return result + [(row, s) for row in range(last_rows - 1, -1, -1) for s in range(slices)]


def last_end(costs):
    """When the last block is done."""
    ends = [0.0] * MULTIPROCESSORS
    for cost in costs:
        heapq.heapreplace(ends, ends[0] + cost)
    return max(ends)


def masks(rng, rows, slices):
    """Names and (slices, rows, columns): which blocks are seen."""
    q, k = numpy.ogrid[:rows, :rows]

    def some(count):
        return rng.random((slices, rows, rows)).argsort(-1) < count

    alike = {"causal": k <= q, "causal or prefix": (k <= q) | (k < rows // 4), "window": (k <= q) & (q - k <= 8),
             "anticausal": k >= q, "longformer": (abs(q - k) <= 2) | (k < 4) | (q < 4)}
    for name, seen in alike.items():
        yield name, numpy.broadcast_to(seen, (slices, rows, rows))
    yield "six random blocks", some(6)
    yield "10 % of blocks", rng.random((slices, rows, rows)) < 0.1
    yield "bigbird", some(3) | (abs(q - k) <= 1) | (k < 1) | (q < 1)


def main():
    print(f"{'mask':<18} {'batch':>5} {'seqlen':>6} {'last first':>10} {'by blocks':>9} {'of all slices':>13}")
    for batch, seqlen in ((4, 8192), (1, 8192), (1, 16384), (1, 4096)):
        slices, rows = HEADS * batch, seqlen // TILE
        for name, seen in masks(numpy.random.default_rng(1), rows, slices):
            blocks = seen.sum(-1)
            costs = blocks + 1
            even = max(costs.sum() / MULTIPROCESSORS, costs.max())
            listed = work_list(rows, slices, seqlen)
            by_blocks = blocks.argsort(-1, kind="stable")
            ends = [last_end([costs[s, row] for row, s in listed]),
                    last_end([costs[s, by_blocks[s, row]] for row, s in listed]),
                    last_end(sorted(costs.ravel(), reverse=True))]
            over = [f"{100 * (end / even - 1):.1f}" for end in ends]
            print(f"{name:<18} {batch:>5} {seqlen:>6} {over[0]:>10} {over[1]:>9} {over[2]:>13}")


if __name__ == "__main__":
    main()
