// The map of a block's shared memory. Compiled by the host, which needs the size to launch, and by NVRTC; the
// generated program asserts that both came to the same size.
#pragma once

#include "base/element.cuh"
#include "base/host_device.cuh"

namespace jit::forward_split_kv {

/// What a block knows of one step: a tile of keys for a tile of rows, and what comes before and after it.
struct StepNote {
  int batch;
  int kv_head;
  int row_begin;    ///< first row of the tile of rows
  int q_begin;      ///< first query of the sequence, as VariableSequences counts
  int seqlen_q;     ///< of the sequence
  int kv_begin;     ///< row of its first key, the same
  int seqlen_kv;    ///< of the sequence
  int k_begin;      ///< first key of the tile
  unsigned flags;   ///< of StepFlags
  int parts;        ///< blocks that share the unit
  int first_block;  ///< of these
};
enum StepFlags : unsigned {
  step_is_end = 1,      ///< there is no step: the block is done
  step_has_tile = 2,    ///< else the rows see no keys here
  step_is_partial = 4,  ///< some score of the tile must be dropped
  step_begins = 8,      ///< the first step of the block's part of the unit
  step_ends = 16,       ///< the last one
};

/// Where the key and the value of a row of a tile begin, in elements from the first of all; −1: nowhere.
struct RowOffsets {
  long long k;
  long long v;
};

/// Byte offsets from the start of dynamic shared memory.
///
///     | stage 0: Q, K, V | stage 1 … | notes of steps | offsets of rows | list of steps | ticket |
///
/// A stage holds the queries, too, of a step with which a part begins. While a part ends, its last stage holds what
/// the warps have come to: `stage_bytes` is enough for both.
struct SmemLayout {
  int k;  ///< within a stage
  int v;  ///< within a stage
  int stage_bytes;
  int notes;
  int row_offsets;
  int step_list;
  int ticket;
  int total;
};

inline constexpr int rows_per_warp = 16;
/// Floats between rows of a warp's results beside those of the row, so that stores meet all banks.
inline constexpr int result_padding = 8;

/// Steps of which a block knows: those whose tiles are loaded or being loaded, and two behind them.
JIT_HOST_DEVICE constexpr int known_steps(int stages) { return stages + 2; }
/// Tiles of which it knows where their rows lie.
JIT_HOST_DEVICE constexpr int known_tiles(int stages) { return stages + 1; }

/// Room for a StepList (step_list.cuh).
inline constexpr int step_list_bytes = 112;

/// Bytes of the results of all warps: rows of O, and maximum and sum of each row.
JIT_HOST_DEVICE constexpr int result_bytes(int warps, int head_dim_v) {
  return warps * rows_per_warp * (padded_head_dim(head_dim_v) + result_padding + 2) * 4;
}

JIT_HOST_DEVICE constexpr SmemLayout smem_layout(int head_dim, int head_dim_v, int row_warps, int key_warps,
                                                 int tile_kv, int stages) {
  SmemLayout layout{};
  layout.k = row_warps * rows_per_warp * padded_head_dim(head_dim) * element_bytes;
  layout.v = layout.k + tile_kv * padded_head_dim(head_dim) * element_bytes;
  layout.stage_bytes = layout.v + tile_kv * padded_head_dim(head_dim_v) * element_bytes;
  const int results = result_bytes(row_warps * key_warps, head_dim_v);
  if (layout.stage_bytes < results) layout.stage_bytes = (results + 127) / 128 * 128;
  layout.notes = stages * layout.stage_bytes;
  layout.row_offsets = layout.notes + known_steps(stages) * static_cast<int>(sizeof(StepNote));
  layout.row_offsets = (layout.row_offsets + 15) / 16 * 16;
  layout.step_list = layout.row_offsets + known_tiles(stages) * tile_kv * static_cast<int>(sizeof(RowOffsets));
  layout.ticket = layout.step_list + step_list_bytes;
  layout.total = layout.ticket + 16;
  return layout;
}

template <class Config>
JIT_HOST_DEVICE constexpr SmemLayout smem_layout() {
  return smem_layout(Config::head_dim, Config::head_dim_v, Config::row_warps, Config::key_warps, Config::tile_kv,
                     Config::stages);
}

}  // namespace jit::forward_split_kv
