// P of 8 bits: how scores in accumulators become A fragments of the second product.
#pragma once

#include "base/prelude.cuh"
#include "ptx/fp8.cuh"

namespace jit {

/// Word `i` of what the next function packs.
template <class Scores>
__device__ __forceinline__ unsigned pack_e4m3_word(const Scores& scores, int m, int step, int i) {
  const int r = 2 * m + i % 2, n = 4 * step + i / 2 * 2;  // mutate: ProbabilitiesOfNeighboursExchanged
  return pack_e4m3(scores.at(r, n, 0), scores.at(r, n, 1), scores.at(r, n + 1, 0), scores.at(r, n + 1, 1));
}

/// Row block `m` and the 32 columns from 32 · `step` on, rounded to e4m3: an A fragment of wgmma and of mma.sync whose
/// columns stand in the order in which lanes have them, column 2t + (e mod 2) + 8 ⌊e / 2⌋ of each 16 at place 4t + e.
template <class Scores>
__device__ __forceinline__ void pack_e4m3_step(const Scores& scores, unsigned (&a)[4], int m, int step) {
#pragma unroll
  for (int i = 0; i < 4; ++i) a[i] = pack_e4m3_word(scores, m, step, i);
}

/// The same with the columns in their own order, as a row of V has them that memory holds: place 4t + e of each 16 is
/// column 4t + e, of which a lane has two and takes two of a neighbour's. Of two blocks of 8 columns, the four lanes of a
/// row have pairs
///
///     lane        0      1      2      3                         0          1          2            3
///     block 0    0 1    2 3    4 5    6 7         ──▶         0 1 2 3    4 5 6 7    8 9 10 11    12 13 14 15
///     block 1    8 9   10 11  12 13  14 15
///
/// A word has the pairs of a lane of two steps of 16. Each lane sends each of its two words once: even lanes that of
/// block 0 first, odd ones that of block 1.
template <class Scores>
__device__ __forceinline__ void pack_e4m3_step_in_order(const Scores& scores, unsigned (&a)[4], int m,
                                                        int step) {
  const int lane = lane_id(), place = lane % 4;
  const bool is_odd = lane % 2 != 0, is_upper = place >= 2;
  // 0, 2, 1, 3, and then their neighbours.
  // mutate: PairsOfOtherLanes
  const int first_source = lane - place + place / 2 + place % 2 * 2, second_source = first_source ^ 1;
  const unsigned low = is_upper ? 0x1054 : 0x5410, high = is_upper ? 0x3276 : 0x7632;  // mutate: UpperLanes
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int r = 2 * m + i, n = 4 * step;
    const auto word = [&](int block) {
      return pack_e4m3(scores.at(r, n + block, 0), scores.at(r, n + block, 1), scores.at(r, n + block + 2, 0),
                       scores.at(r, n + block + 2, 1));
    };
    const unsigned even_block = word(0), odd_block = word(1);
    // mutate: PairsOfTheOtherBlock
    const unsigned first = __shfl_sync(full_warp, is_odd ? odd_block : even_block, first_source);
    const unsigned second = __shfl_sync(full_warp, is_odd ? even_block : odd_block, second_source);
    a[i] = pick_bytes(first, second, low);
    a[i + 2] = pick_bytes(first, second, high);
  }
}

}  // namespace jit
