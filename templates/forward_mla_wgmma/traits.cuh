// What follows from the Config: tiles, shared memory, barriers.
#pragma once

#include "base/element.cuh"
#include "base/prelude.cuh"
#include "forward_mla_wgmma/smem_layout.cuh"
#include "jit/options.h"
#include "ptx/warpgroup.cuh"
#include "tiles/accumulator.cuh"
#include "tiles/bounded_box.cuh"
#include "tiles/panel_tile.cuh"

namespace jit::forward_mla_wgmma {

template <class KernelConfig>
struct KernelTraits {
  using Config = KernelConfig;
  using Element = typename Config::Element;
  static constexpr int mma_k = ElementTraits<Element>::mma_k;
  static_assert(Config::tile_kv % mma_k == 0 && Config::tile_kv <= 256,
                "tile_kv must be a multiple of wgmma's k, at most 256");
  static_assert(Config::alignment == 16, "wgmma wants rows in chunks of 16 bytes");

  static constexpr int consumers = forward_mla_wgmma::consumers;
  static constexpr int tile_rows = rows_per_warpgroup;
  static constexpr int consumer_threads = consumers * warpgroup_size;
  static constexpr int threads = consumer_threads + warpgroup_size;
  static constexpr int consumer_warps = consumer_threads / warp_size;
  static constexpr int query_warps = 3;  ///< that load queries
  static constexpr int query_threads = query_warps * warp_size;
  static constexpr int stages_q = 1;

  static constexpr int head_dim_steps = padded_head_dim(Config::head_dim, mma_k) / mma_k;
  static constexpr int key_steps = Config::tile_kv / mma_k;
  /// Of O and of values, that a consumer has.
  static constexpr int consumer_columns = Config::head_dim_v / consumers;

  // For steps/wgmma_products.cuh.
  static constexpr bool q_in_registers = false;

  // Of one warp of a consumer.
  using Scores = Accumulator<MmaLayout, 16, Config::tile_kv>;
  using Output = Accumulator<MmaLayout, 16, consumer_columns>;
  /// Of a row at once, where spans are merged: more would take registers from the output.
  static constexpr int pairs_read = 4;

  using QTile = PanelTile<Element, tile_rows, Config::head_dim>;
  using KTile = PanelTile<Element, Config::tile_kv, Config::head_dim>;  ///< its first columns are the values
  using PTile = PanelTile<Element, tile_rows, Config::tile_kv>;
  static_assert(consumer_columns % KTile::columns == 0, "a consumer's values are whole panels of the keys");

  static constexpr bool has_pages = Config::sequences_kv == SequenceKind::paged;
  static constexpr bool uses_tma = Config::copies == Copies::tma;
  static constexpr int box_rows = jit::box_rows(Config::tile_kv, has_pages ? Config::page_size : 0);
  static constexpr int boxes = Config::tile_kv / box_rows;
  static_assert(!uses_tma || boxes <= warp_size, "each box of a tile has a lane that copies it");

  static constexpr SmemLayout layout = smem_layout({.head_dim = Config::head_dim,
                                                    .tile_kv = Config::tile_kv,
                                                    .stages = Config::stages,
                                                    .has_spans = Config::split_keys != 0});

  // Named barriers; 0 is __syncthreads'.
  static constexpr int consumers_barrier = 1;
  static constexpr int handover_barrier = 2;  ///< of what consumer 0 takes; the next one is consumer 1's
  static constexpr int own_barrier = 4;       ///< of consumer 0 alone; the next one is consumer 1's
};

}  // namespace jit::forward_mla_wgmma
