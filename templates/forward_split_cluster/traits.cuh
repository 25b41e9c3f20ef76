// Traits that follow from the Config: tile types and counts.
#pragma once

#include "base/element.cuh"
#include "base/prelude.cuh"
#include "forward_split_cluster/smem_layout.cuh"
#include "jit/options.h"
#include "split_keys/warp_traits.cuh"

namespace jit::forward_split_cluster {

template <class Config>
struct KernelTraits : WarpTraits<Config, Config::block_warps, 1, Config::tile_kv> {
  using Base = WarpTraits<Config, Config::block_warps, 1, Config::tile_kv>;
  static_assert(Config::tile_kv % 16 == 0 && Config::tile_kv <= warp_size,
                "tile_kv must be a multiple of 16, and each row has a lane that looks up its page");
  static constexpr bool has_value_scales = false;
  static constexpr bool holds_queries =
      forward_split_cluster::holds_queries(Config::head_dim, static_cast<int>(sizeof(KvElement<Config>)));
  using KTile = typename Base::KRows;
  using VTile = typename Base::VRows;

  static constexpr SmemLayout layout =
      smem_layout({.head_dim = Config::head_dim,
                   .head_dim_v = Config::head_dim_v,
                   .query_bytes = static_cast<int>(sizeof(typename Config::Element)),
                   .key_bytes = static_cast<int>(sizeof(KvElement<Config>)),
                   .cluster = Config::cluster,
                   .block_warps = Config::block_warps,
                   .tile_kv = Config::tile_kv,
                   .stages = Config::stages,
                   .has_pages = Base::has_pages});
};

}  // namespace jit::forward_split_cluster
