// The warps of a producer warpgroup that load queries: rows of several heads, which cp.async gathers. A kernel
// family provides Traits: its Config, the QTile of 64 rows, which has the columns from first_query_column on, tile_rows,
// stages_q, and the threads that load and that compute.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "pipeline/pipeline.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/warpgroup.cuh"
#include "split_keys/packed_rows.cuh"
#include "split_keys/split_pipeline.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

/// The pipeline of queries: a stage has those of all consumers, a tile each.
template <class Traits>
using QPipeline = Pipeline<Traits::stages_q, Traits::tile_rows / rows_per_warpgroup * Traits::QTile::bytes>;

/// The tiles of queries of all consumers in one stage.
template <class Traits>
class QueryTiles {
  using Config = typename Traits::Config;
  using Tile = typename Traits::QTile;
  static constexpr int per_chunk = ElementTraits<typename Config::Element>::per_chunk;
  static constexpr int chunks = Tile::panels * Tile::row_bytes / chunk_bytes;

 public:
  /// From the shared address `tiles` on.
  JIT_DEVICE explicit QueryTiles(unsigned tiles) : tiles_(tiles) {}

  /// Clears rows [begin, end). By `threads` threads, of which this is `thread`.
  JIT_DEVICE void clear(int begin, int end, int thread, int threads) const {
#pragma unroll 1
    for (int i = begin * chunks + thread; i < end * chunks; i += threads)
      clear_shared_chunk(chunk_address(i / chunks, i % chunks));
  }

  /// Copies the first `count` rows. By the query producers. A row has as many lanes as chunks, up to a warp; each lane
  /// computes the row's address once.
  JIT_DEVICE void copy(const QueryRows<Config>& rows, int count, int thread) const {
    constexpr int head_dim_chunks = (Config::head_dim - Traits::first_query_column) / per_chunk;
    constexpr int lanes = head_dim_chunks > 16 ? warp_size : head_dim_chunks > 8 ? 16 : 8;
    constexpr int panel_chunks = Tile::row_bytes / chunk_bytes;
    static_assert(lanes % panel_chunks == 0, "lanes of a row have whole panels");
    const int first = thread % lanes;
#pragma unroll 1
    for (int row = thread / lanes; row < count; row += Traits::query_threads / lanes) {
      const auto* const source = rows(row) + Traits::first_query_column + first * per_chunk;
      const unsigned target = chunk_address(row, first);
#pragma unroll
      for (int c = 0; c < head_dim_chunks; c += lanes)
        if (first + c < head_dim_chunks)
          cp_async<chunk_bytes>(target + c / panel_chunks * Tile::panel_bytes, source + c * per_chunk);
    }
  }

 private:
  JIT_DEVICE unsigned chunk_address(int row, int chunk) const {
    return Tile::chunk_address(tiles_ + row / rows_per_warpgroup * Tile::bytes, row % rows_per_warpgroup,
                               chunk);
  }

  unsigned tiles_;
};

/// Clears all stages from shared address `tiles` on. By the consumers, before any load: if few rows are copied, the
/// others stay zero.
template <class Traits>
JIT_DEVICE void clear_queries(unsigned tiles, int thread) {
  const QueryTiles<Traits> all(tiles);
  all.clear(0, Traits::stages_q * Traits::tile_rows, thread, Traits::consumer_threads);
  fence_proxy_async_shared();
}

/// Fills the pipeline with the queries of one split after another, by the last warps of the block's first warpgroup.
template <class Traits, class Pipeline>
JIT_DEVICE void load_queries(const AttentionParams& params, SplitPipeline<Traits> splits, Pipeline pipeline) {
  using Config = typename Traits::Config;
  const int thread = static_cast<int>(threadIdx.x) - (warpgroup_size - Traits::query_threads);
  int most_rows = 0;  // rows of earlier splits that a stage may hold
  while (splits.take()) {
    if (!brings_queries<Config>(splits.info())) {
      splits.release();
      continue;
    }
    const QueryRows<Config> rows(params, splits.info());
    splits.release();
    const QueryTiles<Traits> tiles(pipeline.tile());
    const int count = minimum(Traits::tile_rows, rows.row_end - rows.row_begin);
    pipeline.producer_acquire();
    tiles.copy(rows, count, thread);
    cp_async_commit_group();
    tiles.clear(count, most_rows, thread, Traits::query_threads);
    most_rows = maximum(most_rows, count);
    cp_async_wait_group<0>();    // mutate: QueriesWithoutWait
    fence_proxy_async_shared();  // mutate: QueriesWithoutProxyFence
    pipeline.producer_commit();
    pipeline.advance();
  }
}

}  // namespace jit
