// Copies of tiles by TMA, a box for each panel, and where pages are a box for each piece of a page. A Traits is that of
// a kernel family: its Config, and in how many boxes of how many rows a tile of keys is copied.
#pragma once

#include "base/params.cuh"
#include "base/prelude.cuh"
#include "mainloop/tensor_maps.cuh"
#include "problem/masks.cuh"
#include "problem/paged_kv.cuh"
#include "problem/sequences.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/mbarrier.cuh"
#include "scheduling/block_pair.cuh"
#include "scheduling/tile_sequences.cuh"
#include "tiles/bounded_box.cuh"
#include "tiles/box_copy.cuh"
#include "tiles/pair_copy.cuh"
#include "tiles/panel_tile.cuh"

namespace jit {

/// The maps of q, k, v and o.
template <class Traits>
JIT_DEVICE decltype(auto) map_of(const TensorMaps& maps, const TensorMap& whole,
                                 TensorMap SequenceMaps::*part, int rows) {
  if constexpr (Traits::has_lengths) {
    return BoundedMap{whole, static_cast<const SequenceMaps&>(maps).*part, rows};
  } else {
    return whole;
  }
}
/// Maps for loads, of which each block of a pair starts those of its part.
template <class Traits>
JIT_DEVICE decltype(auto) load_map_of(const TensorMaps& maps, const TensorMap& whole,
                                      TensorMap SequenceMaps::*part, int rows) {
  if constexpr (pairs_blocks<typename Traits::Config>) {
    return PairMap<decltype(map_of<Traits>(maps, whole, part, rows))>{
        map_of<Traits>(maps, whole, part, rows)};
  } else {
    return map_of<Traits>(maps, whole, part, rows);
  }
}
template <class Traits>
JIT_DEVICE decltype(auto) q_map(const TensorMaps& maps) {
  return load_map_of<Traits>(maps, maps.q, &SequenceMaps::bounded_q, rows_per_warpgroup);
}
template <class Traits>
JIT_DEVICE decltype(auto) k_map(const TensorMaps& maps) {
  return load_map_of<Traits>(maps, maps.k, &SequenceMaps::bounded_k, Traits::box_rows);
}
template <class Traits>
JIT_DEVICE decltype(auto) v_map(const TensorMaps& maps) {
  return load_map_of<Traits>(maps, maps.v, &SequenceMaps::bounded_v, Traits::box_rows);
}
template <class Traits>
JIT_DEVICE decltype(auto) o_map(const TensorMaps& maps) {
  return map_of<Traits>(maps, maps.o, &SequenceMaps::bounded_o, rows_per_warpgroup);
}

/// Where the rows of q and o of a consumer lie, of which `query` is the first.
template <class Config>
JIT_DEVICE RowPlace query_box(const AttentionParams&, const WorkTile& work, int query) {
  return {query, work.head, work.batch};
}
template <class Config>
JIT_DEVICE BoundedBox query_box(const AttentionParams&, const SequenceTile& work, int query) {
  const bool is_varlen = Config::sequences_q == SequenceKind::varlen;
  // mutate: BoxesOfQueriesDoNotEnd
  return bounded_box(rows_per_warpgroup, work.q.begin + query, work.q.length - query, work.head,
                     is_varlen ? 0 : work.batch);
}

/// Starts the copies of all panels of a tile, and lets the barrier wait. By one thread.
template <class Tile, class Map, class Place>
JIT_DEVICE void load_tile_by_lane(unsigned tile, const Map& map, unsigned full, const Place& place) {
  expect_bytes(map, full, Tile::bytes);  // mutate: AnnouncesTooFewBytes
  load_tile<Tile>(tile, map, full, place);
}

/// Where the lane's box of a tile of keys or values lies, which begins with key `k_begin` of its sequence: each lane
/// knows one. A box lies in one page; without pages there is one. Page -1 has the box of a lane without keys. `seen()`
/// is the range of keys that queries see, asked where arrays are checked.
template <class Traits, class Seen>
JIT_DEVICE RowPlace lane_box(const AttentionParams& params, int batch, int kv_head, const Sequence& kv,
                             int k_begin, Seen seen) {
  using Paged = PagedKv<typename Traits::Config>;
  const Paged paged(params);
  const int key = k_begin + lane_id() * Traits::box_rows, row = kv.begin + key;  // mutate: KeyOfLane
  if constexpr (Paged::has_pages) {
    const bool has_keys = lane_id() < Traits::boxes && key < kv.length;
    const int page = has_keys ? paged.page(batch, row) : -1;
    if (has_keys) paged.expect(batch, kv, key, Traits::box_rows, page, seen);
    return Paged::place_in(page, kv_head, row);
  } else {
    return paged.place(batch, kv_head, row);
  }
}

/// Where a tile of keys or values of a work tile lies that begins with key `k_begin` of its sequence. In bounded boxes
/// it is where the lane's box does: where there is no such page the box is not there.
template <class Traits>
JIT_DEVICE RowPlace key_box(const AttentionParams&, const WorkTile& work, int k_begin) {
  const int row = Traits::boxes > 1 ? lane_id() * Traits::box_rows : 0;
  return {k_begin + row, work.head / Traits::Config::gqa_ratio, work.batch};
}
template <class Traits>
JIT_DEVICE BoundedBox key_box(const AttentionParams& params, const SequenceTile& work, int k_begin) {
  using Config = typename Traits::Config;
  const RowPlace place =
      lane_box<Traits>(params, work.batch, work.head / Config::gqa_ratio, work.kv, k_begin, [&] {
        const typename Config::Mask mask(context_of<Config>(params, work));
        const int q_end = minimum(work.q_begin + Config::tile_q, work.q.length);
        return lane_key_range(mask, work.kv.length, work.q_begin, q_end);
      });
  const int key = k_begin + lane_id() * Traits::box_rows;
  const bool exists = PagedKv<Config>(params).exists(place.batch);
  // mutate: BoxesOfKeysDoNotEnd
  return bounded_box(Traits::box_rows, place.seq, exists ? work.kv.length - key : 0, place.head,
                     exists ? place.batch : 0);
}

/// The box that another lane of the warp knows, of the same head.
JIT_DEVICE RowPlace box_of_lane(const RowPlace& box, int lane) {
  return {__shfl_sync(full_warp, box.seq, lane), box.head, __shfl_sync(full_warp, box.batch, lane)};
}
JIT_DEVICE BoundedBox box_of_lane(const BoundedBox& box, int lane) {
  return {.first = __shfl_sync(full_warp, box.first, lane),
          .missing = __shfl_sync(full_warp, box.missing, lane),
          .head = box.head,
          .batch = __shfl_sync(full_warp, box.batch, lane)};
}

/// Starts the copies of a tile of keys or values, whose bytes count at the barrier `full`. By a whole warp: all panels
/// of all boxes are copied side by side. A warp takes about 110 cycles to start a copy, and those of one lane took
/// longer. `first_column` is that of the tensor, `first_box` that of a tile that has only some.
template <class Traits, class Tile, class Map, class Box>
JIT_DEVICE void start_boxes(unsigned tile, const Map& map, unsigned full, const Box& box,
                            int first_column = 0, int first_box = 0) {
  constexpr int boxes = Tile::rows / Traits::box_rows;
#pragma unroll
  for (int first = 0; first < boxes * Tile::panels; first += warp_size) {
    const int index = (first + lane_id()) / Tile::panels, panel = (first + lane_id()) % Tile::panels;
    const Box own = box_of_lane(box, first_box + index);
    if (index >= boxes) break;
    // mutate: BoxesBesideTheirPlaces
    load_panel(tile + panel * Tile::panel_bytes + index * Traits::box_rows * Tile::row_bytes, map, full,
               first_column + panel * Tile::columns, own);
  }
}

/// Asks that a tile comes to the L2 cache: `panels` panels of `columns` columns. By a whole warp.
template <class Traits, int panels, int columns>
JIT_DEVICE void prefetch_boxes(const TensorMap& map, const RowPlace& box) {
#pragma unroll
  for (int first = 0; first < Traits::boxes * panels; first += warp_size) {
    const int index = (first + lane_id()) / panels, panel = (first + lane_id()) % panels;
    const RowPlace own = box_of_lane(box, index);
    if (index >= Traits::boxes) break;
    prefetch_bulk_tensor(map, panel * columns, own.seq, own.head, own.batch);
  }
}

/// Starts them, and lets the barrier wait.
template <class Traits, class Tile, class Map, class Box>
JIT_DEVICE void load_boxes(unsigned tile, const Map& map, unsigned full, const Box& box) {
  if (lane_id() == 0) expect_bytes(map, full, Tile::bytes);
  __syncwarp();
  start_boxes<Traits, Tile>(tile, map, full, box);
}

/// Loads a tile that may be one box, which one lane copies then.
template <class Traits, class Tile, class Map, class Box>
JIT_DEVICE void load_key_tile(unsigned tile, const Map& map, unsigned full, const Box& box) {
  if constexpr (Traits::boxes > 1 || Traits::copies_by_lanes) {
    load_boxes<Traits, Tile>(tile, map, full, box);
  } else {
    if (lane_id() == 0) load_tile_by_lane<Tile>(tile, map, full, box);
  }
}

}  // namespace jit
