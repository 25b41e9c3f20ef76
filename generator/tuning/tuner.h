// Finding the fastest configs for a problem on a GPU: compile the most promising candidates in parallel, check
// each against a reference, measure them as they will run, choose deterministically.
#pragma once

#include <jit/tuning.h>

#include "generator/tuning/tuning_problem.h"

namespace jit {

/// At most `settings.tuning_seconds`, and half of the device's free memory. `exhaustive` takes every config
/// of the grid for a candidate, and as much time as that needs. A candidate that fails to compile, to load,
/// to run or to be right drops out and is named in the log. Throws what the cost model's own config throws.
TuningResult tune(ContextState& context, const TuningProblem& problem, bool exhaustive);

}  // namespace jit
