// Traits that follow from the Config: tiles, shared memory, barriers.
#pragma once

#include "base/element.cuh"
#include "base/prelude.cuh"
#include "forward_mla_wgmma/smem_layout.cuh"
#include "jit/options.h"
#include "split_keys/block_traits.cuh"
#include "tiles/accumulator.cuh"
#include "tiles/panel_tile.cuh"

namespace jit::forward_mla_wgmma {

template <class Config>
struct KernelTraits : BlockTraits<Config, consumers, rows_per_warpgroup> {
  using Base = BlockTraits<Config, forward_mla_wgmma::consumers, rows_per_warpgroup>;
  static constexpr int threads = Base::consumer_threads + warpgroup_size;
  static constexpr int stages_q = 1;

  /// Columns of O and of values that a consumer has.
  static constexpr int consumer_columns = Config::head_dim_v / forward_mla_wgmma::consumers;
  /// The first columns of a tile of keys are the values.
  static_assert(consumer_columns % Base::KTile::columns == 0,
                "a consumer's values are whole panels of the keys");

  // The producer of keys by TMA loads no values, and nobody converts what it loads.
  static constexpr bool values_in_keys = true, upcasts = false;
  static constexpr int stages_stored_k = Config::stages, stages_stored_v = Config::stages;
  using StoredKTile = typename Base::KTile;
  using StoredVTile = StoredKTile;

  using Output = Accumulator<MmaLayout, 16, consumer_columns>;
  /// Pairs of a row that are read at once where spans are merged: more would spill.
  static constexpr int pairs_read = 16;

  static constexpr bool uses_tma = Config::copies == Copies::tma;
  static_assert(!uses_tma || Base::boxes <= warp_size, "each box of a tile has a lane that copies it");

  /// Producer warps that load keys: copying them row by row is too much for one.
  static constexpr int key_warps = uses_tma ? 1 : 2;
  static constexpr int query_warps = warpgroup_size / warp_size - key_warps;
  static constexpr int query_threads = query_warps * warp_size;

  static constexpr SmemLayout layout = smem_layout({.head_dim = Config::head_dim,
                                                    .tile_kv = Config::tile_kv,
                                                    .stages = Config::stages,
                                                    .has_spans = Config::split_keys != 0});

  // Named barriers.
  static constexpr int p_exchange_barrier = 2;  ///< of what consumer 0 takes; the next one is consumer 1's
  static constexpr int own_barrier = 4;         ///< of consumer 0 alone; the next one is consumer 1's
};

}  // namespace jit::forward_mla_wgmma
