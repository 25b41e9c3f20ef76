"""How evenly blocks end under block masks, and what they read from memory, by the order in which work is dealt: a count,
without a GPU.

    python3 bench/row_order.py

Blocks of 128 queries by 128 keys, one for each work tile of forward_wgmma, which takes as long as it has blocks of
keys, and one more for its start and end. 132 persistent blocks take the next one of a list when they are done. Within
the list of a slice the row with most blocks comes where the last row would.

Printed for the orders that masks and block masks get is how much longer the last one takes than an even share, or than
the longest work tile if that is more, in percent; and how many MB of keys and values are read into a cache of 30 MB,
which drops what was not read for longest. The first column of each is of the list of all work, longest first.
"""

import collections
import heapq

import numpy

MULTIPROCESSORS = 132
L2_BYTES = 50e6
CACHE_BYTES = 30e6  # cache left for keys and values
TILE = 128
HEAD_DIM = 128
BLOCK_BYTES = 2 * TILE * HEAD_DIM * 2  # of keys and values
HEADS = 16


def work_list(rows, slices, seqlen, has_block_mask):
    """(row, slice) in the order of templates/scheduling/work_tiles.cuh and generator/kernels/persistent/work_order.cpp.
    """
    fitting = int(L2_BYTES * 0.3 / (BLOCK_BYTES / TILE) / seqlen)
    width = min(max(fitting, 4 if has_block_mask else 8), 32)
    width = -(-slices // -(-slices // width))
    first_rows, last_rows = 0, -(-rows // 4)
    if has_block_mask:
        wave_rows = -(-MULTIPROCESSORS // slices)
        first_rows = min(wave_rows, -(-rows // 8))
        last_rows = min(2 * wave_rows, last_rows, rows - first_rows)
    if seqlen <= 1024:
        first_rows = last_rows = 0
    middle = range(rows - 1 - first_rows, last_rows - 1, -1)
    return ([(row, s) for row in range(rows - 1, rows - 1 - first_rows, -1) for s in range(slices)] +
            [(row, s)
             for first in range(0, slices, width)
             for row in middle
             for s in range(first, min(first + width, slices))] +
            [(row, s) for row in range(last_rows - 1, -1, -1) for s in range(slices)])


def deal(work, seen):
    """The end time of the last multiprocessor for `work`, a list of (row, slice) in the map `seen`, and the bytes read.
    """
    cache = collections.OrderedDict()
    places = int(CACHE_BYTES // BLOCK_BYTES)
    reads = 0
    waiting = iter(work)
    # For each: (time when free, index, slice, key blocks left).
    ready = [(0.0, i, None, iter(())) for i in range(MULTIPROCESSORS)]
    heapq.heapify(ready)
    last = 0.0
    while ready:
        time, i, s, columns = heapq.heappop(ready)
        column = next(columns, None)
        if column is not None:
            key = (s, column)
            if key in cache:
                cache.move_to_end(key)
            else:
                reads += 1
                cache[key] = None
                if len(cache) > places:
                    cache.popitem(last=False)
        else:
            last = max(last, time)
            tile = next(waiting, None)
            if tile is None:
                continue
            row, s = tile
            columns = iter(numpy.flatnonzero(seen[s, row]).tolist())
        heapq.heappush(ready, (time + 1, i, s, columns))
    return last, reads * BLOCK_BYTES


def masks(rng, rows, slices):
    """Names and maps (slices, rows, columns) of visible blocks."""
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
    print(f"{'':<33} {'percent later than even':>26} {'MB read':>26}")
    orders = f"{'longest':>8} {'mask':>8} {'blocks':>8}"
    print(f"{'mask':<18} {'batch':>5} {'seqlen':>8} {orders} {orders} {'keys':>6}")
    for batch, seqlen in ((4, 8192), (1, 8192), (1, 16384), (1, 4096)):
        slices, rows = HEADS * batch, seqlen // TILE
        for name, seen in masks(numpy.random.default_rng(1), rows, slices):
            blocks = seen.sum(-1)
            even = max((blocks + 1).sum() / MULTIPROCESSORS, blocks.max() + 1)
            by_blocks = blocks.argsort(-1, kind="stable")
            lists = [[(by_blocks[s, row], s) for row, s in work_list(rows, slices, seqlen, has_block_mask)]
                     for has_block_mask in (False, True)]
            longest = sorted(((row, s) for s in range(slices) for row in range(rows)),
                             key=lambda place: -blocks[place[1], place[0]])
            ends = [deal(work, seen) for work in [longest, *lists]]
            over = " ".join(f"{100 * (last / even - 1):>8.1f}" for last, _ in ends)
            read = " ".join(f"{read / 1e6:>8.0f}" for _, read in ends)
            print(f"{name:<18} {batch:>5} {seqlen:>8} {over} {read} {slices * rows * BLOCK_BYTES / 1e6:>6.0f}")


if __name__ == "__main__":
    main()
