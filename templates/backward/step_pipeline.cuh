// A pipeline whose stage and phase follow from a step index that continues from one tile of keys to the next.
#pragma once

#include "base/prelude.cuh"
#include "pipeline/pipeline.cuh"
#include "pipeline/smem_allocator.cuh"
#include "ptx/mbarrier.cuh"

namespace jit {

/// `stages` (a power of two) tiles and their mbarriers in shared memory: `full` completes a phase when the tile has
/// arrived, `empty` when all consumers have released it.
template <int stages, int stage_bytes>
struct StepPipeline {
  static_assert((stages & (stages - 1)) == 0, "steps count stages");
  unsigned tiles;
  unsigned full;
  unsigned empty;

  /// The pipeline of a block whose shared memory begins at `smem`; from stage `first` of the place on.
  JIT_DEVICE StepPipeline(unsigned smem, const PipelinePlace& place, int first = 0)
      : tiles(smem + place.tiles + first * stage_bytes),
        full(smem + place.full + first * 8),
        empty(smem + place.empty + first * 8) {}

  static JIT_DEVICE unsigned stage(unsigned step) { return step % stages; }
  static JIT_DEVICE unsigned round(unsigned step) { return step / stages % 2; }

  JIT_DEVICE unsigned tile(unsigned step) const { return tiles + stage(step) * stage_bytes; }
  JIT_DEVICE unsigned full_at(unsigned step) const { return full + stage(step) * 8; }
  JIT_DEVICE unsigned empty_at(unsigned step) const { return empty + stage(step) * 8; }
  /// Whether the stage is full. Does not wait.
  JIT_DEVICE bool is_full(unsigned step) const { return mbarrier_test_parity(full_at(step), round(step)); }
  JIT_DEVICE void consumer_wait(unsigned step) const { mbarrier_wait_parity(full_at(step), round(step)); }
  JIT_DEVICE void producer_acquire(unsigned step) const {
    mbarrier_wait_parity(empty_at(step), round(step) ^ 1);
  }
  /// Arrive when this warp has filled (commit) or read (release) its part of the stage.
  JIT_DEVICE void producer_commit(unsigned step) const { arrive(full_at(step)); }
  JIT_DEVICE void consumer_release(unsigned step) const { arrive(empty_at(step)); }

 private:
  static JIT_DEVICE void arrive(unsigned barrier) {
    __syncwarp();
    if (lane_id() == 0) mbarrier_arrive(barrier);
  }
};

}  // namespace jit
