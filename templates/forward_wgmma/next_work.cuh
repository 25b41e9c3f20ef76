// How the key producer learns what comes next.
#pragma once

#include "base/params.cuh"
#include "forward_wgmma/pipelines.cuh"
#include "forward_wgmma/tensor_maps.cuh"
#include "forward_wgmma/work.cuh"
#include "forward_wgmma/work_pipeline.cuh"
#include "ptx/mbarrier.cuh"

namespace jit::forward_wgmma {

/// It finds out itself and tells the others.
template <class Config>
class ScheduledWork {
 public:
  __device__ __forceinline__ ScheduledWork(const AttentionParams& params, const TensorMaps& maps,
                                           unsigned smem)
      : scheduler_(params, maps), pipeline_(params, maps, smem), next_(scheduler_.tile()) {
    pipeline_.put(next_);
  }

  /// Once for each work tile that there was: asks for the next one, which `answer` waits for.
  __device__ __forceinline__ void ask() { scheduler_.ask(); }
  __device__ __forceinline__ void answer() {
    scheduler_.answer();
    next_ = scheduler_.tile();
    pipeline_.put(next_);
  }
  /// The first one, then the one that was asked for; no_work when none is left.
  __device__ __forceinline__ WorkTile take() { return next_; }

 private:
  TileScheduler<Config> scheduler_;
  WorkPipeline<Config> pipeline_;
  WorkTile next_;
};

/// The barrier at which the key producer asks the query producer for the next work tile.
template <class Config>
class WantedWork {
 public:
  __device__ __forceinline__ explicit WantedWork(unsigned smem)
      : barrier_(smem + KernelTraits<Config>::layout.work_wanted) {}
  __device__ __forceinline__ void ask() const {
    if (lane_id() == 0) mbarrier_arrive(barrier_);
  }
  /// Waits until it is asked for once more.
  __device__ __forceinline__ void wait() {
    mbarrier_wait_parity(barrier_, round_);
    round_ ^= 1;
  }

 private:
  unsigned barrier_;
  unsigned round_ = 0;
};

/// Where sequences may differ in length it takes longer to find out than keys can wait: the query producer does it.
template <class Config>
class WorkByQueryProducer {
 public:
  __device__ __forceinline__ WorkByQueryProducer(const AttentionParams& params, const TensorMaps& maps,
                                                 unsigned smem)
      : wanted_(smem), pipeline_(params, maps, smem) {}

  __device__ __forceinline__ void ask() { wanted_.ask(); }
  __device__ __forceinline__ void answer() {}
  __device__ __forceinline__ SequenceTile take() {
    const SequenceTile work = pipeline_.take();
    pipeline_.release();
    return work;
  }

 private:
  WantedWork<Config> wanted_;
  WorkPipeline<Config> pipeline_;
};

template <class Config>
using NextWork = typename ChosenType<KernelTraits<Config>::has_lengths, WorkByQueryProducer<Config>,
                                     ScheduledWork<Config>>::type;

}  // namespace jit::forward_wgmma
