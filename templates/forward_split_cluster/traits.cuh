// What follows from the Config: tile types and counts.
#pragma once

#include "base/element.cuh"
#include "base/prelude.cuh"
#include "forward_split_cluster/smem_layout.cuh"
#include "jit/options.h"
#include "ptx/fp8.cuh"
#include "tiles/accumulator.cuh"
#include "tiles/swizzled_tile.cuh"

namespace jit::forward_split_cluster {

template <class KernelConfig>
struct KernelTraits {
  using Config = KernelConfig;
  static_assert(Config::tile_kv % 16 == 0 && Config::tile_kv <= warp_size,
                "tile_kv must be a multiple of 16, and each row has a lane that looks up its page");
  static_assert(Config::stages >= 2, "a tile is loaded while another one is multiplied");

  /// What q is multiplied as: of 8 bits as fp16, which has all their numbers.
  using Number = typename ChosenType<is_fp8<typename Config::Element>, fp16, typename Config::Element>::type;
  static constexpr int mma_k = ElementTraits<Number>::mma_k;
  static constexpr int warps = Config::block_warps;
  static constexpr int threads = warps * warp_size;
  static constexpr int tile_rows = rows_per_warp;
  static constexpr int warp_keys = Config::tile_kv;
  static constexpr int head_dim_steps = padded_head_dim(Config::head_dim, mma_k) / mma_k;
  static constexpr bool has_value_scales = false;
  static constexpr bool has_pages = Config::sequences_kv == SequenceKind::paged;

  // Of one warp.
  using Scores = Accumulator<MmaLayout, rows_per_warp, warp_keys>;
  using Output = Accumulator<MmaLayout, rows_per_warp, padded_head_dim(Config::head_dim_v, mma_k)>;

  template <class Element>
  static constexpr int chunks(int head_dim) {
    return padded_head_dim(head_dim, mma_k) / ElementTraits<Element>::per_chunk;
  }
  using QTile = SmemTile<tile_rows, chunks<typename Config::Element>(Config::head_dim)>;
  using KTile = SmemTile<Config::tile_kv, chunks<KvElement<Config>>(Config::head_dim)>;
  using VTile = SmemTile<Config::tile_kv, chunks<KvElement<Config>>(Config::head_dim_v)>;

  static constexpr SmemLayout layout =
      smem_layout({.head_dim = Config::head_dim,
                   .head_dim_v = Config::head_dim_v,
                   .query_bytes = static_cast<int>(sizeof(typename Config::Element)),
                   .key_bytes = static_cast<int>(sizeof(KvElement<Config>)),
                   .cluster = Config::cluster,
                   .block_warps = Config::block_warps,
                   .tile_kv = Config::tile_kv,
                   .stages = Config::stages,
                   .has_pages = has_pages});
};

}  // namespace jit::forward_split_cluster
