// From the tensors of a call to the parameters of the kernel that scores keys.
#pragma once

#include <jit/score_keys.h>

#include "templates/score_keys/params.cuh"

namespace jit {

/// Checks `arguments` against `spec` and fills `params`, except maps and values that depend on the device.
/// Returns whether there is something to score. Throws Error invalid_argument, whose field is the argument's
/// name.
bool fill_params(const ScoreKeysSpec& spec, const ScoreKeysArguments& arguments, ScoreKeysParams& params);

/// Fills the maps, and divides the work for `sm_count` SMs. Requires: fill_params returned true.
void fill_work(const ScoreKeysSpec& spec, const ScoreKeysArguments& arguments, int sm_count,
               ScoreKeysParams& params);

}  // namespace jit
