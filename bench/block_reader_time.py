#!/usr/bin/env python3
"""Times decoding over chosen blocks of keys beside a kernel that only reads the same bytes.

    bench/block_reader_time.py
    bench/block_reader_time.py --tokens 16 64

64 query heads and 4 KV heads of 128, 16 of 800 blocks of 128 bf16 keys in pages, of cell block-topk/decode-100k of compare.py.
The reader copies each listed page of a KV head to shared memory, 16 KB at a time and a block for each. Microseconds of CUDA
graphs with a cold L2 cache, in turns. Needs a GPU of sm_90 or later, and PyTorch.

Exit status 2 without a GPU and for wrong arguments.
"""

import argparse
import dataclasses
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from comparison import chosen_inputs, environment  # noqa: E402
from comparison.chosen_suites import CHOSEN_SUITES  # noqa: E402
from comparison.ours import JitAttention  # noqa: E402

CELL = next(cell for cell in CHOSEN_SUITES["block-topk"] if cell.label == "decode-100k")
PIECE = 16384  # bytes of a copy
SOURCE = """
extern "C" __global__ void read_blocks(const char* pages, const int* table, const int* lists, int entries, int heads,
                                       long long page_bytes) {
  extern __shared__ __align__(128) char held[];
  __shared__ __align__(8) unsigned long long barrier;
  if (threadIdx.x != 0) return;
  const int head = blockIdx.z % heads;
  const long long page = table[lists[blockIdx.z * entries + blockIdx.y]];
  const char* from = pages + (page * heads + head) * page_bytes + blockIdx.x * PIECEll;
  const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(held));
  const unsigned full = static_cast<unsigned>(__cvta_generic_to_shared(&barrier));
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(full) : "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], PIECE;" ::"r"(full) : "memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], PIECE, [%2];" ::"r"(to),
               "l"(from), "r"(full)
               : "memory");
  unsigned done = 0;
  while (done == 0)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(full)
                 : "memory");
}
""".replace("PIECE", str(PIECE))


def reader(problem, inputs):
    """A call that reads each listed block of keys and values."""
    import torch

    kernel = torch.cuda._compile_kernel(SOURCE, "read_blocks")
    page_bytes = problem.block * 2 * problem.head_dim * inputs.pages.element_size()
    grid = page_bytes // PIECE, problem.chosen, problem.tokens * problem.heads_kv
    arguments = [inputs.pages, inputs.page_table, inputs.lists, problem.chosen, problem.heads_kv, page_bytes]
    return lambda: kernel(grid, (32, 1, 1), arguments, shared_mem=PIECE)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[16, 32, 64], metavar="N", help="queries of a call (16 32 64)")
    options = parser.parse_args()
    environment.require_gpu(parser)
    import torch
    from graph_time import captured, cold_us

    print(environment.one_line(), flush=True)
    for tokens in options.tokens:
        problem = dataclasses.replace(CELL, tokens=tokens)
        inputs = chosen_inputs.make_block_inputs(problem, torch.device("cuda"), 1)
        calls = JitAttention("off").attend_to_blocks(problem, inputs).call, reader(problem, inputs)
        ours, read = cold_us([captured(call) for call in calls])
        data = tokens * problem.heads_kv * problem.chosen * problem.block * 4 * problem.head_dim
        print(f"{tokens} tokens: {ours:.1f} us, reader {read:.1f} us ({data / read * 1e-6:.2f} TB/s): {ours / read:.2f}", flush=True)


if __name__ == "__main__":
    main()
