// Where random tests start.
#pragma once

#include <cstdint>

namespace jit::reference {

/// The seed of this run: JIT_ATTENTION_TEST_SEED when it is set, else a new one at every run. The first call
/// prints it.
std::uint64_t test_seed();

}  // namespace jit::reference
