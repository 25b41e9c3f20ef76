// What follows from the Config: tiles, shared memory, barriers.
#pragma once

#include "base/element.cuh"
#include "base/prelude.cuh"
#include "forward_split_wgmma/smem_layout.cuh"
#include "jit/options.h"
#include "ptx/warpgroup.cuh"
#include "tiles/accumulator.cuh"
#include "tiles/panel_tile.cuh"

namespace jit::forward_split_wgmma {

template <class KernelConfig>
struct KernelTraits {
  using Config = KernelConfig;
  using Element = typename Config::Element;
  static constexpr int mma_k = ElementTraits<Element>::mma_k;
  static_assert(Config::tile_rows % rows_per_warpgroup == 0, "a warpgroup multiplies 64 rows");
  static_assert(Config::tile_kv % mma_k == 0 && Config::tile_kv <= 256,
                "tile_kv must be a multiple of wgmma's k, at most 256");
  static_assert(Config::alignment == 16, "TMA wants rows aligned to 16 bytes");

  static constexpr int tile_rows = Config::tile_rows;
  static constexpr int consumers = tile_rows / rows_per_warpgroup;
  static constexpr int consumer_threads = consumers * warpgroup_size;
  static constexpr int threads = consumer_threads + warpgroup_size;
  static constexpr int consumer_warps = consumer_threads / warp_size;
  static constexpr int query_warps = 3;  ///< that load queries
  static constexpr int stages_q = Config::stages_q;
  static constexpr int query_threads = query_warps * warp_size;

  static constexpr int head_dim_steps = padded_head_dim(Config::head_dim, mma_k) / mma_k;
  static constexpr int key_steps = Config::tile_kv / mma_k;

  // For steps/wgmma_products.cuh.
  static constexpr bool q_in_registers = false;
  static constexpr bool p_in_registers = true;
  static constexpr bool has_lower_tiles = false;
  static constexpr int probabilities_barrier = 0;

  // Of one warp of a consumer.
  using Scores = Accumulator<MmaLayout, 16, Config::tile_kv>;
  using Output = Accumulator<MmaLayout, 16, padded_head_dim(Config::head_dim_v, mma_k)>;

  static constexpr int pairs_read = Output::column_blocks;  ///< of a row at once, where spans are merged

  // Q of one consumer.
  using QTile = PanelTile<Element, rows_per_warpgroup, Config::head_dim>;
  using KTile = PanelTile<Element, Config::tile_kv, Config::head_dim>;
  using VTile = PanelTile<Element, Config::tile_kv, Config::head_dim_v>;
  using PTile = PanelTile<Element, tile_rows, Config::tile_kv>;

  static constexpr bool has_pages = Config::sequences_kv == SequenceKind::paged;
  static constexpr int box_rows = jit::box_rows(Config::tile_kv, has_pages ? Config::page_size : 0);
  static constexpr int boxes = Config::tile_kv / box_rows;
  static_assert(boxes <= warp_size, "each box of a tile has a lane that copies it");

  static constexpr SmemSizes sizes = {.head_dim = Config::head_dim,
                                      .head_dim_v = Config::head_dim_v,
                                      .tile_rows = tile_rows,
                                      .tile_kv = Config::tile_kv,
                                      .stages_q = Config::stages_q,
                                      .stages = Config::stages,
                                      .has_spans = Config::split_keys != 0};
  static constexpr SmemLayout layout = smem_layout(sizes);

  // Named barriers; 0 is __syncthreads'.
  static constexpr int consumers_barrier = 1;
  static constexpr int order_barrier = 2;  ///< and one for each further consumer
};

}  // namespace jit::forward_split_wgmma
