// A lane's words of 16 rows of a tile of 8-bit or 4-bit numbers, by ldmatrix, two chunks of each row at a time.
#pragma once

#include "base/prelude.cuh"
#include "ptx/ldmatrix.cuh"

namespace jit {

/// Which words of two chunks belong together: of rows that the k dimension runs along (K), or across (V, transposed).
enum class ChunkRows { along, across };

/// Calls multiply(chunk, first, second) for each chunk with the words of its first and second 8 rows. `both` and `singles` are the
/// lane's addresses in row 0 of the tile for two chunks and for one; `numbers`, of 8 rows each, go with the chunk.
template <class Tile, int chunks, ChunkRows rows, class Numbers, class Multiply>
JIT_DEVICE void for_each_chunk(unsigned both, unsigned singles, int row, Numbers (&numbers)[2],
                               const Multiply& multiply) {
  constexpr int even_chunks = chunks / 2 * 2, second = rows == ChunkRows::along ? 2 : 1;
  const auto go_to = [&](int chunk) {
    numbers[0].go_to(chunk);
    numbers[1].go_to(chunk);
  };
#pragma unroll
  for (int chunk = 0; chunk < even_chunks; chunk += 2) {
    unsigned words[4];
    const unsigned address = Tile::advance(both, row, chunk);
    if constexpr (rows == ChunkRows::along) {
      ldmatrix_x4(words, address);
    } else {
      ldmatrix_x4_trans(words, address);
    }
    go_to(chunk);
    multiply(chunk, words[0], words[second]);
    multiply(chunk + 1, words[3 - second], words[3]);
  }
  if constexpr (even_chunks < chunks) {
    unsigned words[2];
    const unsigned address = Tile::advance(singles, row, even_chunks);
    if constexpr (rows == ChunkRows::along) {
      ldmatrix_x2(words[0], words[1], address);
    } else {
      ldmatrix_x2_trans(words[0], words[1], address);
    }
    go_to(even_chunks);
    multiply(even_chunks, words[0], words[1]);
  }
}

}  // namespace jit
