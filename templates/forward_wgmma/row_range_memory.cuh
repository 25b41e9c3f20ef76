// What the key producer remembers of a mask that is a text whose queries see keys without a gap: the text is asked
// once for each query of a work tile, and never for a tile of keys.
#pragma once

#include "base/prelude.cuh"
#include "problem/functor.cuh"
#include "problem/masks.cuh"
#include "ptx/warpgroup.cuh"

namespace jit::forward_wgmma {

/// Whether it is dear to ask for a row_range, as it is not of built-in masks.
template <class Mask>
concept is_row_range_text = has_row_range<Mask> && __is_base_of(TextMask, Mask);

/// By one warp. All is of the queries that `key_range` was last called with.
template <class Mask>
class RowRangeMemory {
 public:
  __device__ __forceinline__ KeyRange key_range(const Mask& mask, int q_begin, int q_end) {
    const KeyRange nothing{mask.seqlen_kv, 0}, everything{0, mask.seqlen_kv};
    KeyRange seen = nothing;
    seen_by_all_ = everything;
    of_group_ = nothing;
#pragma unroll 1
    for (int first = q_begin, group = 0; first < q_end; first += rows_per_warpgroup, ++group) {
      const int end = minimum(first + rows_per_warpgroup, q_end);
      KeyRange by_some = nothing, by_all = everything;
#pragma unroll 1
      for (int q = first + lane_id(); q < end; q += warp_size) {
        const KeyRange row = mask.row_range(q);
        by_all = Both::of_ranges(by_all, row);  // mutate: SeenByTheLastRowsOfAWarpgroup
        if (row.begin < row.end) by_some = Either::of_ranges(by_some, row);
      }
      by_some = {__reduce_min_sync(full_warp, by_some.begin), __reduce_max_sync(full_warp, by_some.end)};
      by_all = {__reduce_max_sync(full_warp, by_all.begin), __reduce_min_sync(full_warp, by_all.end)};
      if (lane_id() == group) of_group_ = by_some;  // mutate: KeysOfTheFirstWarpgroup
      seen = Either::of_ranges(seen, by_some);
      seen_by_all_ = Both::of_ranges(seen_by_all_, by_all);
    }
    return seen;
  }

  /// Of a tile within that range, of these queries or some of them.
  __device__ __forceinline__ TileClass classify(const ScoreTile& tile) const {
    const bool is_full = tile.k_begin >= seen_by_all_.begin && tile.k_end <= seen_by_all_.end;
    return is_full ? TileClass::full : TileClass::partial;
  }

  /// The keys that the queries of a warpgroup see.
  __device__ __forceinline__ KeyRange of_group(int group) const {
    return {__shfl_sync(full_warp, of_group_.begin, group), __shfl_sync(full_warp, of_group_.end, group)};
  }

 private:
  KeyRange seen_by_all_{0, 0};
  KeyRange of_group_{0, 0};  // lane i has that of warpgroup i
};

}  // namespace jit::forward_wgmma
