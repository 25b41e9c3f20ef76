// The pipelines of a block.
//
//            filled by                       read by                       empty when
//     splits  the first key producer         query producers, consumers    each lane of theirs says so
//     Q      the query producers, by cp.async  consumers                   each consumer warp says so
//     K      the key producers               consumers                     each consumer warp says so
#pragma once

#include "forward_mla_wgmma/traits.cuh"
#include "ptx/mbarrier.cuh"
#include "split_keys/split_pipeline.cuh"
#include "tiles/pipeline.cuh"

namespace jit::forward_mla_wgmma {

/// One side's places in the pipelines.
template <class Config>
struct Pipelines {
  using Traits = KernelTraits<Config>;
  Pipeline<1, Traits::QTile::bytes> q;
  Pipeline<Config::stages, Traits::KTile::bytes> k;

  /// `smem` is the shared address of the block's memory.
  __device__ __forceinline__ explicit Pipelines(unsigned smem)
      : q(smem + Traits::layout.q, smem + Traits::layout.q_full, smem + Traits::layout.q_empty),
        k(smem + Traits::layout.k, smem + Traits::layout.k_full, smem + Traits::layout.k_empty) {}
};

/// By one thread, before any other use; then a __syncthreads.
template <class Config>
__device__ __forceinline__ void init_pipelines(unsigned smem) {
  using Traits = KernelTraits<Config>;
  init_barriers(smem + Traits::layout.q_full, 1, Traits::query_warps);
  init_barriers(smem + Traits::layout.q_empty, 1, Traits::consumer_warps);
  // mutate: FullWhenHalfOfTheRowsAreThere
  init_barriers(smem + Traits::layout.k_full, Config::stages, Traits::key_warps);
  init_barriers(smem + Traits::layout.k_empty, Config::stages, Traits::consumer_warps);
  init_split_pipeline<Traits>(smem);
  fence_mbarrier_init();
}

}  // namespace jit::forward_mla_wgmma
