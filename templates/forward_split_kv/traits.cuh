// Traits that follow from the Config: tile types and counts.
#pragma once

#include "base/element.cuh"
#include "base/prelude.cuh"
#include "forward_split_kv/smem_layout.cuh"
#include "jit/options.h"
#include "split_keys/warp_traits.cuh"
#include "steps/softmax.cuh"
#include "tiles/bounded_box.cuh"
#include "tiles/panel_tile.cuh"

namespace jit::forward_split_kv {

template <class Config>
using WarpTraits = jit::WarpTraits<Config, Config::row_warps * Config::key_warps, Config::row_warps,
                                   Config::tile_kv / Config::key_warps, Config::warp_rows>;

/// Tiles of keys and values, and the layout of shared memory: rows that cp.async copies, or boxes that TMA copies.
template <class Config, bool uses_tma = Config::copies == Copies::tma>
struct CopiedTiles {
  using K = typename WarpTraits<Config>::KRows;
  using V = typename WarpTraits<Config>::VRows;
  static constexpr SmemLayout layout = smem_layout<Config>();
};
template <class Config>
struct CopiedTiles<Config, true> {
  using KPanels =
      PanelTile<KvElement<Config>, Config::tile_kv, stored_columns<KvElement<Config>>(Config::head_dim)>;
  using VPanels =
      PanelTile<KvElement<Config>, Config::tile_kv, stored_columns<KvElement<Config>>(Config::head_dim_v)>;
  using K = PanelRows<KPanels, WarpTraits<Config>::KRows::chunks>;
  using V = PanelRows<VPanels, WarpTraits<Config>::VRows::chunks>;
  static constexpr BoxLayout layout = box_layout<Config>();
};

template <class Config>
struct KernelTraits : WarpTraits<Config> {
  using Base = WarpTraits<Config>;
  static_assert(Config::tile_kv % (16 * Config::key_warps) == 0,
                "tile_kv must be a multiple of 16 keys for each warp");

  using State =
      RowsState<keeps_largest_scores<Config>, SoftmaxState<Base::Output::rows>, has_mean_score<Config>>;
  using Tiles = CopiedTiles<Config>;
  using KTile = typename Tiles::K;
  using VTile = typename Tiles::V;
  static constexpr auto layout = Tiles::layout;
  static_assert(layout.stage_bytes % 128 == 0, "tiles of each stage begin at multiples of 128 bytes");
  /// Whether each value has a scale. With 8-bit q all values of a head share one.
  static constexpr bool has_value_scales = has_token_scales<Config> && !is_fp8<typename Config::Element>;
  static constexpr int steps_ahead = forward_split_kv::steps_ahead(Config::stages, Base::has_pages);
  static constexpr int known_steps = steps_ahead + 1;

  // With TMA: the block's consumer warps, next to the producer warp, and boxes.
  static constexpr bool uses_tma = Config::copies == Copies::tma;
  static constexpr int consumer_warps = Base::warps, query_warps = 0;  ///< for split_keys/split_pipeline.cuh
  static constexpr int box_rows = jit::box_rows(Config::tile_kv, Base::has_pages ? Config::page_size : 0);
  static constexpr int boxes = Config::tile_kv / box_rows;
  static_assert(!uses_tma || Base::column_warps == 1, "TMA copies panels of rows of one group of columns");
  static_assert(!uses_tma || boxes <= warp_size, "each box of a tile has a lane that copies it");
  static constexpr int consumers_barrier = 1;  ///< named; 0 is __syncthreads'

  /// Bytes of the scales of blocks of a key, and of a value.
  static constexpr int k_block_bytes =
      block_scale_bytes(Config::head_dim, scale_columns_of<KvElement<Config>>);
  static constexpr int v_block_bytes =
      block_scale_bytes(Config::head_dim_v, scale_columns_of<KvElement<Config>>);
};

}  // namespace jit::forward_split_kv
