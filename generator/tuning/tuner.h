// Finds the fastest configs for a problem on a GPU: compiles promising candidates in parallel, checks each
// against a reference, measures them, and selects deterministically.
#pragma once

#include <jit/tuning.h>

#include "generator/tuning/tuning_problem.h"

namespace jit {

/// Takes at most `settings.tuning_seconds`, and half of the device's free memory. `exhaustive` makes every
/// config of the grid a candidate, without a time limit. A candidate that fails to compile, load or run, or
/// is wrong, is dropped and logged. Throws the errors of the cost model's own config.
TuningResult tune(ContextState& context, const TuningProblem& problem, bool exhaustive);

}  // namespace jit
