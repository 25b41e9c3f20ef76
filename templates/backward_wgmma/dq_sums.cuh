// Where dQ is summed: in fp32, in global memory, tile after tile, and in a tile in the order in which consumers hold it
// in their registers, and leave it in shared memory (backward/gradient_writer.cuh), so that what is added is bytes side by side.
//
//     tile (batch entry, head, tile of queries), or (head, place of a tile) of varlen queries (base/varlen_tiles.cuh)
//       part of consumer 0, of consumer 1; of a consumer of dQ alone, one for each panel of K
//         column block of 8: four numbers of each of the 128 threads
#pragma once

#include "backward/query_tile.cuh"
#include "backward_wgmma/traits.cuh"
#include "base/gradient_params.cuh"

namespace jit::backward_wgmma {

template <class Config>
JIT_DEVICE float* dq_sums(const GradientParams& gradients, long long tile) {
  return gradients.dq_sums + tile * KernelTraits<Config>::dq_tile_floats;
}

/// The place of a query's LSE and −delta among those of its tile. A lane of a consumer reads four numbers of 16 queries
/// at once: those of its pair of columns in two blocks of 8.
JIT_DEVICE int statistic_place(int query) {
  const int in_step = query % 16;
  // mutate: QueriesOfAnotherOrder
  return query - in_step + in_step % 8 / 2 * 4 + in_step / 8 * 2 + in_step % 2;
}

}  // namespace jit::backward_wgmma
