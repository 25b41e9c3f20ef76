// The loads of a warp: each fills and empties a pipeline of its own, so that no warp waits for another one.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_split_cluster/page_window.cuh"
#include "forward_split_cluster/strided_tiles.cuh"
#include "forward_split_cluster/traits.cuh"
#include "mainloop/kv_row_copies.cuh"
#include "problem/paged_kv.cuh"
#include "problem/variable_sequences.cuh"
#include "ptx/cp_async.cuh"
#include "split_keys/work_tile_keys.cuh"
#include "tiles/tile_copy.cuh"

namespace jit::forward_split_cluster {

/// A warp's pipeline of stages in the block's memory.
template <class Config>
struct WarpPipeline {
  using Traits = KernelTraits<Config>;
  static constexpr SmemLayout layout = Traits::layout;
  unsigned char* bytes;

  /// The shared address of the tile of keys of a step.
  JIT_DEVICE unsigned stage(int step) const { return smem_address(bytes) + place(step) * layout.stage_bytes; }
  /// The place of what is recorded of it.
  JIT_DEVICE KeyTileInfo& info(int step) const {
    return reinterpret_cast<KeyTileInfo*>(bytes + layout.key_tile_infos)[place(step)];
  }
  /// Where the rows of the tile that is loaded begin, of keys and then of values. Where there are pages.
  JIT_DEVICE RowStart<Config>* row_starts() const {
    return reinterpret_cast<RowStart<Config>*>(bytes + layout.row_starts) + warp_id() * 2 * Config::tile_kv;
  }

 private:
  static JIT_DEVICE int place(int step) {
    const auto stages = static_cast<unsigned>(Config::stages);
    return warp_id() * Config::stages + static_cast<int>(static_cast<unsigned>(step) % stages);
  }
};

/// Starts the copy of a warp's tile of keys, or of values, whose rows begin `first_start` further on.
template <class Tile, int columns, class Config>
JIT_DEVICE void copy_tile(const AttentionParams& params, const SplitWorkTile& work_tile,
                          const PageWindow<Config>& pages, int k_begin, const void* data,
                          const TensorStrides& strides, int first_start, unsigned tile) {
  if constexpr (KernelTraits<Config>::has_pages) {
    pages.template copy<Tile, columns>(tile, k_begin, data, strides, first_start);
  } else {
    const KvRows<Config> rows(params, work_tile, k_begin, nullptr, data, strides);
    TileCopy<Tile, columns, warp_size, Config::alignment, KvElement<Config>>(rows.dense(), rows.count,
                                                                             lane_id())
        .load(tile, 0);
  }
}

/// Starts the loads of a step, those of the next tile if there is one, and writes its tile info: a group of keys and
/// of what `behind_keys` copies, and one of values, which are needed later. By a whole warp.
template <class Config, class F>
JIT_DEVICE void load_tile(const AttentionParams& params, const SplitWorkTile& work_tile,
                          const WarpPipeline<Config>& pipeline, int step, StridedTiles<Config>& tiles,
                          PageWindow<Config>& pages, F behind_keys) {
  using Traits = KernelTraits<Config>;
  const bool has_tile = tiles.has_tile();
  KeyTileInfo info{tiles.key(), has_tile ? 0 : key_info_none};
  if (has_tile) {
    if constexpr (Traits::has_pages) pages.find(tiles);
    copy_tile<typename Traits::KTile, Config::head_dim>(params, work_tile, pages, info.k_begin, params.k,
                                                        params.k_strides, 0, pipeline.stage(step));
  }
  behind_keys();
  cp_async_commit_group();
  if (has_tile) {
    copy_tile<typename Traits::VTile, Config::head_dim_v>(params, work_tile, pages, info.k_begin, params.v,
                                                          params.v_strides, Config::tile_kv,
                                                          pipeline.stage(step) + Traits::layout.v);
    if (tiles.is_partial()) info.flags |= key_info_partial;  // mutate: ScoresBehindTheKeys
    tiles.advance();
    if (!tiles.has_tile()) info.flags |= key_info_end;  // mutate: LastTileTooSoon
  }
  cp_async_commit_group();
  if (lane_id() == 0) pipeline.info(step) = info;
}

}  // namespace jit::forward_split_cluster
