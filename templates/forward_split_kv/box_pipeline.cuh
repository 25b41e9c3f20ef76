// The pipelines of a block where TMA copies tiles.
//
//             filled by        read by    empty when
//     splits  the producer     consumers  each of their lanes says so
//     stages  the producer: TMA  consumers  each of their warps says so
#pragma once

#include "base/prelude.cuh"
#include "forward_split_kv/traits.cuh"
#include "ptx/mbarrier.cuh"
#include "split_keys/split_pipeline.cuh"
#include "tiles/pipeline.cuh"

namespace jit::forward_split_kv {

/// One side's place among the stages.
template <class Config>
using BoxPipeline = Pipeline<Config::stages, KernelTraits<Config>::layout.stage_bytes>;

/// `smem` is the shared address of the block's memory.
template <class Config>
__device__ __forceinline__ BoxPipeline<Config> box_pipeline(unsigned smem) {
  constexpr auto layout = KernelTraits<Config>::layout;
  return {smem, smem + layout.full, smem + layout.empty};
}

/// By one thread, before any other use; then a __syncthreads. A stage is full when all lanes of the producer have
/// arrived, each behind its copies of queries, and once more the one that tells of bytes.
template <class Config>
__device__ __forceinline__ void init_box_pipelines(unsigned smem) {
  using Traits = KernelTraits<Config>;
  init_barriers(smem + Traits::layout.full, Config::stages, warp_size + 1);
  init_barriers(smem + Traits::layout.empty, Config::stages, Traits::consumer_warps);
  init_split_pipeline<Traits>(smem);
  fence_mbarrier_init();
}

}  // namespace jit::forward_split_kv
