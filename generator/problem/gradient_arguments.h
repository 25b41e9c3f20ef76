// Converts the tensors of a backward call to the parameters of its kernels.
#pragma once

#include <vector>

#include <jit/attention.h>

#include "generator/functors/functor_tensors.h"
#include "generator/problem/problem_shape.h"
#include "templates/base/gradient_params.cuh"
#include "templates/base/params.cuh"

namespace jit {

/// Throws Error invalid_spec if calls of the spec have no gradients yet.
void check_has_backward(const AttentionSpec& spec);

/// Checks `arguments` against `spec` and fills `params` and `gradients`. Returns false if there is nothing to
/// write. `tensors` is functor_tensor_uses(spec). Allocates only to throw Error invalid_argument, whose field
/// is the argument's name, or invalid_spec for a spec without gradients.
bool fill_params(const AttentionSpec& spec, const std::vector<FunctorTensorUse>& tensors,
                 const BackwardArguments& arguments, AttentionParams& params, GradientParams& gradients);

/// fill_params for any spec, even if attention has no gradients for it. With values_in_keys there is no dv.
void fill_gradient_params(const AttentionSpec& spec, const std::vector<FunctorTensorUse>& tensors,
                          const BackwardArguments& arguments, AttentionParams& params,
                          GradientParams& gradients);

/// The shape of a backward call, of Pass::backward.
ProblemShape backward_shape(const AttentionParams& params, const GradientParams& gradients);

}  // namespace jit
