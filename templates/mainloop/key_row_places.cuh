// The rows of a tile of keys that a warp copies, of a kernel whose warps share each tile: where each lies.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "problem/key_lists.cuh"
#include "problem/latent_rows.cuh"
#include "problem/paged_kv.cuh"
#include "scheduling/split_tile_scheduler.cuh"
#include "split_keys/list_tiles.cuh"
#include "split_keys/split_pipeline.cuh"

namespace jit {

/// Warps have groups of rows in turns, and a lane knows where some rows of its warp lie.
template <class Traits>
class KeyRowPlaces {
 protected:
  using Config = typename Traits::Config;
  static constexpr int group_rows = 8;  // whose swizzles differ: known when a group's rows are unrolled
  static constexpr int rows = Config::tile_kv / Traits::key_warps;  // of a warp
  static_assert(rows % group_rows == 0, "warps have the same number of groups of rows");
  static constexpr int rows_per_lane = (rows + warp_size - 1) / warp_size;

 public:
  /// Rows of a lane, a warp's width apart among those of the warp: where they lie in which batch entry, or page, which
  /// is negative for those that there are not. No address yet: that would wait for the page table.
  struct Place {
    int head;
    int batch[rows_per_lane];
    int seq[rows_per_lane];
  };

  JIT_DEVICE KeyRowPlaces(const AttentionParams& params, int warp) : params_(params), warp_(warp) {}

  /// Places of the rows of the tile `ahead` steps in front, of a split of the work tile.
  JIT_DEVICE Place place(const SplitWorkTile& work_tile, const Info<Config>& info,
                         const RowTiles<Config>& tiles, int ahead) const {
    Place place{.head = work_tile.kv_head};
    const int k_begin = tiles.key(ahead);
#pragma unroll
    for (int i = 0; i < rows_per_lane; ++i) {
      const int own = i * warp_size + lane_id(), key = k_begin + tile_row(own),
                row = work_tile.kv.begin + key;
      place.batch[i] = -1;
      place.seq[i] = row;
      const int position = position_of(tiles, ahead, tile_row(own));
      if (own >= rows || key >= work_tile.kv.length) continue;
      const RowPlace at = place_of(work_tile, info, key, position);
      place.batch[i] = at.batch;
      place.seq[i] = at.seq;
      if constexpr (Traits::has_pages && !has_key_lists<Config>)
        expect_page<Config>(params_, work_tile, key, 1, at.batch);
    }
    return place;
  }

 protected:
  // First element of a lane's row; null for one that there is not. What a page table says may be any number.
  JIT_DEVICE const RowElement<Config>* row_at(const Place& place, int i) const {
    const TensorStrides& strides = params_.k_strides;
    const int batch = place.batch[i];
    if (batch < 0 || !PagedKv<Config>(params_).exists(batch)) return nullptr;
    return static_cast<const RowElement<Config>*>(params_.k) +
           PagedKv<Config>::offset(strides, {place.seq[i], place.head, batch});
  }

  // The place of one of the warp's rows in the tile.
  JIT_DEVICE int tile_row(int own) const {
    // mutate: HalfOfTheRowsTwice
    return (own / group_rows * Traits::key_warps + warp_) * group_rows + own % group_rows;
  }

  const AttentionParams& params_;

 private:
  // Where a key of a list stands, which lanes tell one another.
  static JIT_DEVICE int position_of(const RowTiles<Config>& tiles, int ahead, int row) {
    if constexpr (has_key_lists<Config>) return tiles.position(ahead, row);
    return 0;
  }
  JIT_DEVICE RowPlace place_of(const SplitWorkTile& work_tile, const Info<Config>& info, int key,
                               int position) const {
    if constexpr (has_key_lists<Config>) {
      return Config::Lists::template place_of<Config>(params_, info.owner, work_tile.kv_head, position);
    } else {
      return PagedKv<Config>(params_).place(work_tile.batch, work_tile.kv_head, work_tile.kv.begin + key);
    }
  }

  const int warp_;
};

}  // namespace jit
