// Scores of keys, Σ over heads of weight · relu(q · k), times the key's scale: an indexer's (DeepSeek-V3.2). For sm_90a, by TMA
// and wgmma. Keys are the rows of the products, so that a sum over heads stays within four lanes.
#pragma once

#include "pipeline/dependent_launch.cuh"
#include "ptx/fp8.cuh"
#include "ptx/warpgroup.cuh"
#include "score_keys/consumer.cuh"
#include "score_keys/producer.cuh"
#include "tiles/tile_copy.cuh"

namespace jit {

template <class Config>
JIT_DEVICE void score_keys(const ScoreKeysParams& params) {
  using Traits = ScoreKeysTraits<Config>;
  extern __shared__ __align__(1024) unsigned char memory[];
  const unsigned smem = smem_address(memory);
  if (threadIdx.x == 0) {
    constexpr int warps = score_keys_consumers * warpgroup_size / warp_size;
    init_pipeline(smem, Traits::layout.q, 1, warps);
    init_pipeline(smem, Traits::layout.k, Config::has_scales ? 1 + warp_size : 1, warps);
    fence_mbarrier_init();  // mutate: ScoresNoFenceBehindInit
  }
  wait_for_grids_before();  // mutate: ScoresOfKeysThatAreNotThere
  __syncthreads();          // mutate: ScoresNoBarrierBehindInit
  if (threadIdx.x < warpgroup_size) {
    setmaxnreg_dec<32>();
    if (warp_id() == 0) ScoreKeysProducer<Traits>(params, smem).run();
  } else {
    setmaxnreg_inc<112>();
    ScoreKeysConsumer<Traits>(params, smem, warp_id() / 4 - 1).run();
  }
  let_next_grid_start();
}

}  // namespace jit
