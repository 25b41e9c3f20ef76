// Cases that a run leaves to others: those that two architectures run alike, and every second one of long suites.
#pragma once

#include <jit/arch.h>

namespace jit::testing {

/// Whether this run takes the GoogleTest case that is running, on an emulated device of this architecture. All cases are
/// taken without JIT_ATTENTION_TEST_SEED, which tools/test sets, and with JIT_ATTENTION_TEST_ALL=1.
bool is_turn_of_case(Arch arch);

}  // namespace jit::testing
