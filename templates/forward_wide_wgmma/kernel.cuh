// Attention forward for wide heads with TMA and wgmma, for sm_90a: with more than 256 columns, O of 64 queries exceeds
// the registers of one warpgroup. A block has a producer warpgroup, with a warp each for keys, queries and values, a
// score warpgroup, which computes scores and their softmax, and two output warpgroups, which multiply P with values and
// own half of the columns of O each. P passes through shared memory. Keys and values arrive in panels, as a tile of
// either fills a quarter of shared memory.
#pragma once

#include "base/params.cuh"
#include "forward_wide_wgmma/output_warpgroup.cuh"
#include "forward_wide_wgmma/score_warpgroup.cuh"
#include "forward_wide_wgmma/traits.cuh"
#include "mainloop/key_word_ranges.cuh"
#include "mainloop/load_keys.cuh"
#include "mainloop/pipelines.cuh"
#include "mainloop/q_producer.cuh"
#include "problem/masks.cuh"
#include "problem/scores.cuh"
#include "problem/zero_padding.cuh"
#include "ptx/griddepcontrol.cuh"

namespace jit::forward_wide_wgmma {

/// By one thread, before any other use; then a __syncthreads.
template <class Traits>
JIT_DEVICE void init_pipelines(unsigned smem) {
  constexpr SmemLayout layout = Traits::layout;
  constexpr int arrivals = decltype(KeyInfoPipeline<Traits>::k)::warp_arrivals;
  init_pipeline(smem, layout.q, 1, Traits::consumer_warps);
  init_pipeline(smem, layout.infos, arrivals, Traits::key_readers * arrivals);
  init_pipeline(smem, layout.k, 1, Traits::consumer_warps);
  init_pipeline(smem, layout.v, 1, Traits::warps);  // of the warpgroup that owns its columns
  init_pipeline(smem, layout.p, Traits::consumer_warps, Traits::output_warps);
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
  switch (uniform(threadIdx.x / warpgroup_size)) {
    case 0:
      setmaxnreg_dec<Config::producer_registers>();
      switch (uniform(threadIdx.x / warp_size)) {
        case 0:
          return load_keys<Traits>(params, maps, smem);
        case 1:
          return load_queries<Traits>(params, maps, smem);
        case 2:
          return load_values<Traits>(params, maps, smem);
        default:
          if constexpr (Traits::has_lengths)
            zero_padding<Config>(params, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x));
          return;
      }
    case 1:
      setmaxnreg_of_launched<Config::score_registers, Traits::threads>();
      return ScoreWarpgroup<Config>(params, smem).run();
    default:
      setmaxnreg_inc<Config::output_registers>();
      return OutputWarpgroup<Config>(params, smem, uniform(threadIdx.x / warpgroup_size) - 2).run();
  }
}

}  // namespace jit::forward_wide_wgmma
