// Rows of keys that two blocks of a cluster, a pair, both multiply: each copies half of a tile's, and sends them to the other
// ("crossover" of FlashMLA's sparse decoding). So rows come from L2, or are converted, once for both.
//
//     own rows from memory │ arrived: sent to the other block │ its rows: full │ multiplied by both blocks: empty
#pragma once

#include "base/prelude.cuh"
#include "mainloop/pipelines.cuh"
#include "mainloop/row_plans.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/cluster.cuh"

namespace jit {

/// Starts a copy of own rows to the same place of the other block; their bytes count at its barrier there. By one thread.
JIT_DEVICE void send_to_peer(unsigned rows, int bytes, unsigned full) {
  const int peer = cluster_rank() ^ 1;
  cp_async_bulk_to_block(cluster_address(rows, peer), rows, bytes, cluster_address(full, peer));
}

/// Releases, in both blocks, since both write it, the stage of keys that a warp has read, or that of `back` stages ago.
template <class Traits, class Pipeline>
JIT_DEVICE void release_keys(const Pipeline& pipeline) {
  pipeline.consumer_release();
  if constexpr (Traits::is_pair) pipeline.consumer_release_before_to(0, cluster_rank() ^ 1);
}
template <class Traits, class Pipeline>
JIT_DEVICE void release_keys(const Pipeline& pipeline, int back) {
  pipeline.consumer_release_before(back);
  if constexpr (Traits::is_pair)
    pipeline.consumer_release_before_to(back, cluster_rank() ^ 1);  // mutate: RowsOverThoseOfThePeer
}

/// The warp that sends rows that others copy by cp.async (mainloop/key_row_copies.cuh): all stages in order.
template <class Traits>
class RowSender {
  using Config = typename Traits::Config;

 public:
  JIT_DEVICE explicit RowSender(unsigned smem) : plans_(smem), panels_(smem) {}

  JIT_DEVICE void run() {
    for (RowPlan plan; plans_.take(plan);) {
      plans_.release();
#pragma unroll 1
      for (int part = 0; part < Traits::v_parts; ++part)  // in the order in which they are copied
        send<typename Traits::VPart>(panels_.v, Traits::arrived_v);
#pragma unroll
      for (int panel = 0; panel < Traits::k_panels; ++panel)
        send<typename Traits::KPanel>(panels_.k, Traits::arrived_k);
    }
  }

 private:
  // Sends a stage once its rows have arrived, which hands it over together with those of the other block.
  template <class Tile, class Pipeline>
  static JIT_DEVICE void send(Pipeline& pipeline, int arrived) {
    constexpr int bytes = Traits::copied_rows * Tile::row_bytes;  // of a panel
    // Who copied the rows has waited for room, too, but copies that arrive tell of themselves alone.
    pipeline.producer_acquire();                 // mutate: RowsSentOverThoseOfThePeer
    pipeline.moved(0, arrived).consumer_wait();  // mutate: RowsSentBeforeTheyCame
    fence_proxy_async_shared();                  // mutate: RowsSentWithoutProxyFence
    __syncwarp();
    if (lane_id() == 0) {
      // mutate: ScoresDoNotWaitForThePeersRows
      mbarrier_arrive_expect_tx(pipeline.full(), bytes * Tile::panels);
#pragma unroll
      for (int panel = 0; panel < Tile::panels; ++panel)
        send_to_peer(
            pipeline.tile() + panel * Tile::panel_bytes + Traits::first_copied_row() * Tile::row_bytes, bytes,
            pipeline.full());
    }
    pipeline.advance();
  }

  RowPlans<Traits> plans_;
  PanelPipelines<Traits> panels_;
};

}  // namespace jit
