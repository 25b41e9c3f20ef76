// Gradients of attention to lists of blocks of keys by TMA and wgmma, for sm_90a: the one-pass kernel, whose tiles of queries
// transposed lists put together.
//
// Queries that name the same block of keys lie anywhere, but heads that share keys share lists. So rows of a tile are the heads
// of a few queries, which boxes of TMA bring (producer.cuh), and consumers multiply them as others. A tile leaves its dQ in a
// place of its own: no sum needs an atomic operation, and rows.cuh adds, for each query, what the tiles of its entries left.
#pragma once

#include "backward_wgmma/kernel.cuh"
#include "backward_wgmma_lists/producer.cuh"
#include "backward_wgmma_lists/rows.cuh"
#include "backward_wgmma_lists/sums.cuh"

namespace jit::backward_wgmma {

template <class Config>
JIT_DEVICE void list_gradients(const AttentionParams& params, const GradientParams& gradients,
                               const ListedMaps& maps) {
  static_assert(KernelTraits<Config>::adds_by_tma && !Config::pair && !Config::deterministic);
  extern __shared__ __align__(1024) unsigned char memory[];
  const unsigned smem = smem_address(memory);
  if (threadIdx.x == 0) init_pipelines<Config>(smem);
  __syncthreads();  // mutate: BarriersOfListsAreNotThereYet
  if (threadIdx.x >= warpgroup_size)
    return run_consumer<Config>(params, gradients, maps, params.dropout, smem);
  setmaxnreg_dec<Config::producer_registers>();
  const int warp = uniform(threadIdx.x / warp_size);
  const WarpRole role = role_of_producer<Config>(warp);
  if (role == WarpRole::producer) load_listed_tiles<Config>(params, gradients, maps, smem);
  if (role == WarpRole::dq_adder)
    add_dq<Pipelines<Config>>(params, gradients, maps.schedule.turns, warp - 1, parts_of_adder<Config>, smem);
}

}  // namespace jit::backward_wgmma
