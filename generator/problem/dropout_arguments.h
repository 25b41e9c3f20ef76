// From the rate of a call to what kernels with dropout read.
#pragma once

#include <jit/spec.h>

#include "templates/base/dropout_params.cuh"

namespace jit {

/// Throws Error invalid_argument, field dropout_p, unless it is at least 0 and less than 1, and 0 where the spec has no
/// dropout.
void check_dropout_rate(const AttentionSpec& spec, float dropout_p);

/// Sets all that follows from the rate. Requires: check_dropout_rate passes.
void set_dropout_rate(DropoutParams& params, float dropout_p);

}  // namespace jit
