// Which plan runs a forward call.
#pragma once

#include "generator/attention_state.h"
#include "generator/problem/problem_shape.h"

namespace jit {

/// The plan for sizes that nothing was chosen for; of `shape` it is only asked which kernels can read the tensors.
/// Requires: state.choosing is held. Throws what choosing and loading a kernel throws.
const Plan* default_plan(const AttentionState& state, int device, const ProblemShape& shape = {});

/// The plan for the sizes of a call: known, or chosen as the settings want it. Throws the same.
const Plan* prepared_plan(const AttentionState& state, int device, const AttentionParams& params);

/// The plan of a call that is launched, whose sizes were not seen before: under capture what is loaded already, else that of
/// prepared_plan(). Throws the same, and Error not_prepared.
const Plan* plan_for_new_sizes(const AttentionState& state, int device, const AttentionParams& params,
                               Stream stream);

}  // namespace jit
