// The pipelines of queries that one warp loads by TMA, and of outputs that one stores.
//
//            filled by                    read by        empty when
//     Q      the query producer, by TMA   its consumer   the storer has stored O, which lies over it; where
//                                                        it does not, each consumer warp says so
//     O      each consumer warp           the storer     it has read it, where O has its own place; no pipeline
//                                                        where consumers write O themselves
//
// A Traits is that of a kernel family: its Config, its consumers, the bytes of a stage and of a consumer's share of it,
// whether O lies over Q, and the layout of shared memory.
#pragma once

#include "base/prelude.cuh"
#include "pipeline/pipeline.cuh"
#include "ptx/warpgroup.cuh"

namespace jit {

/// One side's places in the pipelines of consumer 0. Each consumer has pipelines of its own: the next Q of one does not
/// wait for the O of those behind it.
template <class Traits>
struct QoPipelines {
  Pipeline<Traits::Config::stages_q, Traits::q_stage_bytes> q;
  Pipeline<Traits::stages_o, Traits::q_stage_bytes> o;

  /// `smem` is the shared address of the block's memory.
  __device__ __forceinline__ explicit QoPipelines(unsigned smem)
      : q(smem, Traits::layout.q), o(smem, Traits::layout.o) {}
};

template <class Traits, class Pipeline>
__device__ __forceinline__ Pipeline q_pipeline_of(const Pipeline& first, int consumer) {
  return first.moved(consumer * Traits::q_bytes, consumer * Traits::Config::stages_q * 8);
}
template <class Traits, class Pipeline>
__device__ __forceinline__ Pipeline o_pipeline_of(const Pipeline& first, int consumer) {
  return first.moved(consumer * Traits::o_bytes, consumer * Traits::stages_o * 8);
}

}  // namespace jit
