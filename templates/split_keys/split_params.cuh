// Parameters of blocks that share a work tile: the mailbox, and the host's plan of their work. Host and NVRTC compile this
// file.
#pragma once

#include "base/element.cuh"
#include "base/host_device.cuh"
#include "base/tensor_strides.cuh"
#include "scheduling/key_shares.cuh"
#include "split_keys/warp_layout.cuh"

namespace jit {

/// The value of an empty word of the mailbox. Arithmetic yields no NaN but 0x7fffffff (CUDA C++ programming guide,
/// "Floating-Point Standard"), so a partial result has no such word.
inline constexpr unsigned empty_word = 0xffffffff;

/// The tile space, if the host knows it: all work tiles see equally many tiles of keys, from key 0 on.
struct KnownTileSpace {
  KeyShares shares;
  int tiles;       ///< of each work tile; negative: only the device knows the tile space
  int work_tiles;  ///< work tiles of a batch entry on each strand
  int row_tiles;   ///< tiles of rows of a KV head on each strand
};

struct SplitParams {
  /// The mailbox: two partial results for each block, of the work tile that it enters in the middle, and of the one
  /// that it leaves in the middle. Each has rows of O in fp32, not normalized, then maximum and sum of each row, once
  /// per column slice. All words are empty before and after the kernel: a reader polls until no word is empty, and
  /// empties the words again. With spans, split_nodes(levels) results for each block, of any contents
  /// (split_keys/span_results.cuh).
  float* partials;
  int partial_rows;  ///< rows of each partial result
  /// Behind the mailbox, if all blocks of a work tile merge it: two words per block by which it signals its progress
  /// (split_keys/merge_shares.cuh). Empty before and after the kernel.
  unsigned* notices;
  KnownTileSpace known;
  unsigned*
      counters;  ///< one for each block, 0 before and after the kernel; where keys are summed in spans, as
  int levels;    ///< of the tree of the spans of the longest sequence
  // Where another kernel has the requests of many queries:
  int tile_space_blocks;  ///< blocks that share the tile space: of this launch, or of two consecutive ones
  int blocks_before;      ///< blocks of the earlier launch; 0 for the first
  bool gives_way;  ///< whether some of the blocks leave their SMs to the other kernel as soon as they begin
};

/// Whether all blocks of a work tile merge it, each a share of its rows, or only the block of its first split. That
/// block would read as much as all have written, which is much for a work tile with many rows. With few rows, waiting
/// for each other takes longer than that (docs/records/notebook.md). A work tile has at least the rows of one query.
/// Row scales of O are computed by a warp with whole rows, so that one block merges.
JIT_HOST_DEVICE constexpr bool all_merge(int gqa_ratio, int head_dim_v) {
  constexpr int least_values = 4096;
  return gqa_ratio * head_dim_v >= least_values;
}
template <class Config>
inline constexpr bool all_blocks_merge = Config::split_keys == 0 && !finds_output_scales<Config> &&
                                         all_merge(Config::gqa_ratio, Config::head_dim_v);

/// Columns of a row of a partial result: those of O, and behind them, where means of scores are wanted, a piece that begins
/// with Σ P · score. It is merged as values are.
JIT_HOST_DEVICE constexpr int result_columns(int head_dim_v, bool has_mean) {
  return head_dim_v + (has_mean ? piece_columns : 0);
}
template <class Config>
inline constexpr int columns_of_result = result_columns(Config::head_dim_v, has_mean_score<Config>);

/// Columns of a row of so many that have a copy of the row's maximum and sum beside them. Where all blocks merge these are few
/// enough for a warp to merge them together: so what one warp reads no other one does.
JIT_HOST_DEVICE constexpr int column_slice_columns(bool by_all, int columns) { return by_all ? 16 : columns; }
JIT_HOST_DEVICE constexpr int column_slices_of_row(bool by_all, int columns) {
  const int of_slice = column_slice_columns(by_all, columns);
  return (columns + of_slice - 1) / of_slice;
}

/// Floats of one partial result.
JIT_HOST_DEVICE constexpr int partial_floats(int rows, int columns, int column_slices) {
  return rows * (columns + 2 * column_slices);
}

/// Words by which blocks signal their progress.
JIT_HOST_DEVICE constexpr int notice_words(int blocks) { return 2 * blocks; }

/// Nodes of a tree of spans for which each block has room: left and right ones per level for a split that begins within
/// a work tile, left ones for a split that begins with its work tile.
JIT_HOST_DEVICE constexpr int split_nodes(int levels) { return 3 * levels; }

/// Partial results in the mailbox.
JIT_HOST_DEVICE constexpr int most_partials(int blocks) { return 2 * blocks; }

/// The kernel's second parameter. Maps are of (head_dim, seqlen, heads, batch), in pages of (head_dim, page_size,
/// heads, pages); boxes are rows of a panel. A map that the kernel has no use for is not made.
struct KernelMemory {
  TensorMap k;
  TensorMap v;
  SplitParams split_params;
};

}  // namespace jit
