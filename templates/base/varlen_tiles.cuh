// Tiles of varlen sequences, of which nobody knows how many there are. Compiled by the host and by NVRTC.
//
// Tiles lie in a list with more places than tiles: the first tile of sequence b has place begin / rows + b, where begin
// is its first row among those of all sequences. So has each sequence room for its own, as ceil(n / rows) is at most
// floor((begin + n) / rows) + 1 − floor(begin / rows), and the places of all are as many as total and batch say. Where
// a sequence begins in the list follows from where it begins in memory (flash-attention pads its sequences alike).
#pragma once

#include "base/host_device.cuh"

namespace jit {

/// The place of a sequence's first tile of `rows` rows.
JIT_HOST_DEVICE constexpr long long first_varlen_tile(int batch, int begin, int rows) {
  return static_cast<long long>(begin / rows) + batch;  // mutate: APlaceFewerForEachSequence
}

/// How many places there are.
JIT_HOST_DEVICE constexpr long long varlen_tiles(int batch, int total, int rows) {
  return first_varlen_tile(batch, total, rows);
}

}  // namespace jit
