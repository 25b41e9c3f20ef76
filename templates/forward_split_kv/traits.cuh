// What follows from the Config: tile types and counts.
#pragma once

#include "base/element.cuh"
#include "base/prelude.cuh"
#include "forward_split_kv/smem_layout.cuh"
#include "ptx/fp8.cuh"
#include "tiles/accumulator.cuh"
#include "tiles/swizzled_tile.cuh"

namespace jit::forward_split_kv {

template <class Config>
struct KernelTraits {
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
  static constexpr SmemLayout layout = smem_layout<Config>();
  /// Whether each value has a scale of its own. Under q of 8 bits those of a head share one.
  static constexpr bool has_value_scales = has_token_scales<Config> && !is_fp8<typename Config::Element>;
  static constexpr bool has_pages = Config::sequences_kv == SequenceKind::paged;
  static constexpr int steps_ahead = forward_split_kv::steps_ahead(Config::stages, has_pages);
  static constexpr int known_steps = steps_ahead + 1;

  // Of one warp.
  using Scores = Accumulator<MmaLayout, rows_per_warp, warp_keys>;
  using Output = Accumulator<MmaLayout, rows_per_warp, padded_head_dim(Config::head_dim_v, mma_k)>;

  template <class Element>
  static constexpr int chunks(int head_dim) {
    return padded_head_dim(head_dim, mma_k) / ElementTraits<Element>::per_chunk;
  }
  using QTile = SmemTile<tile_rows, chunks<typename Config::Element>(Config::head_dim), Swizzle::xor_chunks>;
  using KTile = SmemTile<Config::tile_kv, chunks<KvElement<Config>>(Config::head_dim), Swizzle::xor_chunks>;
  using VTile = SmemTile<Config::tile_kv, chunks<KvElement<Config>>(Config::head_dim_v), Swizzle::xor_chunks>;
};

}  // namespace jit::forward_split_kv
