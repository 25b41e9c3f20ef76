// Tunes a problem and stores the result, for a call or on request.
#pragma once

#include <functional>
#include <string>

#include <jit/tuning.h>

#include "generator/plan/plan.h"
#include "generator/tuning/tuning_problem.h"

namespace jit {

/// Tunes as the context's settings want it, and records the result in the context's cache folder. Throws what
/// the cost model's own config throws.
TuningResult tune_and_record(ContextState& context, const TuningProblem& problem);

/// The plan of calls that were not seen before, as the context's settings want it chosen: of a record, else by tuning,
/// else `untuned`, which is told why. Throws what that one throws.
Plan choose_plan(ContextState& context, const TuningProblem& problem,
                 const std::function<Plan(std::string why)>& untuned);

/// The problem that is tuned when `arguments` are to be computed on the current device, which is a GPU.
/// Throws what the public tune() throws.
ForwardProblem tuning_problem(const AttentionSpec& spec, const AttentionArguments& arguments);
BackwardProblem tuning_problem(const AttentionSpec& spec, const BackwardArguments& arguments);

}  // namespace jit
