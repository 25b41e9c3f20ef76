// Pipelines of tiles in shared memory between producers and consumers. Each stage has two mbarriers: `full` completes a
// phase when the bytes have arrived, `empty` when every consumer has released the stage.
#pragma once

#include "base/prelude.cuh"
#include "pipeline/smem_allocator.cuh"
#include "ptx/cluster.cuh"
#include "ptx/mbarrier.cuh"

namespace jit {

/// The state of a producer or a consumer in a pipeline: its stage and phase. Lane 0 arrives for its warp, after a
/// __syncwarp. With `by_lanes` each lane arrives for itself, for stages that lanes write or read by their own
/// instructions, since compute-sanitizer's racecheck ignores __syncwarp.
template <int stages, int stage_bytes, bool by_lanes = false>
class Pipeline {
 public:
  /// Arrivals of one warp at one barrier.
  static constexpr int warp_arrivals = by_lanes ? warp_size : 1;

  /// `smem` is the shared address of the block's memory.
  JIT_DEVICE Pipeline(unsigned smem, const PipelinePlace& place)
      : tiles_(smem + place.tiles), full_(smem + place.full), empty_(smem + place.empty) {}

  /// The pipeline in the same state whose tiles and barriers lie at these byte offsets from this one's.
  JIT_DEVICE Pipeline moved(unsigned tile_bytes, unsigned barrier_bytes) const {
    Pipeline pipeline = *this;
    pipeline.tiles_ += tile_bytes;
    pipeline.full_ += barrier_bytes;
    pipeline.empty_ += barrier_bytes;
    return pipeline;
  }

  JIT_DEVICE int stage() const { return stage_; }
  JIT_DEVICE unsigned tile() const { return tiles_ + stage_ * stage_bytes; }
  JIT_DEVICE unsigned full() const { return full_ + stage_ * 8; }
  JIT_DEVICE unsigned empty() const { return empty_ + stage_ * 8; }

  /// Arrives at `full` in all lanes except lane 0, which arrives when it announces the bytes of the copies.
  JIT_DEVICE void producer_commit_with_copies() const {
    if (by_lanes && lane_id() != 0) mbarrier_arrive(full());
  }

  // mutate: ParityOfFull
  JIT_DEVICE void consumer_wait() const { mbarrier_wait_parity(full(), phase_); }
  /// Waits for a stage that other blocks of the cluster fill.
  JIT_DEVICE void consumer_wait_cluster() const { mbarrier_wait_parity_cluster(full(), phase_); }
  /// Whether the stage is full. The test is free if its result is needed no sooner than about 40 cycles later.
  JIT_DEVICE bool is_full() const { return mbarrier_test_parity(full(), phase_); }
  // mutate: ParityOfEmpty
  JIT_DEVICE void producer_acquire() const { mbarrier_wait_parity(empty(), phase_ ^ 1); }
  /// Whether the stage is empty; uniform in the warp. By a whole warp.
  JIT_DEVICE bool is_empty() const {
    return __all_sync(full_warp, mbarrier_test_parity(empty(), phase_ ^ 1));
  }

  /// Waits until every stage is empty, if consumers release stages by instructions that may outlive the block.
  JIT_DEVICE void producer_tail() {
    for (int i = 0; i < stages; ++i) {
      producer_acquire();
      advance();
    }
  }

  /// Arrive when this warp has filled (commit) or read (release) its part of the stage.
  JIT_DEVICE void producer_commit() const { arrive(full()); }
  JIT_DEVICE void consumer_release() const { arrive(empty()); }

  /// Arrive at the barriers of a block of the cluster.
  JIT_DEVICE void producer_commit_to(int rank) const { arrive_at(full(), rank); }
  JIT_DEVICE void consumer_release_to(int rank) const { arrive_at(empty(), rank); }

  /// Releases under a condition a stage that the warp has read by a warp-wide instruction, such as wgmma.
  JIT_DEVICE void consumer_release_together_if(bool condition) const {
    mbarrier_arrive_if(condition && lane_id() == 0, empty());
  }

  /// Releases this warp's part of the stage once `known`, which is uniform in the warp, has been computed.
  JIT_DEVICE void consumer_release_after(bool known) const {
    if constexpr (!by_lanes) __syncwarp();
    mbarrier_arrive_if_behind(by_lanes || lane_id() == 0, known, empty());  // mutate: KeysReleasedByAllLanes
  }

  /// The tile of the stage `back` stages ago, for tiles that are acquired before earlier ones are finished. `back` is
  /// at most `stages`.
  JIT_DEVICE unsigned tile_before(int back) const { return tiles_ + stage_before(back) * stage_bytes; }
  JIT_DEVICE void producer_commit_before(int back) const { arrive(full_ + stage_before(back) * 8); }
  JIT_DEVICE void consumer_release_before(int back) const { arrive(empty_ + stage_before(back) * 8); }
  /// At the barrier of a block of the cluster. It orders what copies write, as they do, and no other memory.
  JIT_DEVICE void consumer_release_before_to(int back, int rank) const {
    __syncwarp();
    if (lane_id() == 0) mbarrier_arrive_cluster(cluster_address(empty_ + stage_before(back) * 8, rank));
  }
  JIT_DEVICE unsigned full_before(int back) const { return full_ + stage_before(back) * 8; }

  /// Copies the state of a pipeline with as many stages, so that registers hold both states once.
  template <int other_bytes>
  JIT_DEVICE void take_state_of(const Pipeline<stages, other_bytes, by_lanes>& other) {
    stage_ = other.stage_;
    phase_ = other.phase_;
  }

  JIT_DEVICE void advance() {
    if (++stage_ == stages) {
      stage_ = 0;
      phase_ ^= 1;  // mutate: ParityNeverChanges
    }
  }

 private:
  template <int, int, bool>
  friend class Pipeline;

  JIT_DEVICE int stage_before(int back) const {
    const int stage = stage_ - back;
    return stage < 0 ? stage + stages : stage;
  }
  static JIT_DEVICE void arrive(unsigned barrier) {
    if constexpr (!by_lanes) __syncwarp();  // mutate: NoWarpBarrierBeforeAnArrival
    if (by_lanes || lane_id() == 0) mbarrier_arrive(barrier);
  }
  static JIT_DEVICE void arrive_at(unsigned barrier, int rank) {
    __syncwarp();
    if (lane_id() == 0) mbarrier_arrive_release_cluster(cluster_address(barrier, rank));
  }

  unsigned tiles_;
  unsigned full_;
  unsigned empty_;
  int stage_ = 0;
  unsigned phase_ = 0;
};

/// Initializes the barriers of a pipeline: `full` expects so many arrivals of producers, `empty` of consumers. By one
/// thread, before any other use; fence_mbarrier_init and a __syncthreads must follow.
JIT_DEVICE void init_pipeline(unsigned smem, const PipelinePlace& place, int producers, int consumers) {
  for (int stage = 0; stage < place.stages; ++stage) {
    if (place.full != PipelinePlace::none) mbarrier_init(smem + place.full + stage * 8, producers);
    if (place.empty != PipelinePlace::none) mbarrier_init(smem + place.empty + stage * 8, consumers);
  }
}

}  // namespace jit
