// The layout of a block's shared memory. Host and NVRTC compile this file; the generated program asserts that both
// compute the same size.
#pragma once

#include "base/element.cuh"
#include "base/host_device.cuh"
#include "jit/options.h"
#include "mainloop/key_tile_info.cuh"
#include "pipeline/smem_allocator.cuh"
#include "split_keys/split_info.cuh"
#include "split_keys/warp_layout.cuh"
#include "tiles/panel_tile.cuh"

namespace jit::forward_split_kv {

/// One step of a block: a tile of keys for the rows of a split.
struct StepInfo {
  int split;       ///< index of the split's info
  int k_begin;     ///< first key of the tile
  unsigned flags;  ///< of StepFlags
};
enum StepFlags : unsigned {
  step_is_end = 1,      ///< no step: the block has finished
  step_has_tile = 2,    ///< the step has a tile; otherwise the rows see no keys
  step_is_partial = 4,  ///< the tile must be masked
  step_begins = 8,      ///< the first step of the split
  step_ends = 16,       ///< the last step of the split
};

/// How queries, keys and values are stored.
struct Storage {
  int query_bytes = jit::element_bytes;    ///< of an element of q
  int element_bytes = jit::element_bytes;  ///< of k and v
  bool has_row_scales = false;             ///< whether each key has a scale
  int numbers = 1;                         ///< numbers in an element of k and v
  int scale_columns = 0;                   ///< columns that share a one-byte scale; 0: no block scales

  /// Columns of a row after padding: with packed numbers, whole chunks.
  JIT_HOST_DEVICE constexpr int columns(int head_dim) const {
    return padded_head_dim(head_dim, numbers == 1 ? ElementTraits<bf16>::mma_k : chunk_bytes * numbers);
  }
  /// Bytes of `columns` columns.
  JIT_HOST_DEVICE constexpr int bytes(int columns) const { return columns * element_bytes / numbers; }
  JIT_HOST_DEVICE constexpr int scale_bytes(int head_dim) const {
    return block_scale_bytes(head_dim, scale_columns);
  }
};

/// Byte offsets within a stage: the queries with which a split begins, a tile of keys and one of values.
struct StageLayout {
  int k;
  int v;
  int k_scales;  ///< a float for each key
  int v_scales;  ///< the same
  int k_blocks;  ///< a byte for each block of columns of each key, in rows of whole words
  int v_blocks;  ///< the same
  int stage_bytes;
};

/// Byte offsets from the start of dynamic shared memory.
///
///     | stage 0: Q, K, V [, scales] | stage 1 … | tile infos of splits | of steps | pages of rows | list of steps |
///
/// A stage also holds queries: in the first step of a split or, with wide heads, in every step. When a split ends, its
/// last stage holds the partial results of the warps: `stage_bytes` is enough for both.
struct SmemLayout : StageLayout {
  int splits;
  int steps;
  int pages;
  int step_list;
  int total;
};

/// The number of steps by which a block looks ahead: loads run `stages` − 1 steps ahead of products, and pages must be
/// known a step before that.
JIT_HOST_DEVICE constexpr int steps_ahead(int stages, bool has_pages) {
  return has_pages ? stages + 1 : stages;
}

/// Room for a StepList (step_list.cuh).
inline constexpr int step_list_bytes = 128;

JIT_HOST_DEVICE constexpr SmemLayout smem_layout(int head_dim, int head_dim_v, int row_warps, int warp_rows,
                                                 int key_warps, int tile_kv, int stages, bool has_pages,
                                                 bool has_spans, const Storage& stored = {},
                                                 bool has_lists = false) {
  const int known_steps = steps_ahead(stages, has_pages) + 1;
  const int columns_v =
      stored.numbers > 1
          ? stored.columns(head_dim_v)
          : shared_columns(head_dim_v, split_column_warps(head_dim, head_dim_v), stored.element_bytes);
  const int scales = stored.has_row_scales ? tile_kv * 4 : 0;
  SmemAllocator stage, place;
  SmemLayout layout{};
  stage.rows(row_warps * warp_rows * padded_head_dim(head_dim) * stored.query_bytes);
  layout.k = stage.rows(tile_kv * stored.bytes(stored.columns(head_dim)));
  layout.v = stage.rows(tile_kv * stored.bytes(columns_v));
  layout.k_scales = stage.rows(scales);
  layout.v_scales = stage.rows(scales);
  layout.k_blocks = stage.rows(tile_kv * stored.scale_bytes(head_dim));
  layout.v_blocks = stage.rows(tile_kv * stored.scale_bytes(head_dim_v));
  const int results = result_bytes(row_warps * key_warps * warp_rows, columns_v);
  // The tiles of each stage begin at multiples of 128 bytes, as SmemTile::advance wants it.
  layout.stage_bytes = ((stage.total() < results ? results : stage.total()) + 127) / 128 * 128;
  place.rows(stages * layout.stage_bytes);
  layout.splits = place.words(known_steps * info_bytes(has_spans, has_lists));
  layout.steps = place.words(known_steps * static_cast<int>(sizeof(StepInfo)));
  layout.pages = place.words(has_pages ? known_steps * tile_kv * 4 : 0);
  layout.step_list = place.rows(step_list_bytes);
  layout.total = place.total();
  return layout;
}

template <class Config>
JIT_HOST_DEVICE constexpr Storage storage_of() {
  return {static_cast<int>(sizeof(typename Config::Element)), static_cast<int>(sizeof(KvElement<Config>)),
          has_row_scales<Config>, numbers_of<KvElement<Config>>, scale_columns_of<KvElement<Config>>};
}

template <class Config>
JIT_HOST_DEVICE constexpr SmemLayout smem_layout() {
  return smem_layout(Config::head_dim, Config::head_dim_v, Config::row_warps, Config::warp_rows,
                     Config::key_warps, Config::tile_kv, Config::stages,
                     Config::sequences_kv == SequenceKind::paged || has_key_lists<Config>,
                     Config::split_keys != 0, storage_of<Config>(), has_key_lists<Config>);
}

// The layout of a block's shared memory if TMA copies tiles. Host and NVRTC compile this file; the generated program
// asserts that both compute the same size.

/// Byte offsets from the start of dynamic shared memory, which is aligned to 1024 bytes.
///
///     | stage 0: Q, K, V | stage 1 … | tile infos of tiles | tile infos of splits | barriers |
///
/// Stages are as in SmemLayout, but tiles consist of panels. Barriers: two per stage, 8 bytes each.
struct BoxLayout : StageLayout {
  PipelinePlace stages;
  PipelinePlace splits;  ///< SplitInfo, or SpanInfo, for each stage
  int key_tile_infos;    ///< KeyTileInfo for each stage
  int total;
};

struct BoxSizes {
  int head_dim;
  int head_dim_v;
  int row_warps;
  int warp_rows;
  int key_warps;
  int tile_kv;
  int stages;
  bool has_spans;
};

JIT_HOST_DEVICE constexpr BoxLayout box_layout(const BoxSizes& sizes, const Storage& stored) {
  SmemAllocator stage, place;
  BoxLayout layout{};
  stage.tiles(sizes.row_warps * sizes.warp_rows * padded_head_dim(sizes.head_dim) * stored.query_bytes);
  const auto tile_bytes = [&](int head_dim) {
    return panel_tile_bytes(sizes.tile_kv, head_dim / stored.numbers, stored.element_bytes);
  };
  const int scales = stored.has_row_scales ? sizes.tile_kv * 4 : 0;
  layout.k = stage.tiles(tile_bytes(sizes.head_dim));
  layout.v = stage.tiles(tile_bytes(sizes.head_dim_v));
  layout.k_scales = stage.rows(scales);
  layout.v_scales = stage.rows(scales);
  layout.k_blocks = stage.rows(sizes.tile_kv * stored.scale_bytes(sizes.head_dim));
  layout.v_blocks = stage.rows(sizes.tile_kv * stored.scale_bytes(sizes.head_dim_v));
  const int end = stage.tiles(0), results = result_bytes(sizes.row_warps * sizes.key_warps * sizes.warp_rows,
                                                         stored.columns(sizes.head_dim_v));
  layout.stage_bytes = ((end < results ? results : end) + 1023) / 1024 * 1024;
  layout.stages.tiles = place.tiles(sizes.stages * layout.stage_bytes);
  layout.key_tile_infos = place.numbers(sizes.stages * static_cast<int>(sizeof(KeyTileInfo)));
  layout.splits.tiles = place.numbers(stages_splits * info_bytes(sizes.has_spans));
  place.barriers(layout.stages, sizes.stages);
  place.barriers(layout.splits, stages_splits);
  layout.total = place.total();
  return layout;
}

template <class Config>
JIT_HOST_DEVICE constexpr BoxLayout box_layout() {
  return box_layout({.head_dim = Config::head_dim,
                     .head_dim_v = Config::head_dim_v,
                     .row_warps = Config::row_warps,
                     .warp_rows = Config::warp_rows,
                     .key_warps = Config::key_warps,
                     .tile_kv = Config::tile_kv,
                     .stages = Config::stages,
                     .has_spans = Config::split_keys != 0},
                    storage_of<Config>());
}

}  // namespace jit::forward_split_kv
