// Times configs for a report: each is compiled, checked and measured separately.
#pragma once

#include <span>

#include <jit/tuning.h>

#include "generator/tuning/tuning_problem.h"

namespace jit {

/// Compiles configs without trouble in parallel; records failures as their trouble.
void compile_configs(ContextState& context, const TuningProblem& problem, std::span<ConfigTiming> timings);

}  // namespace jit
