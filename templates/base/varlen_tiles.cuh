// Tiles of varlen sequences, whose number the host does not know. Host and NVRTC compile this file.
//
// Tiles have places in a list with more places than tiles: the first tile of sequence b has place begin / rows + b, where begin
// is its first row among the rows of all sequences. So each sequence has enough places, as ceil(n / rows) is at most
// floor((begin + n) / rows) + 1 − floor(begin / rows), and the number of places follows from total and batch. A sequence's
// first place follows from its first row alone (flash-attention pads its sequences alike).
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
