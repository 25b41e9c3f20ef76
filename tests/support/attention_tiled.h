// Attention as the kernels do it: online softmax over tiles of keys, fp32 sums, probabilities rounded to the
// 16-bit type relative to the running maximum, one rounding at the end. It tells an algorithm that is too
// coarse from a kernel that is wrong.
#pragma once

#include "tests/support/attention_problem.h"

namespace jit::reference {

struct Tiling {
  int tile_kv = 64;
  /// The maximum moves once a score exceeds it by more than 2^8; else at every tile.
  bool lazy_rescale = false;
};

Output attention_tiled(const Problem& problem, std::span<const Row> rows, const Tiling& tiling);

}  // namespace jit::reference
