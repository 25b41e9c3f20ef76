// The layout of a block's shared memory. Host and NVRTC compile this file; the generated program asserts that both
// compute the same size.
#pragma once

#include "base/host_device.cuh"
#include "mainloop/key_tile_info.cuh"
#include "mainloop/output_columns.cuh"
#include "mainloop/row_quads.cuh"
#include "mainloop/stored_latents.cuh"
#include "pipeline/smem_allocator.cuh"
#include "split_keys/split_info.cuh"
#include "tiles/panel_tile.cuh"

namespace jit::forward_mla_wgmma {

/// Columns of a panel of values, and of all others.
inline constexpr int value_panel = 64;
/// Keys per step.
inline constexpr int tile_kv = 64;
/// Tiles of columns that are keys alone. These are multiplied last: they come while all others are multiplied.
inline constexpr int stages_alone = 1;
/// Tiles of keys that are told of ahead.
JIT_HOST_DEVICE constexpr int stages_infos(bool copies_rows) { return copies_rows ? 3 : 4; }

/// Columns of Q that a score warpgroup has in registers, those of the first output warpgroup: less of Q is read from
/// shared memory, whose bandwidth is as scarce as the tensor cores.
JIT_HOST_DEVICE constexpr int held_columns(int head_dim_v) { return output_columns(head_dim_v); }

/// Byte offsets from the start of dynamic shared memory, which is aligned to 1024 bytes.
///
///     | Q | keys alone, stage 0 | … | part of values, stage 0 | … | P | rows as stored | row factors or states | flags | infos of keys | keys of lists | infos of splits | barriers |
struct SmemLayout {
  PipelinePlace q;       ///< without the columns that are held
  PipelinePlace k;       ///< columns of keys behind those of values
  PipelinePlace v;       ///< parts of the columns of values, which are keys, too
  PipelinePlace p;       ///< P of tiles of keys; a seesaw has it where keys alone were
  PipelinePlace infos;   ///< of tiles of keys
  PipelinePlace splits;  ///< SplitInfo, or SpanInfo, for each stage
  PipelinePlace plans;   ///< RowPlan of tiles of keys whose rows are copied
  int p_flags;           ///< int of each warp's rows, for each stage of P
  int row_factors;       ///< float of each row, for each stage of P
  int states;            ///< of each thread's rows, from one consumer of a seesaw to the other
  int key_tile_infos;    ///< KeyTileInfo for each stage
  int stored;            ///< of rows of 8-bit latents, for each warp that converts them
  int stored_stages;     ///< of each of these warps
  int list_words;  ///< where keys of lists stand in their sequence, and their members, for each stage of infos
  int total;
};

struct SmemSizes {
  int head_dim;
  int head_dim_v;
  int stages;  ///< tiles of keys that have room
  bool has_spans;
  bool copies_rows = false;  ///< whether keys are copied row by row
  int list_words = 0;        ///< of each key, where queries have lists
  int stored_row_bytes = 0;  ///< stored bytes of a row of 8-bit latents that is converted where it is copied
};

/// Tiles of keys whose P may wait to be multiplied. With two, scores of the next tile begin when the softmax ends, beside
/// products with values of the tile before. One, where P is handed over early: if rows are converted. One with spans, too,
/// whose states one output warpgroup writes and both read: by the next P they are known to be there.
JIT_HOST_DEVICE constexpr int stages_p(const SmemSizes& sizes) {
  return sizes.stored_row_bytes > 0 || sizes.has_spans ? 1 : 2;
}

/// Whether consumers seesaw: compute scores of every other tile each. Rows that are copied are theirs to fence. Stored rows,
/// which are converted, would have no room beside two tiles and all of Q.
JIT_HOST_DEVICE constexpr bool seesaws(const SmemSizes& sizes) {
  return sizes.copies_rows && sizes.stored_row_bytes == 0;
}
/// Bytes of states: maximum and sum of each thread's two rows, and a flag of each warp.
inline constexpr int states_bytes = 4 * 32 * 16 + 4 * 4;

/// Parts of values of so many tiles, and of half a tile more.
JIT_HOST_DEVICE constexpr int value_stages(const SmemSizes& sizes, bool has_more) {
  return own_parts(sizes.head_dim_v) * (output_warpgroups * sizes.stages + (has_more ? 1 : 0));
}

JIT_HOST_DEVICE constexpr SmemLayout smem_layout(const SmemSizes& sizes, bool has_more, int stored_stages) {
  constexpr int word_bytes = 4, warps = 4;
  const int tiles_told = stages_infos(sizes.copies_rows), plans = sizes.copies_rows ? stages_plans : 0;
  SmemAllocator place;
  SmemLayout layout{};
  layout.q.tiles =
      place.tiles(panel_tile_bytes(rows_per_warpgroup, sizes.head_dim - held_columns(sizes.head_dim_v)));
  const int panels_alone = panel_count(sizes.head_dim) - panel_count(sizes.head_dim_v);
  const int tiles_of_p = stages_p(sizes);
  layout.k.tiles = place.tiles(stages_alone * panels_alone * tile_kv * value_panel * element_bytes);
  const int stages_v = value_stages(sizes, has_more);
  layout.v.tiles = place.tiles(stages_v * tile_kv * part_columns(sizes.head_dim_v) * element_bytes);
  layout.p.tiles = place.tiles(tiles_of_p * panel_tile_bytes(rows_per_warpgroup, tile_kv));
  layout.stored = place.tiles(stored_latent_bytes(sizes.stored_row_bytes, row_copy_warps, stored_stages));
  layout.stored_stages = stored_stages;
  layout.row_factors = place.words(tiles_of_p * rows_per_warpgroup * word_bytes);
  layout.p_flags = place.words(tiles_of_p * warps * word_bytes);
  layout.key_tile_infos = place.numbers(tiles_told * static_cast<int>(sizeof(KeyTileInfo)));
  layout.list_words = place.words(tiles_told * tile_kv * sizes.list_words * word_bytes);
  layout.splits.tiles = place.numbers(stages_splits * info_bytes(sizes.has_spans, sizes.list_words > 0));
  place.barriers(layout.q, 1);
  place.barriers(layout.k, stages_alone);
  place.barriers(layout.v, stages_v);
  place.barriers(layout.p, tiles_of_p);
  place.barriers(layout.infos, tiles_told);
  place.barriers(layout.splits, stages_splits);
  place.barriers(layout.plans, plans);
  layout.plans.tiles = place.words(plans * plan_bytes(tile_kv));
  layout.total = place.total();
  return layout;
}
/// The layout of a seesaw.
JIT_HOST_DEVICE constexpr SmemLayout seesaw_layout(const SmemSizes& sizes) {
  constexpr int word_bytes = 4;
  const int tiles_told = stages_infos(true);
  SmemAllocator place;
  SmemLayout layout{};
  layout.q.tiles = place.tiles(panel_tile_bytes(rows_per_warpgroup, sizes.head_dim));
  const int panels_alone = panel_count(sizes.head_dim) - panel_count(sizes.head_dim_v);
  // A panel has room for P, too.
  layout.k.tiles = place.tiles(sizes.stages * (panels_alone > 0 ? panels_alone : 1) * tile_kv * value_panel *
                               element_bytes);
  const int stages_v = value_stages(sizes, false);
  layout.v.tiles = place.tiles(stages_v * tile_kv * part_columns(sizes.head_dim_v) * element_bytes);
  layout.states = place.rows(states_bytes);
  layout.key_tile_infos = place.numbers(tiles_told * static_cast<int>(sizeof(KeyTileInfo)));
  layout.list_words = place.words(tiles_told * tile_kv * sizes.list_words * word_bytes);
  layout.splits.tiles = place.numbers(stages_splits * info_bytes(sizes.has_spans, sizes.list_words > 0));
  place.barriers(layout.q, 1);
  place.barriers(layout.k, sizes.stages);
  place.barriers(layout.v, stages_v);
  place.barriers(layout.p, 1);
  place.barriers(layout.infos, tiles_told);
  place.barriers(layout.splits, stages_splits);
  place.barriers(layout.plans, stages_plans);
  layout.plans.tiles = place.words(stages_plans * plan_bytes(tile_kv));
  layout.total = place.total();
  return layout;
}

/// With half a tile more where that fits: what comes next is on its way while values are multiplied. Rows that are
/// converted wait as they are stored instead, as many as fit.
JIT_HOST_DEVICE constexpr SmemLayout smem_layout(const SmemSizes& sizes) {
  constexpr int most = 232448;  // that a block may have on sm_90
  if (seesaws(sizes)) return seesaw_layout(sizes);
  if (sizes.stored_row_bytes == 0) {
    const SmemLayout layout = smem_layout(sizes, true, 0);
    return layout.total <= most ? layout : smem_layout(sizes, false, 0);
  }
  for (int stored_stages = most_stored_stages; stored_stages > least_stored_stages; --stored_stages) {
    const SmemLayout layout = smem_layout(sizes, false, stored_stages);
    if (layout.total <= most) return layout;
  }
  return smem_layout(sizes, false, least_stored_stages);
}

}  // namespace jit::forward_mla_wgmma
