// Rows of k that a list of tokens names, gathered into a tile in shared memory.
#pragma once

#include "base/prelude.cuh"
#include "tiles/shared_words.cuh"
#include "tiles/tile_copy.cuh"

namespace jit {

/// The list of a token.
struct TokenList {
  const int* entries;
  int count;  ///< entries that count
  int rows;   ///< of k; entries below 0 and from here on name none

  JIT_DEVICE int row(int entry) const {
    const int row = entry < count ? entries[entry] : -1;
    return row < rows ? row : -1;  // mutate: RowsBehindTheKeys
  }
};

/// Entries that count of a list with `entries`; `counts` may be null.
JIT_DEVICE int listed_count(const int* counts, long long at, int entries) {
  return counts == nullptr ? entries : maximum(0, minimum(entries, counts[at]));
}

/// Leaves at `places` in shared memory the row that each of a tile's entries names, below 0 for none.
template <class Tile, int threads>
JIT_DEVICE void find_listed_rows(unsigned places, const TokenList& list, int first) {
  for (int i = static_cast<int>(threadIdx.x); i < Tile::rows; i += threads)
    store_shared(places + static_cast<unsigned>(i * 4), list.row(first + i));
}

/// Starts the copy of these rows; rows of no key become zeros. `k` is row 0.
template <class Tile, int columns, int threads, class Element>
JIT_DEVICE void copy_listed_rows(unsigned tile, unsigned places, const Element* k, long long row_stride) {
  copy_rows<Tile, columns, threads, chunk_bytes>(tile, [&](int i) {
    const int row = load_shared(places + static_cast<unsigned>(minimum(i, Tile::rows - 1) * 4));
    return row >= 0 ? k + row * row_stride : nullptr;
  });
}

}  // namespace jit
