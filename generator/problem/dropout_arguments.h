// From the rate and the seed of a call to the parameter of kernels with dropout.
#pragma once

#include <jit/spec.h>
#include <jit/tensor.h>

#include "templates/base/dropout_params.cuh"

namespace jit {

/// Throws Error invalid_argument, field dropout_p, unless it is at least 0 and less than 1, and 0 where the spec has no
/// dropout.
void check_dropout_rate(const AttentionSpec& spec, float dropout_p);

/// Requires: check_dropout_rate passes. `rng_state` may be missing where nothing is dropped.
DropoutParams dropout_params(float dropout_p, const TensorView& rng_state);

}  // namespace jit
