// Attention in fp64: what every kernel's result is measured against.
#pragma once

#include "tests/support/attention_problem.h"

namespace jit::reference {

Output attention_exact(const Problem& problem, std::span<const Row> rows);

}  // namespace jit::reference
