// P of 8 bits: how scores in accumulators become A fragments of the second product.
#pragma once

#include "base/prelude.cuh"
#include "ptx/fp8.cuh"

namespace jit {

/// Word `i` of what `pack_e4m3_step` packs.
template <class Scores>
JIT_DEVICE unsigned pack_e4m3_word(const Scores& scores, int m, int step, int i) {
  const int r = 2 * m + i % 2, n = 4 * step + i / 2 * 2;  // mutate: ProbabilitiesOfNeighborsExchanged
  return pack_e4m3(scores.at(r, n, 0), scores.at(r, n, 1), scores.at(r, n + 1, 0), scores.at(r, n + 1, 1));
}

/// Row block `m` and the 32 columns from 32 · `step` on, rounded to e4m3: an A fragment of wgmma and of mma.sync whose
/// columns stand in the order in which lanes have them, column 2t + (e mod 2) + 8 ⌊e / 2⌋ of each 16 at place 4t + e.
template <class Scores>
JIT_DEVICE void pack_e4m3_step(const Scores& scores, unsigned (&a)[4], int m, int step) {
#pragma unroll
  for (int i = 0; i < 4; ++i) a[i] = pack_e4m3_word(scores, m, step, i);
}

}  // namespace jit
