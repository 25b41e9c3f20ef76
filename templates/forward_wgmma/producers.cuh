// The warps of a wgmma kernel that load queries and store outputs, by TMA. Each walks through the work at its own pace,
// as far ahead of the multiplications as its pipeline has room.
#pragma once

#include "base/params.cuh"
#include "forward_wgmma/next_work.cuh"
#include "forward_wgmma/pipelines.cuh"
#include "forward_wgmma/tensor_maps.cuh"
#include "forward_wgmma/tile_boxes.cuh"
#include "forward_wgmma/varlen_tile_scheduler.cuh"
#include "forward_wgmma/work.cuh"
#include "forward_wgmma/work_pipeline.cuh"
#include "ptx/bulk_tensor.cuh"

namespace jit::forward_wgmma {

/// Loads the queries of a work tile, a box for each consumer. By a whole warp.
template <class Config, class Pipeline>
__device__ __forceinline__ void load_queries_of(const AttentionParams& params, const TensorMaps& maps,
                                                const Pipeline& pipeline, const Work<Config>& work) {
  using Traits = KernelTraits<Config>;
#pragma unroll 1
  for (int consumer = 0; consumer < Traits::consumers; ++consumer) {
    const auto own = q_pipeline_of<Config>(pipeline, consumer);
    own.producer_acquire();
    if (lane_id() == 0) {
      load_tile<typename Traits::QTile>(
          own.tile(), q_map<Config>(maps), own.full(),
          // mutate: LoadsTheQueriesOfOneConsumer
          query_box<Config>(params, work, work.q_begin + consumer * rows_per_warpgroup));
    }
  }
}

/// The side of the one who stores outputs.
template <class Config>
class OutputStorer {
  using Traits = KernelTraits<Config>;

 public:
  __device__ __forceinline__ OutputStorer(const AttentionParams& params, const TensorMaps& maps,
                                          unsigned smem)
      : params_(params), maps_(maps), work_(params, maps, smem), pipelines_(smem) {}

  /// Waits for those of the next work tile; false when there is none left.
  __device__ __forceinline__ bool store_next() {
    const Work<Config> tile = work_.take();
    if (!is_work(tile)) return false;
    work_.release();
#pragma unroll 1
    for (int consumer = 0; consumer < Traits::consumers; ++consumer) {
      const auto own = o_pipeline_of<Config>(pipelines_.o, consumer);  // mutate: StoresTheOutputOfOneConsumer
      own.consumer_wait();
      if (lane_id() == 0) {
        store_tile<typename Traits::OTile>(
            own.tile(), o_map<Config>(maps_),
            query_box<Config>(params_, tile, tile.q_begin + consumer * rows_per_warpgroup));
        cp_async_bulk_commit_group();
        cp_async_bulk_wait_group_read<0>();  // mutate: NoWaitForTheStore
      }
      if constexpr (Config::output == OutputPlace::separate) {
        own.consumer_release();
      } else {
        q_pipeline_of<Config>(pipelines_.q, consumer).consumer_release();
      }
    }
    pipelines_.q.advance();
    pipelines_.o.advance();
    return true;
  }

 private:
  const AttentionParams& params_;
  const TensorMaps& maps_;
  WorkPipeline<Config> work_;
  Pipelines<Config> pipelines_;
};

template <class Config>
__device__ __forceinline__ void store_outputs(const AttentionParams& params, const TensorMaps& maps,
                                              unsigned smem) {
  OutputStorer<Config> storer(params, maps, smem);
  while (storer.store_next()) {
  }
}

/// Loads the queries of all work tiles, and where another warp has no time for it stores outputs. Those that lie where
/// the next queries go are stored before these are loaded; others behind them, as consumers may want queries before they
/// leave outputs.
template <class Config>
__device__ __forceinline__ void load_queries(const AttentionParams& params, const TensorMaps& maps,
                                             unsigned smem) {
  WorkPipeline<Config> work(params, maps, smem);
  auto pipeline = Pipelines<Config>(smem).q;
  constexpr bool stores = KernelTraits<Config>::query_producer_stores;
  // Outputs that are not stored yet when queries are loaded. There is one place for those that lie apart, which the next
  // ones wait for.
  constexpr int kept = Config::output == OutputPlace::separate ? 2 : Config::stages_q;
  OutputStorer<Config> storer(params, maps, smem);
  int loaded = 0;
  const auto load = [&](const Work<Config>& tile) {
    if constexpr (stores) {
      if (loaded++ >= kept) storer.store_next();  // mutate: QueriesOverOutputsThatWait
    }
    load_queries_of<Config>(params, maps, pipeline, tile);
    pipeline.advance();
  };
  if constexpr (KernelTraits<Config>::has_lengths) {
    VarlenTileScheduler<Config> scheduler(params, maps);
    WantedWork<Config> wanted(smem);
    work.put(scheduler.tile());
    while (is_work(scheduler.tile())) {
      load(scheduler.tile());
      wanted.wait();
      scheduler.next();
      work.put(scheduler.tile());
    }
  } else {
    for (Work<Config> tile = work.take(); is_work(tile); tile = work.take()) {
      work.release();
      load(tile);
    }
  }
  while (stores && storer.store_next()) {  // mutate: LastOutputsNotStored
  }
}

}  // namespace jit::forward_wgmma
