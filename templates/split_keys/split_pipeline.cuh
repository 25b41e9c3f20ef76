// A pipeline of infos of splits, from the key producer to all other warps. A kernel family provides Traits: its Config
// and the layout of shared memory.
#pragma once

#include "base/prelude.cuh"
#include "pipeline/pipeline.cuh"
#include "ptx/mbarrier.cuh"
#include "split_keys/split_info.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

/// A warp's state in the pipeline of splits.
template <class Traits>
class SplitPipeline {
  using Config = typename Traits::Config;
  using Pipeline = Pipeline<stages_splits, sizeof(Info<Config>), /*by_lanes=*/true>;

 public:
  static constexpr int warp_arrivals = Pipeline::warp_arrivals;

  JIT_DEVICE SplitPipeline(unsigned char* memory, unsigned smem)
      : infos_(reinterpret_cast<Info<Config>*>(memory + Traits::layout.splits.tiles)),
        pipeline_(smem, Traits::layout.splits) {}

  /// Waits for the next split; false when there is none left.
  JIT_DEVICE bool take() const {
    pipeline_.consumer_wait();
    return info().batch >= 0;
  }
  /// The current split, until it is released.
  JIT_DEVICE const Info<Config>& info() const { return infos_[pipeline_.stage()]; }
  JIT_DEVICE void release() {
    pipeline_.consumer_release();
    pipeline_.advance();
  }

  /// Writes and commits a split: the producer's side.
  JIT_DEVICE void put(const Info<Config>& info) {
    pipeline_.producer_acquire();
    if (lane_id() == 0) infos_[pipeline_.stage()] = info;
    pipeline_.producer_commit();
    pipeline_.advance();
  }
  /// Marks the end of all splits.
  JIT_DEVICE void put_end() {
    Info<Config> end{};
    end.batch = -1;
    put(end);
  }

 private:
  Info<Config>* infos_;
  Pipeline pipeline_;
};

/// Initializes the barriers of the pipeline of splits, which `readers` warps read.
template <class Traits>
JIT_DEVICE void init_split_pipeline(unsigned smem, int readers) {
  constexpr int lanes = SplitPipeline<Traits>::warp_arrivals;
  init_pipeline(smem, Traits::layout.splits, lanes, readers * lanes);
}

}  // namespace jit
