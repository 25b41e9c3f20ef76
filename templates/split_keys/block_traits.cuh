// Traits that follow from the Config of a kernel whose blocks have a producer warpgroup and consumer warpgroups.
#pragma once

#include "base/element.cuh"
#include "base/prelude.cuh"
#include "jit/options.h"
#include "ptx/warpgroup.cuh"
#include "tiles/accumulator.cuh"
#include "tiles/bounded_box.cuh"
#include "tiles/panel_tile.cuh"

namespace jit {

/// Traits that such families share. Of a block's producer warps, one loads keys and three load queries, unless a family
/// says otherwise.
template <class KernelConfig, int block_consumers, int block_rows>
struct BlockTraits {
  using Config = KernelConfig;
  using Element = typename Config::Element;
  using Key = Element;     ///< operand type of Q Kᵀ
  using Weight = Element;  ///< operand type of P V
  static constexpr bool sums_by_products = false;
  static constexpr int mma_k = ElementTraits<Element>::mma_k;
  static_assert(Config::tile_kv % mma_k == 0 && Config::tile_kv <= 256,
                "tile_kv must be a multiple of wgmma's k, at most 256");
  static_assert(Config::alignment == 16, "TMA and wgmma want rows in chunks of 16 bytes");

  static constexpr int tile_rows = block_rows;
  static constexpr int consumers = block_consumers;
  static constexpr int consumer_threads = consumers * warpgroup_size;
  static constexpr int consumer_warps = consumer_threads / warp_size;
  static constexpr int query_warps = 3;  ///< that load queries
  static constexpr int query_threads = query_warps * warp_size;

  static constexpr int head_dim_steps = padded_head_dim(Config::head_dim, mma_k) / mma_k;
  static constexpr int key_steps = Config::tile_kv / mma_k;

  using Scores = Accumulator<MmaLayout, 16, Config::tile_kv>;  ///< of one warp of a consumer

  using QTile = PanelTile<Element, rows_per_warpgroup, Config::head_dim>;  ///< of one consumer
  using KTile = PanelTile<Element, Config::tile_kv, Config::head_dim>;

  static constexpr int first_query_column = 0;

  // A key producer by TMA loads only tiles and their infos (mainloop/kv_producer.cuh).
  static constexpr bool transposes_v = false, values_in_keys = false;
  static constexpr bool has_key_words = false, keys_by_lanes = false;
  static constexpr bool copies_by_lanes = true;

  static constexpr bool has_pages = Config::sequences_kv == SequenceKind::paged;
  static constexpr int box_rows = jit::box_rows(Config::tile_kv, has_pages ? Config::page_size : 0);
  static constexpr int boxes = Config::tile_kv / box_rows;

  static constexpr int consumers_barrier = 1;  ///< named; 0 is __syncthreads'
};

}  // namespace jit
