// Tiles of keys that both blocks of a cluster, a pair, multiply: each reads half of their boxes from the L2 cache, and TMA
// writes these to both.
#pragma once

#include "base/prelude.cuh"
#include "mainloop/tile_boxes.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/cluster.cuh"

namespace jit {

/// Whether a block copies keys for the other block of its pair, too.
template <class Traits>
inline constexpr bool copies_for_both = requires {
  requires Traits::copies_for_both;
};

/// Starts the copies of every other box of a tile to both blocks, at the same place, where their bytes count at the same
/// barrier `full`: each block waits for a whole tile, and has released the stage in both. Boxes take turns, by panels and
/// then by rows; with an odd number of them, blocks take turns too, by `turn`. By a whole warp.
template <class Traits, class Tile>
JIT_DEVICE void start_boxes_for_both(unsigned tile, const TensorMap& map, unsigned full, const RowPlace& box,
                                     int first_column, int turn) {
  constexpr int boxes = Tile::rows / Traits::box_rows;
  const int own_turn = cluster_rank() ^ (boxes * Tile::panels % 2 == 0 ? 0 : turn);
#pragma unroll
  for (int first = 0; first < boxes * Tile::panels; first += warp_size) {
    const int copy = first + lane_id(), index = copy / Tile::panels, panel = copy % Tile::panels;
    const RowPlace own = box_of_lane(box, index);
    if (index >= boxes) break;
    if (copy % 2 != own_turn) continue;  // mutate: BoxesOfTheOtherBlock
    cp_async_bulk_tensor_load_to_blocks(
        tile + panel * Tile::panel_bytes + index * Traits::box_rows * Tile::row_bytes, map, full,
        first_column + panel * Tile::columns, own.seq, own.head, own.batch, 0b11);
  }
}

}  // namespace jit
