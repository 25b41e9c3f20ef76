// Tuning and what is done with its result, for a call and for whoever asks for it.
#pragma once

#include "generator/tuning/tuner.h"

namespace jit {

/// Tunes as the context's settings want it, and records the result in the context's cache folder. Throws what
/// the cost model's own config throws.
TuningResult tune_and_record(ContextState& context, const TuningProblem& problem);

/// What is tuned when `arguments` are to be computed on the current device, which is a GPU. Throws what the
/// public tune() throws.
TuningProblem tuning_problem(const AttentionSpec& spec, const AttentionArguments& arguments);

}  // namespace jit
