// Traits that follow from the Config: tiles, shared memory, barriers.
#pragma once

#include "base/element.cuh"
#include "base/prelude.cuh"
#include "forward_split_wgmma/smem_layout.cuh"
#include "jit/options.h"
#include "problem/key_lists.cuh"
#include "split_keys/block_traits.cuh"
#include "tiles/accumulator.cuh"
#include "tiles/panel_tile.cuh"

namespace jit::forward_split_wgmma {

template <class Config>
struct KernelTraits : BlockTraits<Config, Config::tile_rows / rows_per_warpgroup, Config::tile_rows> {
  using Base = BlockTraits<Config, Config::tile_rows / rows_per_warpgroup, Config::tile_rows>;
  using Element = typename Config::Element;
  static_assert(Config::tile_rows % rows_per_warpgroup == 0, "a warpgroup multiplies 64 rows");
  static_assert(
      [] {
        if constexpr (has_key_lists<Config>) return Config::Lists::block % Config::tile_kv == 0;
        return true;
      }(),
      "a tile is of one entry of a list");
  static_assert(Base::boxes <= warp_size, "each box of a tile has a lane that copies it");

  /// Whether a converter warpgroup upcasts keys and values to 16 bits.
  static constexpr bool upcasts = keys_are_narrow<Config>, has_converters = upcasts;
  static constexpr int converter_warps = upcasts ? warpgroup_size / warp_size : 0;
  static constexpr int threads = Base::consumer_threads + warpgroup_size * (upcasts ? 2 : 1);
  static constexpr int key_readers = upcasts ? converter_warps : Base::consumer_warps;
  static constexpr int stages_q = Config::stages_q, stages_k = Config::stages, stages_v = Config::stages;
  static constexpr int stages_stored_k = upcasts ? Config::stages_stored : Config::stages;
  static constexpr int stages_stored_v = stages_stored_k;

  // For steps/wgmma_products.cuh.
  static constexpr bool has_lower_tiles = false;

  using Output = Accumulator<MmaLayout, 16, padded_head_dim(Config::head_dim_v, Base::mma_k)>;
  static constexpr int pairs_read = Output::column_blocks;  ///< pairs of a row read at once to merge spans

  /// The type of P and of values as they are multiplied. fp16 has all numbers of 8 bits, and is made of them
  /// in one instruction; times scales they are q's type.
  using Weight = typename ChosenType<upcasts && !converts_scales<Config>, fp16, Element>::type;
  using VTile = PanelTile<Weight, Config::tile_kv, Config::head_dim_v>;

  // Tiles of K and V as TMA writes them, before conversion.
  using StoredKTile =
      PanelTile<KvElement<Config>, Config::tile_kv, stored_columns<KvElement<Config>>(Config::head_dim)>;
  using StoredVTile =
      PanelTile<KvElement<Config>, Config::tile_kv, stored_columns<KvElement<Config>>(Config::head_dim_v)>;

  static constexpr SmemSizes sizes = {.head_dim = Config::head_dim,
                                      .head_dim_v = Config::head_dim_v,
                                      .tile_rows = Config::tile_rows,
                                      .tile_kv = Config::tile_kv,
                                      .stages_q = Config::stages_q,
                                      .stages = Config::stages,
                                      .stages_stored = Config::stages_stored,
                                      .has_spans = Config::split_keys != 0,
                                      .has_lists = has_key_lists<Config>,
                                      .numbers = numbers_of<KvElement<Config>>,
                                      .k_scale_bytes = converted_scale_bytes<Config>(Config::head_dim),
                                      .v_scale_bytes = converted_scale_bytes<Config>(Config::head_dim_v)};
  static constexpr SmemLayout layout = smem_layout(sizes);

  static constexpr WarpgroupOrder order = WarpgroupOrder::ping_pong;
  static constexpr int order_barrier = 2;  ///< named, and one for each further consumer
};

}  // namespace jit::forward_split_wgmma
