// What follows from the Config: tile types and counts.
#pragma once

#include "base/element.cuh"
#include "base/prelude.cuh"
#include "forward_split_kv/box_layout.cuh"
#include "forward_split_kv/smem_layout.cuh"
#include "jit/options.h"
#include "ptx/fp8.cuh"
#include "tiles/accumulator.cuh"
#include "tiles/bounded_box.cuh"
#include "tiles/panel_rows.cuh"
#include "tiles/panel_tile.cuh"
#include "tiles/swizzled_tile.cuh"

namespace jit::forward_split_kv {

/// The tiles of keys and values, and the map of shared memory: where cp.async copies rows, and where TMA copies boxes.
template <class Config, int mma_k, bool uses_tma = Config::copies == Copies::tma>
struct CopiedTiles {
  static constexpr int chunks(int head_dim) {
    return padded_head_dim(head_dim, mma_k) / ElementTraits<KvElement<Config>>::per_chunk;
  }
  using K = SmemTile<Config::tile_kv, chunks(Config::head_dim)>;
  using V = SmemTile<Config::tile_kv, chunks(Config::head_dim_v)>;
  static constexpr SmemLayout layout = smem_layout<Config>();
};
template <class Config, int mma_k>
struct CopiedTiles<Config, mma_k, true> : CopiedTiles<Config, mma_k, false> {
  using Rows = CopiedTiles<Config, mma_k, false>;
  using KPanels = PanelTile<KvElement<Config>, Config::tile_kv, Config::head_dim>;
  using VPanels = PanelTile<KvElement<Config>, Config::tile_kv, Config::head_dim_v>;
  using K = PanelRows<KPanels, Rows::chunks(Config::head_dim)>;
  using V = PanelRows<VPanels, Rows::chunks(Config::head_dim_v)>;
  static constexpr BoxLayout layout = box_layout<Config>();
};

template <class KernelConfig>
struct KernelTraits {
  using Config = KernelConfig;
  static_assert(Config::tile_kv % (16 * Config::key_warps) == 0,
                "tile_kv must be a multiple of 16 keys for each warp");
  static_assert(Config::stages >= 2, "a tile is loaded while another one is multiplied");

  /// What q is multiplied as: of 8 bits as fp16, which has all their numbers.
  using Number = typename ChosenType<is_fp8<typename Config::Element>, fp16, typename Config::Element>::type;
  static constexpr int mma_k = ElementTraits<Number>::mma_k;
  static constexpr int warps = Config::row_warps * Config::key_warps;
  static constexpr int threads = warps * warp_size;
  static constexpr int tile_rows = Config::row_warps * rows_per_warp;
  static constexpr int warp_keys = Config::tile_kv / Config::key_warps;
  static constexpr int head_dim_steps = padded_head_dim(Config::head_dim, mma_k) / mma_k;
  using Tiles = CopiedTiles<Config, mma_k>;
  static constexpr auto layout = Tiles::layout;
  /// Whether each value has a scale of its own. Under q of 8 bits those of a head share one.
  static constexpr bool has_value_scales = has_token_scales<Config> && !is_fp8<typename Config::Element>;
  static constexpr bool has_pages = Config::sequences_kv == SequenceKind::paged;
  static constexpr int steps_ahead = forward_split_kv::steps_ahead(Config::stages, has_pages);
  static constexpr int known_steps = steps_ahead + 1;

  // Where TMA copies tiles: a block's warps beside the one that loads, and boxes.
  static constexpr bool uses_tma = Config::copies == Copies::tma;
  static constexpr int consumer_warps = warps, query_warps = 0;  ///< for split_keys/split_pipeline.cuh
  static constexpr int box_rows = jit::box_rows(Config::tile_kv, has_pages ? Config::page_size : 0);
  static constexpr int boxes = Config::tile_kv / box_rows;
  static_assert(!uses_tma || boxes <= warp_size, "each box of a tile has a lane that copies it");
  static constexpr int consumers_barrier = 1;  ///< named; 0 is __syncthreads'

  // Of one warp.
  using Scores = Accumulator<MmaLayout, rows_per_warp, warp_keys>;
  using Output = Accumulator<MmaLayout, rows_per_warp, padded_head_dim(Config::head_dim_v, mma_k)>;

  static constexpr int query_chunks =
      padded_head_dim(Config::head_dim, mma_k) / ElementTraits<typename Config::Element>::per_chunk;
  using QTile = SmemTile<tile_rows, query_chunks>;
  using KTile = typename Tiles::K;
  using VTile = typename Tiles::V;
};

}  // namespace jit::forward_split_kv
