// The place of a 16-byte chunk of a swizzled tile in shared memory. Compiled by the host (for tests) and by NVRTC.
#pragma once

#include "base/element.cuh"
#include "base/host_device.cuh"

namespace jit {

inline constexpr int bank_chunks = 8;  ///< chunks that the 32 banks of 4 bytes serve at once

/// The largest power of two that divides `chunks`, at most the number of chunks that the banks serve at once.
JIT_HOST_DEVICE constexpr int swizzle_span(int chunks) {
  int span = 1;
  while (span < bank_chunks && chunks % (2 * span) == 0) span *= 2;
  return span;
}

/// The number that chunks of row `row` are XORed with, in a tile with `chunks` chunks a row.
/// ldmatrix reads one chunk column of eight rows at once. Row r starts at bank group r·chunks mod 8, so those
/// rows already differ in 8/span ways; an XOR of the chunk with the remaining bits of the row makes all eight
/// differ, and because span divides the row length the result stays inside the row: no padding, for any
/// head_dim.
JIT_HOST_DEVICE constexpr int swizzle_key(int row, int chunks) {
  const int span = swizzle_span(chunks);
  return (row / (bank_chunks / span)) % span;
}

/// A tile in shared memory: `rows` rows of `chunks` chunks, row-major.
template <int tile_rows, int tile_chunks>
struct SmemTile {
  static constexpr int rows = tile_rows;
  static constexpr int chunks = tile_chunks;
  static constexpr int row_bytes = chunks * chunk_bytes;
  static constexpr int bytes = rows * row_bytes;

  static constexpr int span = swizzle_span(chunks);

  /// Byte offset of chunk `chunk` of row `row` from the start of the tile.
  JIT_HOST_DEVICE static constexpr int offset(int row, int chunk) {
    return row * row_bytes + (chunk ^ key(row)) * chunk_bytes;
  }

  /// The address `rows` and `chunks` further on than `address`, in one or two instructions: a lane finds its
  /// first address by `offset` and all others by this, with steps known at compile time. Requires that the
  /// steps carry nothing over: the bits of `rows` lie above those of the first row within eight (or `rows` is
  /// a multiple of 8), the bits of `chunks` above those of the first chunk, and the tile starts at a multiple
  /// of 128 bytes. Then row and chunk add as they XOR.
  JIT_HOST_DEVICE static constexpr unsigned advance(unsigned address, int rows, int chunks_on) {
    const int flipped = ((chunks_on % span) ^ key(rows)) * chunk_bytes;
    return (address ^ static_cast<unsigned>(flipped)) +
           static_cast<unsigned>(rows * row_bytes + chunks_on / span * span * chunk_bytes);
  }

 private:
  JIT_HOST_DEVICE static constexpr int key(int row) { return swizzle_key(row, chunks); }
};

}  // namespace jit
