// Which tile of varlen sequences is at a place of their list.
#pragma once

#include "base/prelude.cuh"
#include "base/varlen_tiles.cuh"

namespace jit {

/// A tile of one sequence.
struct VarlenPlace {
  int batch;
  int first_row;  ///< none of the sequence's where the place is nobody's: negative, or behind its last one
};

/// Looks for the last sequence that begins at `place` or before it, 32 at a time. `begin(b)` is the first row of
/// sequence b; where these do not ascend, any place may be nobody's. By whole warps, whose lanes get the same answer.
template <int rows, class Begin>
__device__ __forceinline__ VarlenPlace varlen_place(int place, int batch, const Begin& begin) {
  int first = 0, end = batch;  // it is one of these
#pragma unroll 1
  while (end - first > 1) {
    const int step = (end - first + warp_size - 1) / warp_size;
    const long long probe = first + static_cast<long long>(lane_id()) * step;
    const int own = static_cast<int>(minimum<long long>(probe, end - 1));
    // mutate: ThePlaceInTheSequenceBefore
    const bool is_before = probe < end && first_varlen_tile(own, begin(own), rows) <= place;
    const unsigned before = __ballot_sync(full_warp, is_before);
    if (before != 0) first += (warp_size - 1 - __clz(static_cast<int>(before))) * step;
    end = minimum(end, first + step);
  }
  const long long tile = place - first_varlen_tile(first, begin(first), rows);
  return {first, static_cast<int>(tile * rows)};
}

}  // namespace jit
