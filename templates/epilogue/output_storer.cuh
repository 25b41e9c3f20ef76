// The warp that stores outputs by TMA, once consumers have written them to shared memory.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "mainloop/pipelines.cuh"
#include "mainloop/tensor_maps.cuh"
#include "mainloop/tile_boxes.cuh"
#include "ptx/bulk_copy.cuh"
#include "scheduling/work_pipeline.cuh"

namespace jit {

/// The consumer side of the pipeline of O.
template <class Traits>
class OutputStorer {
  using Config = typename Traits::Config;
  using Work = typename Traits::Work;

 public:
  JIT_DEVICE OutputStorer(const AttentionParams& params, const TensorMaps& maps, unsigned smem)
      : params_(params), maps_(maps), work_(params, smem), pipelines_(smem) {}

  /// Waits for the outputs of the next work tile and stores them; false if none is left.
  JIT_DEVICE bool store_next() {
    const Work tile = work_.take();
    if (!is_work(tile)) return false;
    work_.release();
#pragma unroll 1
    for (int consumer = 0; consumer < Traits::consumers; ++consumer) {
      const auto own = o_pipeline_of<Traits>(pipelines_.o, consumer);  // mutate: StoresTheOutputOfOneConsumer
      own.consumer_wait();
      if (lane_id() == 0) {
        store_tile<typename Traits::OTile>(
            own.tile(), o_map<Traits>(maps_),
            query_box<Config>(params_, tile, tile.q_begin + consumer * rows_per_warpgroup));
        cp_async_bulk_commit_group();
        cp_async_bulk_wait_group_read<0>();  // mutate: NoWaitForTheStore
      }
      if constexpr (Config::output == OutputPlace::separate) {
        own.consumer_release();
      } else {
        q_pipeline_of<Traits>(pipelines_.q, consumer).consumer_release();
      }
    }
    pipelines_.q.advance();
    pipelines_.o.advance();
    return true;
  }

 private:
  const AttentionParams& params_;
  const TensorMaps& maps_;
  WorkPipeline<Traits> work_;
  QoPipelines<Traits> pipelines_;
};

template <class Traits>
JIT_DEVICE void store_outputs(const AttentionParams& params, const TensorMaps& maps, unsigned smem) {
  OutputStorer<Traits> storer(params, maps, smem);
  while (storer.store_next()) {
  }
}

}  // namespace jit
