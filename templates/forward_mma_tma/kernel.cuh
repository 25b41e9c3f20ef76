// Attention forward with TMA, ldmatrix and mma.sync, for sm_120a and sm_121a, which have TMA and mbarriers, no wgmma,
// and 99 KB of shared memory. A block has four or eight consumer warps with 16 queries each, and four producer warps:
// one for keys and values, one for queries, and, where pages make many copies, one for values. Blocks are persistent
// and take tiles of queries from a list.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_mma_tma/traits.cuh"
#include "forward_mma_tma/warp.cuh"
#include "mainloop/key_word_ranges.cuh"
#include "mainloop/load_keys.cuh"
#include "mainloop/pipelines.cuh"
#include "mainloop/q_producer.cuh"
#include "problem/masks.cuh"
#include "problem/scores.cuh"
#include "problem/zero_padding.cuh"
#include "ptx/griddepcontrol.cuh"
#include "ptx/warpgroup.cuh"

namespace jit::forward_mma_tma {

/// By one thread, before any other use; then a __syncthreads.
template <class Traits>
JIT_DEVICE void init_pipelines(unsigned smem) {
  constexpr SmemLayout layout = Traits::layout;
  init_pipeline(smem, layout.q, 1, warpgroup_size / warp_size);
  init_kv_pipelines<Traits>(smem);
  init_pipeline(smem, layout.work, 1, Traits::work_readers);
  if constexpr (Traits::has_lengths) mbarrier_init(smem + layout.work_wanted, 1);
  fence_mbarrier_init();
}

template <class Config>
JIT_DEVICE void attention_forward(const AttentionParams& params, const TensorMaps& maps) {
  using Traits = KernelTraits<Config>;
  extern __shared__ __align__(1024) unsigned char memory[];
  const unsigned smem = smem_address(memory);
  if (threadIdx.x == 0) init_pipelines<Traits>(smem);
  griddepcontrol_wait();
  if constexpr (KeyWordRanges<Traits>::is_used)
    KeyWordRanges<Traits>(params, maps.schedule, smem).fill(maps.schedule);
  __syncthreads();
  if (threadIdx.x < Traits::consumer_warps * warp_size) {
    if constexpr (Traits::shares_registers) setmaxnreg_inc<shared_registers>();
    return ComputingWarp<Config>(params, smem, uniform(threadIdx.x / warpgroup_size)).run();
  }
  if constexpr (Traits::shares_registers) setmaxnreg_dec<producer_registers>();
  switch (uniform(threadIdx.x / warp_size) - Traits::consumer_warps) {
    case 0:
      return load_keys<Traits>(params, maps, smem);
    case 1:
      return load_queries<Traits>(params, maps, smem);
    case 2:
      if constexpr (Traits::has_value_producer) load_values<Traits>(params, maps, smem);
      return;
    default:
      if constexpr (Traits::has_lengths)
        zero_padding<Config>(params, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x));
  }
}

}  // namespace jit::forward_mma_tma
