// The warp that loads queries by TMA, at its own pace: as far ahead of the products as the pipeline has free stages.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "epilogue/output_functor.cuh"
#include "epilogue/output_storer.cuh"
#include "mainloop/pipelines.cuh"
#include "mainloop/tensor_maps.cuh"
#include "mainloop/tile_boxes.cuh"
#include "scheduling/tile_scheduler.cuh"
#include "scheduling/work_pipeline.cuh"

namespace jit {

/// Prefetches what the output functor will read of a work tile, for which consumers have no time. By a whole warp.
template <class Traits>
JIT_DEVICE void prefetch_numbers_of(const AttentionParams& params, const typename Traits::Work& work) {
  using Config = typename Traits::Config;
  if constexpr (has_output_functor<Config>) {
    const BlockContext context = context_of<Config>(params, work);
    const int end = minimum(work.q_begin + Config::tile_q, context.seqlen_q);
#pragma unroll 1
    for (int row = work.q_begin + lane_id(); row < end; row += warp_size) {
      const typename Config::OutputFunctor::Rows rows(context, row);
      Config::OutputFunctor::template prefetch_columns<Config::head_dim_v>(rows, 0, 1);
    }
  }
}

/// Loads the queries of a work tile, a box for each 64 rows of a consumer. By a whole warp.
template <class Traits, class Pipeline>
JIT_DEVICE void load_queries_of(const AttentionParams& params, const TensorMaps& maps,
                                const Pipeline& pipeline, const typename Traits::Work& work) {
  const int first = work.q_begin + rank_in_tile<typename Traits::Config>() * Traits::QTile::rows;
#pragma unroll 1
  for (int consumer = 0; consumer < Traits::consumers; ++consumer) {
    const auto own = q_pipeline_of<Traits>(pipeline, consumer);
    own.producer_acquire();
    if (lane_id() == 0) {
      using Tile = typename Traits::QTile;
      load_tile_by_lane<Tile>(
          own.tile(), q_map<Traits>(maps), own.full(),
          // mutate: LoadsTheQueriesOfOneConsumer
          query_box<typename Traits::Config>(params, work, first + consumer * Tile::rows));
#pragma unroll
      for (int row = rows_per_warpgroup; row < Tile::rows; row += rows_per_warpgroup) {
        load_tile<Tile>(
            own.tile() + row * Tile::row_bytes, q_map<Traits>(maps), own.full(),
            query_box<typename Traits::Config>(params, work, first + consumer * Tile::rows + row));
      }
    }
  }
}

/// Loads the queries of all work tiles, and where another warp has no time for it stores outputs. Those that lie where
/// the next queries go are stored before these are loaded; others behind them, as consumers may want queries before
/// they leave outputs.
template <class Traits>
JIT_DEVICE void load_queries(const AttentionParams& params, const TensorMaps& maps, unsigned smem) {
  using Config = typename Traits::Config;
  using Work = typename Traits::Work;
  WorkPipeline<Traits> work(params, smem);
  auto pipeline = QoPipelines<Traits>(smem).q;
  constexpr bool stores = Traits::query_producer_stores;
  // Outputs that are not stored yet when queries are loaded. There is one place for those that lie apart, which the
  // next ones wait for.
  constexpr int kept = Config::output == OutputPlace::separate ? 2 : Config::stages_q;
  OutputStorer<Traits> storer(params, maps, smem);
  int loaded = 0;
  const auto load = [&](const Work& tile) {
    if constexpr (stores) {
      if (loaded++ >= kept) storer.store_next();  // mutate: QueriesOverOutputsThatWait
    }
    load_queries_of<Traits>(params, maps, pipeline, tile);
    prefetch_numbers_of<Traits>(params, tile);
    pipeline.advance();
  };
  if constexpr (Traits::has_lengths) {
    VarlenTileScheduler<Config> scheduler(params, maps.schedule);
    WantedWork<Traits> wanted(smem);
    work.put(scheduler.tile());
    while (is_work(scheduler.tile())) {
      load(scheduler.tile());
      wanted.wait();
      scheduler.next();
      work.put(scheduler.tile());
    }
  } else {
    for (Work tile = work.take(); is_work(tile); tile = work.take()) {
      work.release();
      load(tile);
    }
  }
  while (stores && storer.store_next()) {  // mutate: LastOutputsNotStored
  }
}

}  // namespace jit
