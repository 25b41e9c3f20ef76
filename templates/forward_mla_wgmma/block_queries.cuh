// Queries in shared memory, of those that compute scores: producer warps load them, or themselves where these all copy keys.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/warpgroup.cuh"
#include "split_keys/load_queries.cuh"
#include "split_keys/packed_rows.cuh"
#include "tiles/tile_copy.cuh"

namespace jit::forward_mla_wgmma {

/// Its side of the pipeline that query producers fill.
template <class Traits>
class PipedQueries {
  using Config = typename Traits::Config;

 public:
  JIT_DEVICE explicit PipedQueries(unsigned smem) : pipeline_(smem, Traits::layout.q) {}

  JIT_DEVICE void ask(const AttentionParams&, const Info<Config>&) const {}
  JIT_DEVICE void wait() const { pipeline_.consumer_wait(); }
  JIT_DEVICE unsigned tile() const { return pipeline_.tile(); }
  JIT_DEVICE void release() {
    pipeline_.consumer_release();
    pipeline_.advance();
  }

 private:
  QPipeline<Traits> pipeline_;
};

/// Queries that the warpgroups copy themselves when a split brings them.
template <class Traits>
class OwnQueries {
  using Config = typename Traits::Config;

 public:
  JIT_DEVICE explicit OwnQueries(unsigned smem) : tile_(smem + Traits::layout.q.tiles) {}

  /// Starts the copies. By all that compute scores, as is `wait`.
  JIT_DEVICE void ask(const AttentionParams& params, const Info<Config>& info) {
    const QueryRows<Config> rows(params, info);
    const QueryTiles<Traits> tiles(tile_);
    const int count = minimum(Traits::tile_rows, rows.row_end - rows.row_begin),
              thread = static_cast<int>(reread_thread_index()) - warpgroup_size;
    bar_sync(Traits::score_barrier, Traits::query_threads);  // all have multiplied those before
    tiles.copy(rows, count, thread);
    cp_async_commit_group();
    tiles.clear(count, most_rows_, thread, Traits::query_threads);
    most_rows_ = maximum(most_rows_, count);
  }
  JIT_DEVICE void wait() const {
    cp_async_wait_group<0>();                                // mutate: OwnQueriesWithoutWait
    fence_proxy_async_shared();                              // mutate: OwnQueriesWithoutProxyFence
    bar_sync(Traits::score_barrier, Traits::query_threads);  // mutate: OwnQueriesOfOtherWarpsReadEarly
  }
  JIT_DEVICE unsigned tile() const { return tile_; }
  JIT_DEVICE void release() const {}

 private:
  const unsigned tile_;
  int most_rows_ = 0;  // that it may hold, of earlier splits
};

template <class Traits>
using QueriesOf =
    typename ChosenType<Traits::has_query_warps, PipedQueries<Traits>, OwnQueries<Traits>>::type;

}  // namespace jit::forward_mla_wgmma
