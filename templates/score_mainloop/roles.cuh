// The frame of a pass that reduces scores: barriers, roles of warps and their registers, and items of work.
#pragma once

#include "base/prelude.cuh"
#include "pipeline/dependent_launch.cuh"
#include "pipeline/pipeline.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/warpgroup.cuh"
#include "tiles/tile_copy.cuh"

namespace jit {

/// Initializes the pipelines and waits for the grids before. Returns the address of shared memory. By all threads.
template <class Traits>
JIT_DEVICE unsigned begin_score_pass() {
  extern __shared__ __align__(1024) unsigned char memory[];
  const unsigned smem = smem_address(memory);
  if (threadIdx.x == 0) {
    constexpr int warps = Traits::consumers * warpgroup_size / warp_size;
    init_pipeline(smem, Traits::layout.q, Traits::q_arrivals, warps);
    init_pipeline(smem, Traits::layout.k, Traits::k_arrivals, warps);
    fence_mbarrier_init();  // mutate: ScoresNoFenceBehindInit
  }
  wait_on_dependent_grids();  // mutate: ScoresOfTensorsThatAreNotThere
  __syncthreads();            // mutate: ScoresNoBarrierBehindInit
  return smem;
}

/// Runs `produce()` in one warp of the first warpgroup, and `consume(consumer)` in the others.
template <class Traits, class Produce, class Consume>
JIT_DEVICE void run_score_pass(const Produce& produce, const Consume& consume) {
  if (threadIdx.x < warpgroup_size) {
    setmaxnreg_dec<Traits::producer_registers>();
    if (warp_id() == 0) produce();
  } else {
    setmaxnreg_inc<Traits::consumer_registers>();
    consume(warp_id() / 4 - 1);
  }
  launch_dependent_grids();
}

/// Calls `work(item)` for the items of this persistent block.
template <class Work>
JIT_DEVICE void for_each_item(int items, const Work& work) {
#pragma unroll 1
  for (int i = static_cast<int>(blockIdx.x); i < items; i += static_cast<int>(gridDim.x)) work(i);
}

}  // namespace jit
