// Boxes that end with their sequence. The host compiles this file, too.
//
// TMA reads zeros, and writes nothing, beyond the end of a tensor. Sequences that lie behind one another in a tensor, or
// end within a page, have no such end. A second map of the same tensor makes one for a box that is there in part. It
// counts rows twice, by two dimensions with the stride of a row. The first, `missing`, is as long as a box, and its end is
// the sequence's: a box of n rows of which v are there begins at n - v. The second, `row`, takes it from there to its
// rows: it begins at the first one plus v, where the map's address lies n rows before the tensor.
//
//     dimensions    (head_dim, missing, heads, row, batch)
//     sizes         (head_dim, n, heads, rows + 1, batch), where pages are batch entries, and varlen sequences are one
//
// Boxes of which nothing is there must not be read by this map, but by the other: its address is no tensor's. They must
// not be written at all: a store of a box that lies wholly before a tensor is an illegal instruction on an H200.
//
// Triton's varlen descriptors (tools/varlen_tma.py) end boxes so, by dimensions of 2^30 rows and 64-bit addresses that
// wrap around; the shifted address needs a dimension less, which is that of pages here.
#pragma once

#include "base/host_device.cuh"

namespace jit {

/// A row as TMA counts, which takes a tensor of (head_dim, seqlen, heads, batch).
struct RowPlace {
  int seq;
  int head;
  int batch;
};

/// Where a box lies.
struct BoundedBox {
  int first;    ///< row
  int missing;  ///< rows at its end that are not there: fewer than it has; 0 where all are, or none is
  int head;
  int batch;
};

/// Where a box lies of which nothing is there: behind the last row of any tensor.
inline constexpr int no_row = 0x7fffff00;

/// The box of `box_rows` rows from `first` on, of which `rows` are there: any number.
JIT_HOST_DEVICE constexpr BoundedBox bounded_box(int box_rows, int first, int rows, int head, int batch) {
  if (rows <= 0) return {.first = no_row, .missing = 0, .head = head, .batch = batch};
  return {.first = first, .missing = rows < box_rows ? box_rows - rows : 0, .head = head, .batch = batch};
}

/// Whether any of its rows is there.
JIT_HOST_DEVICE constexpr bool is_there(const BoundedBox& box) { return box.first != no_row; }

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
