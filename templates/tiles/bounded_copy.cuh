// Copies of a panel of a tile by TMA, in a box that ends with its sequence.
#pragma once

#include "base/tensor_map.cuh"
#include "ptx/bulk_tensor.cuh"
#include "tiles/bounded_box.cuh"

namespace jit {

/// The two maps of a tensor that is copied in bounded boxes of so many rows.
struct BoundedMap {
  const TensorMap& whole;  ///< for boxes that are there, or not at all
  const TensorMap& part;   ///< for others
  int rows;
};

/// Starts the copy to a panel of a tile. By one thread.
__device__ __forceinline__ void load_panel(unsigned panel, const BoundedMap& map, unsigned full, int column,
                                           const BoundedBox& box) {
  if (box.missing == 0) {
    cp_async_bulk_tensor_load(panel, map.whole, full, column, box.first, box.head, box.batch);
  } else {
    cp_async_bulk_tensor_load(panel, map.part, full, column, box.missing, box.head,
                              box.first + map.rows - box.missing, box.batch);
  }
}

/// Starts the copy of a panel of rows to the tensor. By one thread.
__device__ __forceinline__ void store_panel(unsigned panel, const BoundedMap& map, int column,
                                            const BoundedBox& box) {
  if (!is_there(box)) return;
  if (box.missing == 0) {
    cp_async_bulk_tensor_store(map.whole, panel, column, box.first, box.head, box.batch);
  } else {
    cp_async_bulk_tensor_store(map.part, panel, column, box.missing, box.head,
                               box.first + map.rows - box.missing, box.batch);
  }
}

}  // namespace jit
