// The loads of a warp: each fills and empties a pipeline of its own, so that no warp waits for another one.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_split_cluster/traits.cuh"
#include "problem/kv_tiles.cuh"
#include "problem/variable_sequences.cuh"
#include "ptx/cp_async.cuh"
#include "split_keys/key_boxes.cuh"
#include "split_keys/kv_rows.cuh"
#include "split_keys/split_info.cuh"
#include "split_keys/work_list.cuh"
#include "tiles/tile_copy.cuh"

namespace jit::forward_split_cluster {

/// Where the rows of a tile of keys begin in pages, or of values; null for one that does not exist.
template <class Config>
using RowStart = const KvElement<Config>*;

/// Finds the pages of tiles, one after another: lanes hold the numbers of pages that stand side by side in the table.
template <class Config>
class PageWindow {
 public:
  /// Writes where the rows of the tile from key `k_begin` on begin, of keys and behind them of values, at `starts`: a
  /// lane finds out for a row what else all would that copy a piece of it. By a whole warp.
  __device__ __forceinline__ void put(const AttentionParams& params, const SplitWorkTile& work_tile,
                                      int k_begin, RowStart<Config>* starts) {
    const int row = work_tile.kv.begin + k_begin;
    if ((row + Config::tile_kv - 1) / Config::page_size - first_ >= warp_size) {
      first_ = row / Config::page_size;
      const int own_row = (first_ + lane_id()) * Config::page_size;
      page_ = own_row < work_tile.kv.begin + work_tile.kv.length
                  ? VariableSequences<Config>(params).page(work_tile.batch, own_row)
                  : -1;
    }
    const int lane_row = row + minimum(lane_id(), Config::tile_kv - 1), key = k_begin + lane_id();
    const int page = __shfl_sync(full_warp, page_, lane_row / Config::page_size - first_);
    const bool is_key = lane_id() < Config::tile_kv && key < work_tile.kv.length;
    if (is_key) expect_page<Config>(params, work_tile, key, 1, page);
    const bool exists = is_key && page >= 0 && page < params.sequences.pages;
    const auto start = [&](const void* data, const TensorStrides& strides) {
      return exists ? static_cast<RowStart<Config>>(data) + page * strides.batch +
                          lane_row % Config::page_size * strides.seq + work_tile.kv_head * strides.head
                    : nullptr;
    };
    __syncwarp();  // all have read what lies there
    if (lane_id() < Config::tile_kv) {
      starts[lane_id()] = start(params.k, params.k_strides);
      starts[Config::tile_kv + lane_id()] = start(params.v, params.v_strides);
    }
    __syncwarp();
  }

 private:
  int first_ = -warp_size;
  int page_ = -1;
};

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
  __device__ __forceinline__ unsigned stage(int step) const {
    return smem_address(bytes) + place(step) * layout.stage_bytes;
  }
  /// The place of what is recorded of it.
  __device__ __forceinline__ KeyTileInfo& info(int step) const {
    return reinterpret_cast<KeyTileInfo*>(bytes + layout.key_tile_infos)[place(step)];
  }
  /// Where the rows of the tile that is loaded begin, of keys and then of values. Where there are pages.
  __device__ __forceinline__ RowStart<Config>* row_starts() const {
    return reinterpret_cast<RowStart<Config>*>(bytes + layout.row_starts) + warp_id() * 2 * Config::tile_kv;
  }

 private:
  static __device__ __forceinline__ int place(int step) {
    const auto stages = static_cast<unsigned>(Config::stages);
    return warp_id() * Config::stages + static_cast<int>(static_cast<unsigned>(step) % stages);
  }
};

/// Starts the copy of a tile of keys or values. By a whole warp. Where there are pages its rows begin at `starts`.
template <class Config, class Tile, int columns>
__device__ __forceinline__ void copy_tile(unsigned tile, const KvRows<Config>& rows,
                                          const RowStart<Config>* starts) {
  if constexpr (KernelTraits<Config>::has_pages) {
    copy_rows<Tile, columns, warp_size, Config::alignment>(
        tile, [starts](int row) { return starts[minimum(row, Config::tile_kv - 1)]; }, lane_id());
  } else {
    TileCopy<Tile, columns, warp_size, Config::alignment, KvElement<Config>>(rows.dense(), rows.count,
                                                                             lane_id())
        .load(tile, 0);
  }
}

/// Starts the loads of a step, those of the next tile if there is one, and writes its tile info: a group of keys and
/// of what `behind_keys` copies, and one of values, which are needed later. By a whole warp.
template <class Config, class F>
__device__ __forceinline__ void load_tile(const AttentionParams& params, const SplitWorkTile& work_tile,
                                          const SplitInfo& split, const WarpPipeline<Config>& pipeline,
                                          int step, WarpTiles<Config>& tiles, PageWindow<Config>& pages,
                                          F behind_keys) {
  using Traits = KernelTraits<Config>;
  const bool has_tile = tiles.has(0);
  KeyTileInfo info{tiles.key(0), has_tile ? 0 : key_info_none};
  if (has_tile) {
    if constexpr (Traits::has_pages) pages.put(params, work_tile, info.k_begin, pipeline.row_starts());
    copy_tile<Config, typename Traits::KTile, Config::head_dim>(
        pipeline.stage(step),
        KvRows<Config>(params, split, info.k_begin, nullptr, params.k, params.k_strides),
        pipeline.row_starts());
  }
  behind_keys();
  cp_async_commit_group();
  if (has_tile) {
    copy_tile<Config, typename Traits::VTile, Config::head_dim_v>(
        pipeline.stage(step) + Traits::layout.v,
        KvRows<Config>(params, split, info.k_begin, nullptr, params.v, params.v_strides),
        pipeline.row_starts() + Config::tile_kv);
    if (tiles.is_partial()) info.flags |= key_info_partial;  // mutate: ScoresBehindTheKeys
    tiles.advance();
    if (!tiles.has(0)) info.flags |= key_info_last;  // mutate: LastTileTooSoon
  }
  cp_async_commit_group();
  if (lane_id() == 0) pipeline.info(step) = info;
}

}  // namespace jit::forward_split_cluster
