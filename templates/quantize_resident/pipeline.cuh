// The pieces of work that a block keeps: TMA copies rows to a slot, statistics warps read them, a poller waits for the
// statistics of the unit, and rounding warps read them last. Only then is a slot loaded again.
#pragma once

#include "ptx/mbarrier.cuh"
#include "quantize_resident/plan.cuh"
#include "tiles/tile_copy.cuh"

namespace jit {

/// One role's place in the pipeline. A slot has three barriers: `full` when rows have come, `ready` when statistics
/// have read them and all is known, `empty` when they are rounded.
template <class Config>
class ResidentPipeline {
  static constexpr ResidentLayout layout = ResidentPlan<Config>::layout;

 public:
  JIT_DEVICE explicit ResidentPipeline(char* memory) : memory_(memory) {}

  /// By one thread, before all others use it.
  JIT_DEVICE void init() const {
    for (int slot = 0; slot < layout.depth; ++slot) {
      mbarrier_init(barrier(slot, 0), 1);
      // mutate: PiecesAreReadyBeforeTheyAreRead
      mbarrier_init(barrier(slot, 1), 1 + resident_statistics_warps);
      mbarrier_init(barrier(slot, 2), resident_rounding_warps);
    }
    fence_mbarrier_init();
  }

  JIT_DEVICE char* rows() const { return memory_ + slot_ * layout.slot_bytes; }
  /// The means that the columns of the piece lose, followed by their scales.
  JIT_DEVICE float* results() const {
    return reinterpret_cast<float*>(memory_ + layout.results) + slot_ * layout.result_floats;
  }
  /// 1 / the scale of its head.
  JIT_DEVICE float& factor() const { return reinterpret_cast<float*>(memory_ + layout.factors)[slot_]; }
  /// Its number; −1: no more come.
  JIT_DEVICE int& piece() const { return reinterpret_cast<int*>(memory_ + layout.pieces)[slot_]; }

  JIT_DEVICE unsigned full() const { return barrier(slot_, 0); }
  JIT_DEVICE void consumer_wait() const { mbarrier_wait_parity(full(), phase_); }
  JIT_DEVICE void wait_ready() const { mbarrier_wait_parity(barrier(slot_, 1), phase_); }
  JIT_DEVICE void producer_acquire() const { mbarrier_wait_parity(barrier(slot_, 2), phase_ ^ 1); }
  /// By whole warps.
  JIT_DEVICE void arrive_ready() const { arrive(barrier(slot_, 1)); }
  JIT_DEVICE void consumer_release() const { arrive(barrier(slot_, 2)); }

  /// Calls act(work) for each piece of work that comes.
  template <class Act>
  JIT_DEVICE void for_each_work(const QuantizeParams& params, const Act& act) {
    while (true) {
      consumer_wait();
      const int number = piece();
      if (number < 0) return;
      act(resident_work(params, number));
      advance();
    }
  }

  JIT_DEVICE void advance() {
    if (++slot_ == layout.depth) {
      slot_ = 0;
      phase_ ^= 1;
    }
  }

 private:
  JIT_DEVICE unsigned barrier(int slot, int which) const {
    return smem_address(memory_ + layout.barriers) + (slot * 3 + which) * 8;
  }
  static JIT_DEVICE void arrive(unsigned barrier) {
    __syncwarp();
    if (lane_id() == 0) mbarrier_arrive(barrier);
  }

  char* memory_;
  int slot_ = 0;
  unsigned phase_ = 0;
};

}  // namespace jit
