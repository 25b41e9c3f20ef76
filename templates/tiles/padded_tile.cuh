// Tiles whose rows lie a chunk further apart than they are long. Compiled by the host and by NVRTC.
#pragma once

#include "base/element.cuh"
#include "base/host_device.cuh"

namespace jit {

/// A tile in shared memory: `rows` rows of `chunks` chunks and one for padding. An even number of chunks and one more:
/// eight rows that ldmatrix reads begin at eight different groups of banks. For copies of whole rows, which leave no
/// room for a swizzle.
template <int tile_rows, int tile_chunks>
struct PaddedTile {
  static_assert(tile_chunks % 2 == 0, "rows of an odd number of chunks need no padding");
  static constexpr int rows = tile_rows;
  static constexpr int chunks = tile_chunks;
  static constexpr int row_bytes = (chunks + 1) * chunk_bytes;
  static constexpr int bytes = rows * row_bytes;

  /// Byte offset of chunk `chunk` of row `row` from the start of the tile.
  JIT_HOST_DEVICE static constexpr int offset(int row, int chunk) { return row * row_bytes + chunk * chunk_bytes; }

  /// The address `rows` and `chunks` further on than `address`.
  JIT_HOST_DEVICE static constexpr unsigned advance(unsigned address, int rows, int chunks_on) {
    return address + static_cast<unsigned>(offset(rows, chunks_on));
  }
};

}  // namespace jit
