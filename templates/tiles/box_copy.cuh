// TMA copies of tiles, panel by panel: from a row on, or in a box that ends with its sequence. By one thread.
#pragma once

#include "base/tensor_strides.cuh"
#include "ptx/bulk_copy.cuh"
#include "ptx/mbarrier.cuh"
#include "tiles/bounded_box.cuh"

namespace jit {

/// The two maps of a tensor that is copied in bounded boxes of so many rows.
struct BoundedMap {
  const TensorMap& whole;  ///< for boxes of which all rows exist, or none
  const TensorMap& part;   ///< for all other boxes
  int rows;
};

/// Starts the copy to a panel of a tile, from row `first` on or from `box`; completes at barrier `full`.
JIT_DEVICE void load_panel(unsigned panel, const TensorMap& map, unsigned full, int column,
                           const RowPlace& first) {
  cp_async_bulk_tensor_load(panel, map, full, column, first.seq, first.head, first.batch);
}
JIT_DEVICE void load_panel(unsigned panel, const BoundedMap& map, unsigned full, int column,
                           const BoundedBox& box) {
  if (box.missing == 0) {
    cp_async_bulk_tensor_load(panel, map.whole, full, column, box.first, box.head, box.batch);
  } else {
    cp_async_bulk_tensor_load(panel, map.part, full, column, box.missing, box.head,
                              box.first + map.rows - box.missing, box.batch);
  }
}

/// Arrives at a barrier and announces the bytes of copies.
template <class Map>
JIT_DEVICE void expect_bytes(const Map&, unsigned full, int bytes) {
  mbarrier_arrive_expect_tx(full, bytes);
}

/// Starts the copy of a panel to the tensor.
JIT_DEVICE void store_panel(unsigned panel, const TensorMap& map, int column, const RowPlace& first) {
  cp_async_bulk_tensor_store(map, panel, column, first.seq, first.head, first.batch);
}
JIT_DEVICE void store_panel(unsigned panel, const BoundedMap& map, int column, const BoundedBox& box) {
  if (!is_there(box)) return;
  if (box.missing == 0) {
    cp_async_bulk_tensor_store(map.whole, panel, column, box.first, box.head, box.batch);
  } else {
    cp_async_bulk_tensor_store(map.part, panel, column, box.missing, box.head,
                               box.first + map.rows - box.missing, box.batch);
  }
}

/// Starts the copies of all panels of a tile, whose first column is `first_column` of the tensor.
template <class Tile, class Map, class Place>
JIT_DEVICE void load_tile(unsigned tile, const Map& map, unsigned full, const Place& place,
                          int first_column = 0) {
#pragma unroll
  for (int panel = 0; panel < Tile::panels; ++panel)
    load_panel(tile + panel * Tile::panel_bytes, map, full, first_column + panel * Tile::columns, place);
}
template <class Tile, class Map, class Place>
JIT_DEVICE void store_tile(unsigned tile, const Map& map, const Place& place) {
#pragma unroll
  for (int panel = 0; panel < Tile::panels; ++panel)
    store_panel(tile + panel * Tile::panel_bytes, map, panel * Tile::columns, place);
}

}  // namespace jit
