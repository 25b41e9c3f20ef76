// Converts a call's dropout rate to parameters of kernels.
#pragma once

#include <jit/spec.h>

#include "templates/base/dropout_params.cuh"

namespace jit {

/// Throws Error invalid_argument, field dropout_p, unless it is in [0, 1), and 0 if the spec has no dropout.
void check_dropout_rate(const AttentionSpec& spec, float dropout_p);

/// Sets all parameters that depend on the rate. Requires: check_dropout_rate passes.
void set_dropout_rate(DropoutParams& params, float dropout_p);

}  // namespace jit
