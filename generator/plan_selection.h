// Selects the plan of a forward call.
#pragma once

#include "generator/attention_state.h"
#include "generator/problem/problem_shape.h"

namespace jit {

/// The plan for sizes without a tuned choice; `shape` only decides which kernels can read the tensors.
/// Requires: state.choosing is held. Throws the errors of choosing and loading a kernel.
const Plan* default_plan(const AttentionState& state, int device, const ProblemShape& shape = {});

/// The plan for the sizes of a call: known, or chosen as the settings say. Throws the same errors.
const Plan* prepared_plan(const AttentionState& state, int device, const AttentionParams& params);

/// The plan of a launch whose sizes are new: an already loaded one during stream capture, else
/// prepared_plan(). Throws the same errors, and Error not_prepared.
const Plan* plan_for_new_sizes(const AttentionState& state, int device, const AttentionParams& params,
                               Stream stream);

}  // namespace jit
