// Configs that are timed for a report: compiled, checked and measured each for itself.
#pragma once

#include <span>

#include <jit/tuning.h>

#include "generator/tuning/tuning_problem.h"

namespace jit {

/// Compiles on all cores those that have no trouble; what fails has it then.
void compile_configs(ContextState& context, const TuningProblem& problem, std::span<ConfigTiming> timings);

}  // namespace jit
