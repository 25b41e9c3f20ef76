// The roles of a block's warpgroups: one of producers, one of scores and two that sum.
#pragma once

#include "backward_wide/traits.cuh"
#include "base/prelude.cuh"
#include "pipeline/pipeline.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/warpgroup.cuh"
#include "tiles/shared_words.cuh"

namespace jit::backward_wide {

/// Makes the barriers. By one thread, before any other use; then a barrier of all threads.
template <class Traits>
JIT_DEVICE void init_pipelines(unsigned smem) {
  constexpr SmemLayout layout = Traits::layout;
  init_pipeline(smem, layout.panels, 1, Traits::warps);
  init_pipeline(smem, layout.parts, 1, Traits::warps);  // of the warpgroup that owns its columns
  init_pipeline(smem, layout.weights, Traits::warps, Traits::output_warps);
  init_pipeline(smem, layout.exchange, 1, Traits::warps);
  mbarrier_init(smem + layout.own_full, 1);
  fence_mbarrier_init();
}

/// Calls what each warpgroup has to do with its share of registers: produce(warp), compute_scores() or sum(index).
template <class Config, class Produce, class ComputeScores, class Sum>
JIT_DEVICE void run_role(const Produce& produce, const ComputeScores& compute_scores, const Sum& sum) {
  const int warpgroup = uniform(threadIdx.x / warpgroup_size);
  if (warpgroup == 0) {
    setmaxnreg_dec<Config::producer_registers>();
    produce(uniform(threadIdx.x / warp_size));
  } else if (warpgroup == 1) {
    if constexpr (Config::score_registers > 128) {
      setmaxnreg_inc<Config::score_registers>();
    } else {
      setmaxnreg_dec<Config::score_registers>();
    }
    compute_scores();
  } else {
    setmaxnreg_inc<Config::output_registers>();
    sum(warpgroup - 2);
  }
}

}  // namespace jit::backward_wide
