// Tunes a problem and stores the result, for a call or on request.
#pragma once

#include <functional>
#include <string>

#include <jit/tuning.h>

#include "generator/plan/plan.h"
#include "generator/tuning/tuning_problem.h"

namespace jit {

/// Tunes as the context's settings say, and records the result in the context's cache folder. Throws the
/// errors of the cost model's own config.
TuningResult tune_and_record(ContextState& context, const TuningProblem& problem);

/// The plan of new calls, as the context's settings say: from a record, else by tuning, else untuned(why).
/// Throws the errors of `untuned`.
Plan choose_plan(ContextState& context, const TuningProblem& problem,
                 const std::function<Plan(std::string why)>& untuned);

/// The tuning problem for `arguments` on the current device, which must be a GPU. Throws the errors of the
/// public tune().
ForwardProblem tuning_problem(const AttentionSpec& spec, const AttentionArguments& arguments);
BackwardProblem tuning_problem(const AttentionSpec& spec, const BackwardArguments& arguments);

}  // namespace jit
