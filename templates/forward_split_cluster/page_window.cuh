// The pages of a warp's tiles, looked up for many tiles at once: each lane holds an entry of the page table.
//
// Rows of a page lie at equal distances. Where pages are multiples of 16 rows, an entry therefore places 16 rows of a tile, which
// are copied as those of dense keys are. Rows of other pages, and behind left padding that is no multiple of 16, are placed one
// by one.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "forward_split_cluster/strided_tiles.cuh"
#include "problem/paged_kv.cuh"
#include "problem/variable_sequences.cuh"
#include "split_keys/work_tile_keys.cuh"
#include "tiles/tile_copy.cuh"

namespace jit::forward_split_cluster {

/// Where the rows of a tile of keys begin in pages, or of values; null for one that does not exist.
template <class Config>
using RowStart = const KvElement<Config>*;

/// Rows that an entry of the page table places.
template <class Config>
inline constexpr int rows_together = Config::page_size % 16 == 0 ? 16 : 1;

/// Finds the pages of a warp's tiles, one after another.
template <class Config>
class PageWindow {
 public:
  /// `starts` has room for a pointer to each row of a tile of keys, and behind them of values.
  JIT_DEVICE PageWindow(const AttentionParams& params, const SplitWorkTile& work_tile,
                        RowStart<Config>* starts)
      : params_(params),
        work_tile_(work_tile),
        starts_(starts),
        places_groups_(rows_together<Config> > 1 && work_tile.kv.begin % rows_together<Config> == 0) {}

  /// Finds the rows of the tile that is loaded next. By a whole warp.
  JIT_DEVICE void find(const StridedTiles<Config>& tiles) {
    if (places_groups_) {
      find_groups(tiles);
    } else {
      place_rows(tiles.key());
    }
  }

  /// Starts the copy of the tile's keys or values, whose rows in `starts` begin `first_start` further on. By a whole warp.
  template <class Tile, int columns>
  JIT_DEVICE void copy(unsigned tile, int k_begin, const void* data, const TensorStrides& strides,
                       int first_start) const {
    if (!places_groups_) {
      const RowStart<Config>* const starts = starts_ + first_start;
      copy_rows<Tile, columns, warp_size, Config::alignment>(
          tile, [starts](int row) { return starts[minimum(row, Config::tile_kv - 1)]; }, lane_id());
      return;
    }
#pragma unroll
    for (int group = 0; group < groups; ++group) {
      const int page = __shfl_sync(full_warp, page_, first_lane_ + group);
      const int key = k_begin + group * rows_together<Config>;
      const bool exists = PagedKv<Config>(params_).exists(page);
      using Rows = SmemTile<rows_together<Config>, Tile::chunks>;
      TileCopy<Rows, columns, warp_size, Config::alignment, KvElement<Config>>(
          {row_start(data, strides, exists ? page : 0, key), strides.seq},
          exists ? work_tile_.kv.length - key : 0, lane_id())
          .load(tile + group * Rows::bytes, 0);
    }
  }

 private:
  static constexpr int groups = Config::tile_kv / rows_together<Config>;
  static constexpr int turns = warp_size / groups;  // whose entries the lanes hold

  JIT_DEVICE RowStart<Config> row_start(const void* data, const TensorStrides& strides, int page,
                                        int key) const {
    return static_cast<RowStart<Config>>(data) + page * strides.batch +
           (work_tile_.kv.begin + key) % Config::page_size * strides.seq + work_tile_.kv_head * strides.head;
  }

  /// The page of the rows from a key on; −1 behind the keys.
  JIT_DEVICE int page_of(int key) const {
    if (static_cast<unsigned>(key) >= static_cast<unsigned>(work_tile_.kv.length))
      return -1;  // or far behind
    return VariableSequences<Config>(params_).page(work_tile_.batch, work_tile_.kv.begin + key);
  }

  /// Expects a page for rows that are loaded. Entries of tiles that no query sees are looked up, too, but may be anything.
  JIT_DEVICE void expect(int key, int rows, int page) const {
    if (static_cast<unsigned>(key) < static_cast<unsigned>(work_tile_.kv.length))
      expect_page<Config>(params_, work_tile_, key, rows, page);
  }

  JIT_DEVICE void find_groups(const StridedTiles<Config>& tiles) {
    if (tiles.turn() - first_turn_ >= turns) {
      first_turn_ = tiles.turn();
      const int lane = lane_id();
      page_ = page_of(tiles.key_of(first_turn_ + lane / groups) + lane % groups * rows_together<Config>);
    }
    first_lane_ = (tiles.turn() - first_turn_) * groups;
    const unsigned group = lane_id() - first_lane_;
    if (group < groups)
      expect(tiles.key() + static_cast<int>(group) * rows_together<Config>, rows_together<Config>, page_);
  }

  JIT_DEVICE void place_rows(int k_begin) const {
    const int key = k_begin + lane_id();
    const bool is_row = lane_id() < Config::tile_kv;
    const int page = is_row ? page_of(key) : -1;
    if (is_row) expect(key, 1, page);
    const bool exists = PagedKv<Config>(params_).exists(page);
    __syncwarp();  // all have read what lies there
    if (is_row) {
      starts_[lane_id()] = exists ? row_start(params_.k, params_.k_strides, page, key) : nullptr;
      starts_[Config::tile_kv + lane_id()] =
          exists ? row_start(params_.v, params_.v_strides, page, key) : nullptr;
    }
    __syncwarp();
  }

  const AttentionParams& params_;
  const SplitWorkTile& work_tile_;
  RowStart<Config>* starts_;
  bool places_groups_;
  int first_turn_ = -warp_size;
  int page_ = -1;
  int first_lane_ = 0;
};

}  // namespace jit::forward_split_cluster
