// The loads of a warp: each fills and empties a pipeline of its own, so that no warp waits for another one.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_split_cluster/traits.cuh"
#include "mainloop/kv_row_copies.cuh"
#include "problem/kv_tiles.cuh"
#include "problem/paged_kv.cuh"
#include "problem/variable_sequences.cuh"
#include "ptx/cp_async.cuh"
#include "split_keys/work_tile_keys.cuh"
#include "tiles/tile_copy.cuh"

namespace jit::forward_split_cluster {

/// The tiles that the mask leaves of a warp's keys.
template <class Config>
using WarpTiles = KvTiles<WorkTileMask<Config>, Config::tile_kv, 0>;

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

/// Starts the loads of a step, those of the next tile if there is one, and writes its tile info: a group of keys and
/// of what `behind_keys` copies, and one of values, which are needed later. By a whole warp.
template <class Config, class F>
JIT_DEVICE void load_tile(const AttentionParams& params, const SplitWorkTile& work_tile,
                          const WarpPipeline<Config>& pipeline, int step, WarpTiles<Config>& tiles,
                          PageWindow<Config>& pages, F behind_keys) {
  using Traits = KernelTraits<Config>;
  const bool has_tile = tiles.has(0);
  KeyTileInfo info{tiles.key(0), has_tile ? 0 : key_info_none};
  const auto row_starts = [&](int first) {
    const RowStart<Config>* const starts = pipeline.row_starts() + first;
    return [starts](int row) { return starts[minimum(row, Config::tile_kv - 1)]; };
  };
  if (has_tile) {
    if constexpr (Traits::has_pages) pages.put(params, work_tile, info.k_begin, pipeline.row_starts());
    copy_kv_tile<typename Traits::KTile, Config::head_dim, warp_size>(
        pipeline.stage(step),
        KvRows<Config>(params, work_tile, info.k_begin, nullptr, params.k, params.k_strides), row_starts(0),
        lane_id());
  }
  behind_keys();
  cp_async_commit_group();
  if (has_tile) {
    copy_kv_tile<typename Traits::VTile, Config::head_dim_v, warp_size>(
        pipeline.stage(step) + Traits::layout.v,
        KvRows<Config>(params, work_tile, info.k_begin, nullptr, params.v, params.v_strides),
        row_starts(Config::tile_kv), lane_id());
    if (tiles.is_partial()) info.flags |= key_info_partial;  // mutate: ScoresBehindTheKeys
    tiles.advance();
    if (!tiles.has(0)) info.flags |= key_info_end;  // mutate: LastTileTooSoon
  }
  cp_async_commit_group();
  if (lane_id() == 0) pipeline.info(step) = info;
}

}  // namespace jit::forward_split_cluster
