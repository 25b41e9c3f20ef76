// What producers of tiles of keys ask the mask, and the boxes in which TMA copies a tile. A Traits is that of a kernel
// family: its Config, has_pages, and the number and the rows of boxes.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "base/tensor_map.cuh"
#include "problem/kv_tiles.cuh"
#include "problem/sequences.cuh"
#include "problem/variable_sequences.cuh"
#include "ptx/bulk_tensor.cuh"
#include "ptx/mbarrier.cuh"
#include "split_keys/key_tile_info.cuh"
#include "split_keys/span_info.cuh"
#include "split_keys/work_list.cuh"

namespace jit {

/// What the mask leaves of tiles of the scores of a work tile, for KvTiles.
template <class Config>
struct WorkTileMask {
  const AttentionParams& params;
  const SplitWorkTile& work_tile;

  __device__ __forceinline__ TileClass classify(const ScoreTile& tile) const {
    return jit::classify<Config>(params, work_tile, tile);
  }
  __device__ __forceinline__ int next_key(int q_begin, int q_end,
                                          int k) const requires has_next<typename Config::Mask> {
    return jit::next_key<Config>(params, work_tile, {q_begin, q_end, 0, 0}, k);
  }
};

/// Where the lane's box of a tile of keys or values begins: each lane copies one. A box lies in one page; without pages
/// there is one. Of a tile of no keys of the sequence nothing is copied, of one with some all boxes: those without keys
/// as zeros. What a page table says may be any number: TMA reads zeros, too, where there is no such page.
template <class Traits>
__device__ __forceinline__ RowPlace box_place(const AttentionParams& params, const SplitWorkTile& work_tile,
                                              int k_begin) {
  using Config = typename Traits::Config;
  if constexpr (Traits::has_pages) {
    const int key = k_begin + lane_id() * Traits::box_rows, row = work_tile.kv.begin + key;
    const bool has_keys = lane_id() < Traits::boxes && key < work_tile.kv.length;
    const int page = has_keys ? VariableSequences<Config>(params).page(work_tile.batch, row) : -1;
    if (has_keys) expect_page<Config>(params, work_tile, key, Traits::box_rows, page);
    return {row % Config::page_size, work_tile.kv_head, page};
  } else {
    const bool is_varlen = Config::sequences_kv == SequenceKind::varlen;
    return {work_tile.kv.begin + k_begin + lane_id() * Traits::box_rows, work_tile.kv_head,
            is_varlen ? 0 : work_tile.batch};
  }
}

/// Starts the copies of a tile, for whose bytes the barrier `full` waits. By a whole warp. All panels of a box are
/// copied side by side, because their rows lie side by side in memory.
template <class Traits, class Tile>
__device__ __forceinline__ void start_boxes(unsigned tile, const TensorMap& map, unsigned full,
                                            const RowPlace& box) {
#pragma unroll
  for (int first = 0; first < Traits::boxes * Tile::panels; first += warp_size) {
    const int index = (first + lane_id()) / Tile::panels, panel = (first + lane_id()) % Tile::panels;
    const int seq = __shfl_sync(full_warp, box.seq, index), batch = __shfl_sync(full_warp, box.batch, index);
    if (index >= Traits::boxes) break;
    cp_async_bulk_tensor_load(tile + panel * Tile::panel_bytes + index * Traits::box_rows * Tile::row_bytes,
                              map, full, panel * Tile::columns, seq, box.head, batch);
  }
}

/// The same, and lets the barrier wait.
template <class Traits, class Tile>
__device__ __forceinline__ void copy_boxes(unsigned tile, const TensorMap& map, unsigned full,
                                           const RowPlace& box) {
  if (lane_id() == 0) mbarrier_arrive_expect_tx(full, Tile::bytes);
  __syncwarp();
  start_boxes<Traits, Tile>(tile, map, full, box);
}

/// The tiles of keys of a split that the rows of its work tile see.
template <class Config>
using WorkTileKeys = KvTiles<WorkTileMask<Config>, Config::tile_kv, 1>;

/// What is recorded of the tile at which `tiles` stands.
template <class Tiles>
__device__ __forceinline__ KeyTileInfo info_of(const Tiles& tiles) {
  return {tiles.key(0), (tiles.is_partial() ? key_info_partial : 0) | (tiles.has(1) ? 0 : key_info_last)};
}

/// Calls f(info, tiles) for the block's splits of work tiles, one after another, where keys are summed in spans span
/// by span. `work.work_tile` is the split's. By a whole warp.
template <class Config, class WorkList, class F>
__device__ __forceinline__ void for_each_split(const AttentionParams& params, WorkList& work, F f) {
  // Tiles [begin, end) of the work tile's.
  const auto visit = [&](const Info<Config>& info, int begin, int end) {
    const WorkTileMask<Config> mask{params, work.work_tile};
    const KeyRange keys{(work.tiles.begin + begin) * Config::tile_kv,
                        (work.tiles.begin + end) * Config::tile_kv};
    WorkTileKeys<Config> tiles(mask, queries_of<Config>(work.work_tile), keys, work.work_tile.kv.length);
    f(info, tiles);
  };
  for (; work.has_work_tile(params); work.next(params)) {
    const WorkTileSplit mine = work.split();
    if (!mine.is_mine) continue;
    if constexpr (Config::split_keys == 0) {
      visit(work.info(mine), mine.tile_begin, mine.tile_end);
    } else {
      int tile = mine.tile_begin;  // a work tile without keys has one span
      do {
        // mutate: SpansFromTheWindowOnByWgmma
        const int span_end = ((work.tiles.begin + tile) / span_tiles<Config> + 1) * span_tiles<Config>;
        const int end = minimum(mine.tile_end, span_end - work.tiles.begin);
        visit(work.span_info(mine, work.tiles.begin + tile), tile, end);
        tile = end;
      } while (tile < mine.tile_end);
    }
  }
}

}  // namespace jit
