// From the tensors of a call to the parameters of a kernel: every check that stands between a caller's
// mistake and the GPU.
#pragma once

#include <vector>

#include <jit/attention.h>

#include "generator/kernels/heuristic.h"
#include "templates/base/params.cuh"

namespace jit {

/// Checks `arguments` against `spec` and fills `params`. Returns false when there is nothing to compute (no
/// batch, no heads or no queries). `tensors` is functor_tensors(spec). Allocates nothing unless it throws
/// Error invalid_argument, whose field is the argument's name.
bool fill_params(const AttentionSpec& spec, const std::vector<FunctorTensorSpec>& tensors,
                 const AttentionArguments& arguments, AttentionParams& params);

ProblemShape shape_of(const AttentionParams& params);

}  // namespace jit
