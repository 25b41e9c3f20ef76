// The quantizer that keeps rows, by as many blocks as a test wants, as if the device had no more.
#pragma once

#include <jit/context.h>

#include "tests/support/quantize_run.h"

namespace jit::testing {

/// Launches it `launches` times, on the default stream, each time on other inputs but for the first. What is wrong with
/// what was made, or why it cannot be; empty: nothing. Throws what a call does.
std::string keep_rows_by(const Context& context, QuantizeRun& run, int blocks, int launches = 1);

}  // namespace jit::testing
