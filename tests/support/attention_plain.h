// Attention as an unfused framework does it in 16 bits: each of its tensors (scores, scaled scores, modified
// scores, probabilities, output) is rounded to the 16-bit type, sums are fp32. Its error is the yardstick for
// the kernels'.
#pragma once

#include "tests/support/attention_problem.h"

namespace jit::reference {

Output attention_plain(const Problem& problem, std::span<const Row> rows);

}  // namespace jit::reference
