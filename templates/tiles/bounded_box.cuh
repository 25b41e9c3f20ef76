// Boxes that end with their sequence. Compiled by the host, too.
//
// TMA reads zeros, and writes nothing, beyond the end of a tensor. Sequences that lie behind one another in a tensor, or
// end within a page, have no such end, so a map makes one for each box. It counts rows twice, by two dimensions with the
// stride of a row. The first, `missing`, is as long as a box, and its end is the sequence's: a box of n rows of which v
// are there begins at n - v. The second, `row`, takes it from there to its rows: it begins at the first one plus v, where
// the map's address lies n rows before the tensor. Where v = n nothing is cut off.
//
//     dimensions    (head_dim, missing, heads, row, batch)
//     sizes         (head_dim, n, heads, rows + 1, batch), where pages are batch entries, and ragged sequences are one
//
// Triton's ragged descriptors (tools/ragged_tma.py) end boxes so, by dimensions of 2^30 rows and 64-bit addresses that
// wrap around; the shifted address needs a dimension less, which is that of pages here.
#pragma once

#include "base/host_device.cuh"

namespace jit {

/// Where a box begins, beside its place along head_dim.
struct BoundedBox {
  int missing;  ///< rows of the box that are not there
  int head;
  int row;  ///< behind its last row that is there
  int batch;
};

/// The box of `box_rows` rows from `first` on, of which `rows` are there: any number.
JIT_HOST_DEVICE constexpr BoundedBox bounded_box(int box_rows, int first, int rows, int head, int batch) {
  const int there = rows < 0 ? 0 : rows < box_rows ? rows : box_rows;
  return {.missing = box_rows - there, .head = head, .row = first + there, .batch = batch};
}

/// Rows of the boxes in which TMA copies a tile of keys: all, or those that lie in one page. `page_size` is 0 where
/// there are no pages.
JIT_HOST_DEVICE constexpr int box_rows(int tile_kv, int page_size) {
  int rows = tile_kv;
  for (int rest = page_size; rest != 0;) {  // the greatest common divisor
    const int next = rows % rest;
    rows = rest;
    rest = next;
  }
  return rows;
}

/// A box of fewer rows takes TMA as long as one of these, and begins within a swizzle's pattern.
inline constexpr int least_box_rows = 8;

}  // namespace jit
