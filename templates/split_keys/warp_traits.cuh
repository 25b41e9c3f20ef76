// Traits of kernels whose warps each multiply 16 rows, or 8, by keys of their own, by mma.sync.
#pragma once

#include "base/element.cuh"
#include "base/prelude.cuh"
#include "jit/options.h"
#include "problem/seqlen_info.cuh"
#include "ptx/fp8.cuh"
#include "ptx/stored_numbers.cuh"
#include "split_keys/warp_layout.cuh"
#include "split_keys/zero_points.cuh"
#include "tiles/accumulator.cuh"
#include "tiles/swizzled_tile.cuh"

namespace jit {

/// Traits that such families share: `group_warps` warps of a block, of which `row_warps` have rows of their own, each
/// with `keys` keys of a tile and `rows` rows. With wide heads, each group of columns of O has as many warps.
template <class KernelConfig, int group_warps, int row_warps, int keys, int rows = rows_per_warp>
struct WarpTraits {
  using Config = KernelConfig;
  static_assert(Config::stages >= 2, "a tile is loaded while another one is multiplied");

  /// The operand type of q: fp16 for 8-bit q, which it represents exactly.
  using Number = typename ChosenType<is_fp8<typename Config::Element>, fp16, typename Config::Element>::type;
  static constexpr int mma_k = ElementTraits<Number>::mma_k;
  static constexpr int column_warps = split_column_warps(Config::head_dim, Config::head_dim_v);
  static constexpr int warps = group_warps * column_warps;
  static constexpr int threads = warps * warp_size;
  static constexpr int warp_rows = rows, tile_rows = row_warps * rows;
  static constexpr int warp_keys = keys;
  /// The multiple of columns to which rows of Element are padded: whole chunks of whole k-steps.
  template <class Element>
  static constexpr int chunk_columns = maximum(mma_k, ElementTraits<Element>::per_chunk* numbers_of<Element>);
  static constexpr int head_dim_steps =
      padded_head_dim(Config::head_dim, keys_are_packed<Config> ? chunk_columns<KvElement<Config>> : mma_k) /
      mma_k;
  static constexpr bool has_pages = Config::sequences_kv == SequenceKind::paged || has_key_lists<Config>;

  /// Whether a warp holds its queries in registers; else each stage holds them.
  static constexpr bool holds_queries = Config::head_dim <= most_warp_columns;

  // Accumulators of one warp.
  static constexpr int warp_columns =
      keys_are_packed<Config>
          ? padded_head_dim(Config::head_dim_v, chunk_columns<KvElement<Config>>)
          : jit::warp_columns(Config::head_dim_v, column_warps, ElementTraits<KvElement<Config>>::bytes);
  static_assert(!keys_are_packed<Config> || column_warps == 1, "a warp has all columns of packed values");
  using Layout = typename ChosenType<warp_rows == rows_per_warp, MmaLayout, TransposedLayout>::type;
  using Scores = Accumulator<Layout, warp_rows, warp_keys>;
  using Columns = Accumulator<Layout, warp_rows, warp_columns>;
  using Output =
      typename ChosenType<is_same<KvElement<Config>, int4_pair>, OutputBesideZeros<Columns>, Columns>::type;

  /// The warp's index within its group of columns, and the group's first column of O.
  static JIT_DEVICE int group_warp() { return column_warps == 1 ? warp_id() : warp_id() % group_warps; }
  static JIT_DEVICE int first_column() {
    return column_warps == 1 ? 0 : warp_id() / group_warps * warp_columns;
  }

  /// Chunks of a row in shared memory.
  template <class Element>
  static constexpr int chunks(int columns) {
    return padded_head_dim(columns, chunk_columns<Element>) /
           (ElementTraits<Element>::per_chunk * numbers_of<Element>);
  }
  using QTile = SmemTile<tile_rows, chunks<typename Config::Element>(Config::head_dim)>;
  // Tiles of keys and values that cp.async writes.
  using KRows = SmemTile<Config::tile_kv, chunks<KvElement<Config>>(Config::head_dim)>;
  using VRows = SmemTile<Config::tile_kv, chunks<KvElement<Config>>(column_warps* warp_columns)>;
};

}  // namespace jit
