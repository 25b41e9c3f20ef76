// Where dQ is summed: in fp32, in global memory, tile after tile, and in a tile in the order in which consumers hold it
// in their registers, so that what they add is bytes side by side.
//
//     tile (batch entry, head, tile of queries)
//       part of consumer 0, of consumer 1
//         column block of 8: four numbers of each of the 128 threads
#pragma once

#include "backward_wgmma/traits.cuh"
#include "base/gradient_params.cuh"
#include "base/params.cuh"
#include "problem/sequences.cuh"

namespace jit::backward_wgmma {

/// Tiles of queries of a head. LSE and delta have room for all of their queries.
template <class Config>
__device__ __forceinline__ int query_tiles(const AttentionParams& params) {
  return (Sequences<Config>::longest_q(params) + Config::tile_q - 1) / Config::tile_q;
}

/// The index of the first tile of a head, among all of the call.
template <class Config>
__device__ __forceinline__ long long first_query_tile(const AttentionParams& params, int batch, int head) {
  return (static_cast<long long>(batch) * params.heads_q + head) * query_tiles<Config>(params);
}

template <class Config>
__device__ __forceinline__ float* dq_sums(const GradientParams& gradients, long long tile) {
  return gradients.dq_sums + tile * KernelTraits<Config>::dq_tile_floats;
}

/// The place of a query's LSE and −delta among those of its tile. A lane of a consumer reads four numbers of 16 queries
/// at once: those of its pair of columns in two blocks of 8.
__device__ __forceinline__ int statistic_place(int query) {
  const int in_step = query % 16;
  return query - in_step + in_step % 8 / 2 * 4 + in_step / 8 * 2 + in_step % 2;
}

}  // namespace jit::backward_wgmma
