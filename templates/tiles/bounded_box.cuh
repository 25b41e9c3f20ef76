// Boxes that end with their sequence. The host compiles this file, too.
//
// TMA reads zeros, and writes nothing, beyond the end of a tensor. Consecutive sequences of a tensor, or sequences that
// end within a page, have no such end. A second map of the same tensor creates one for a box that exists in part. It
// indexes rows by two dimensions with the stride of a row. The first, `missing`, is as long as a box and ends with the
// sequence: a box of n rows of which v exist begins at n - v. The second, `row`, begins at the box's first row plus v,
// because the map's address lies n rows before the tensor.
//     dimensions    (head_dim, missing, heads, row, batch)
//     sizes         (head_dim, n, heads, rows + 1, batch), where pages are batch entries, and varlen sequences are one
//
// A box without existing rows must be read by the first map: the second one's address lies before the tensor. It must
// not be written: a store of a box that lies wholly before a tensor is an illegal instruction on an H200.
//
// Triton's varlen descriptors (tools/varlen_tma.py) use dimensions of 2^30 rows and 64-bit addresses that wrap around;
// the shifted address needs one dimension less, which pages use here.
#pragma once

#include "base/host_device.cuh"

namespace jit {

/// Coordinates of a row in a tensor map of (head_dim, seqlen, heads, batch).
struct RowPlace {
  int seq;
  int head;
  int batch;
};

/// Coordinates of a box.
struct BoundedBox {
  int first;    ///< first row
  int missing;  ///< rows at its end that do not exist: fewer than all; 0 if all exist, or none
  int head;
  int batch;
};

/// The first row of a box without existing rows: after the last row of any tensor.
inline constexpr int no_row = 0x7fffff00;

/// The box of `box_rows` rows from `first` on, of which `rows` (any number) exist.
JIT_HOST_DEVICE constexpr BoundedBox bounded_box(int box_rows, int first, int rows, int head, int batch) {
  if (rows <= 0) return {.first = no_row, .missing = 0, .head = head, .batch = batch};
  return {.first = first, .missing = rows < box_rows ? box_rows - rows : 0, .head = head, .batch = batch};
}

/// Whether any row of the box exists.
JIT_HOST_DEVICE constexpr bool is_there(const BoundedBox& box) { return box.first != no_row; }

/// Rows of the boxes in which TMA copies a tile of keys: all of the tile, or as many as lie in one page. `page_size` is
/// 0 without pages.
JIT_HOST_DEVICE constexpr int box_rows(int tile_kv, int page_size) {
  int rows = tile_kv;
  for (int rest = page_size; rest != 0;) {  // the greatest common divisor
    const int next = rows % rest;
    rows = rest;
    rest = next;
  }
  return rows;
}

/// The fewest rows of a box: a smaller one takes TMA as long, and would begin within a swizzle's pattern.
inline constexpr int least_box_rows = 8;

}  // namespace jit
