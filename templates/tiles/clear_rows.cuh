// Rows of a tile that are not the sequence's.
#pragma once

#include "base/prelude.cuh"
#include "tiles/shared_words.cuh"

namespace jit {

/// Makes zeros of the first `chunks` chunks of the rows of a tile of values from row `first` on, which are not the
/// sequence's: 0 times what lies there may not be 0. By so many threads, of which this is `thread`, that meet behind
/// it.
template <class Tile, int chunks, int threads>
__device__ __forceinline__ void clear_rows(unsigned tile, int first, int thread) {
#pragma unroll 1
  for (int i = first * chunks + thread; i < Tile::rows * chunks; i += threads)
    clear_shared_chunk(Tile::chunk_address(tile, i / chunks, i % chunks));
}

}  // namespace jit
