// How the warps of a persistent block learn which tile of queries comes next.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_wgmma/pipelines.cuh"
#include "forward_wgmma/tensor_maps.cuh"
#include "forward_wgmma/traits.cuh"
#include "forward_wgmma/work.cuh"
#include "ptx/atomic.cuh"
#include "scheduling/work_tiles.cuh"
#include "tiles/pipeline.cuh"
#include "tiles/shared_words.cuh"

namespace jit::forward_wgmma {

/// In place of a tile when none is left.
inline constexpr WorkTile no_work{-1, -1, -1};

template <class Config>
__device__ __forceinline__ WorkTile work_tile(const AttentionParams& params, const TensorMaps& maps,
                                              int index) {
  using Order = TilesByWork<typename Config::Mask, Config::tile_q>;
  WorkTile work = work_tile<Config::tile_q>(maps.order, index, params.heads_q, params.batch_begin);
  if constexpr (Order::are_known)
    work.q_begin =
        Order::tile(context_of<Config>(params, work), work.q_begin / Config::tile_q) * Config::tile_q;
  return work;
}

/// Schedules the list of work tiles: a block takes the next tile when it asks, from a counter in global
/// memory, which begins and ends at 0, because the last of all requests sets it back.
template <class Config>
class TileScheduler {
 public:
  __device__ __forceinline__ TileScheduler(const AttentionParams& params, const TensorMaps& maps)
      : params_(params), maps_(maps) {}

  /// The block's tile; no_work when none is left.
  __device__ __forceinline__ WorkTile tile() const {
    return index_ < maps_.order.tiles() ? work_tile<Config>(params_, maps_, index_) : no_work;
  }

  /// By a whole warp, once for each tile that there was: asks for the next one. `answer` waits for it.
  __device__ __forceinline__ void ask() {
    // There always is a counter. The question keeps its address out of the registers of the producer, which has few.
    if (maps_.counter != nullptr && lane_id() == 0) taken_ = atomicAdd(maps_.counter, 1);
  }
  __device__ __forceinline__ void answer() {
    // mutate: CounterIsSetBack
    if (lane_id() == 0 && taken_ == maps_.order.tiles() - 1) store_relaxed(maps_.counter, 0);
    index_ = static_cast<int>(gridDim.x) + uniform(taken_);  // mutate: ForgetsTheTileAfterTheFirst
  }

 private:
  const AttentionParams& params_;
  const TensorMaps& maps_;
  int index_ = static_cast<int>(blockIdx.x);
  int taken_ = 0;
};

/// One warp's place in the pipeline by which the others learn what comes next: from the key producer, or from the
/// query producer where sequences may differ in length.
template <class Config>
class WorkPipeline {
  using Traits = KernelTraits<Config>;

 public:
  __device__ __forceinline__ WorkPipeline(const AttentionParams& params, const TensorMaps& maps,
                                          unsigned smem)
      : params_(params),
        maps_(maps),
        pipeline_(smem + Traits::layout.work, smem + Traits::layout.work_full,
                  smem + Traits::layout.work_empty) {}

  /// Waits for the next work tile, or no_work.
  __device__ __forceinline__ Work<Config> take() {
    pipeline_.consumer_wait();
    return tile();
  }

  /// The one that was taken, until it is released.
  __device__ __forceinline__ Work<Config> tile() const {
    Work<Config> work;
    load_work(pipeline_.tile(), work);
    return work;
  }

  /// What the functors see of `work`, which is the one that was taken.
  __device__ __forceinline__ BlockContext context(const WorkTile& work) const {
    if constexpr (Traits::has_lengths) {
      return context_at<Config>(pipeline_.tile(), params_, work);
    } else {
      return context_of<Config>(params_, work);
    }
  }

  __device__ __forceinline__ void release() {
    is_taken_ = true;
    pipeline_.consumer_release();  // mutate: WorkIsNeverTaken
    pipeline_.advance();
  }

  /// The side of the one who tells.
  __device__ __forceinline__ void put(const Work<Config>& tile) {
    pipeline_.producer_acquire();
    if (lane_id() == 0) store_work(pipeline_.tile(), tile);  // mutate: WorkTileOfAnotherLaneThanItsArrival
    pipeline_.producer_commit();
    pipeline_.advance();
  }

 private:
  const AttentionParams& params_;
  const TensorMaps& maps_;
  Pipeline<stages_work, sizeof(Work<Config>)> pipeline_;
  // Nothing reads it. Without it the compiler orders kernels with dropout otherwise than those that were measured.
  bool is_taken_ = false;
};

}  // namespace jit::forward_wgmma
