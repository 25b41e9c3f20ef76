// A pipeline whose places follow from a count of steps, which goes on from one tile of keys to the next.
#pragma once

#include "base/prelude.cuh"
#include "pipeline/pipeline.cuh"
#include "pipeline/smem_allocator.cuh"
#include "ptx/mbarrier.cuh"

namespace jit {

/// `stages`, a power of two, tiles and their mbarriers at shared addresses: `full` ends a phase when the tile has come,
/// `empty` when every reader is done with it.
template <int stages, int stage_bytes>
struct StepPipeline {
  static_assert((stages & (stages - 1)) == 0, "steps count stages");
  unsigned tiles;
  unsigned full;
  unsigned empty;

  /// The pipeline of a block whose shared memory begins at `smem`; from stage `first` of the place on.
  __device__ __forceinline__ StepPipeline(unsigned smem, const PipelinePlace& place, int first = 0)
      : tiles(smem + place.tiles + first * stage_bytes),
        full(smem + place.full + first * 8),
        empty(smem + place.empty + first * 8) {}

  static __device__ __forceinline__ unsigned stage(unsigned step) { return step % stages; }
  static __device__ __forceinline__ unsigned round(unsigned step) { return step / stages % 2; }

  __device__ __forceinline__ unsigned tile(unsigned step) const { return tiles + stage(step) * stage_bytes; }
  __device__ __forceinline__ unsigned full_at(unsigned step) const { return full + stage(step) * 8; }
  __device__ __forceinline__ unsigned empty_at(unsigned step) const { return empty + stage(step) * 8; }
  /// Whether the tile has come. Does not wait.
  __device__ __forceinline__ bool is_full(unsigned step) const {
    return mbarrier_test_parity(full_at(step), round(step));
  }
  __device__ __forceinline__ void consumer_wait(unsigned step) const {
    mbarrier_wait_parity(full_at(step), round(step));
  }
  __device__ __forceinline__ void producer_acquire(unsigned step) const {
    mbarrier_wait_parity(empty_at(step), round(step) ^ 1);
  }
  /// This warp has filled, or read, its part.
  __device__ __forceinline__ void producer_commit(unsigned step) const { arrive(full_at(step)); }
  __device__ __forceinline__ void consumer_release(unsigned step) const { arrive(empty_at(step)); }

 private:
  static __device__ __forceinline__ void arrive(unsigned barrier) {
    __syncwarp();
    if (lane_id() == 0) mbarrier_arrive(barrier);
  }
};

}  // namespace jit
