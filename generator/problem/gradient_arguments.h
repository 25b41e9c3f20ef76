// From the tensors of a backward call to the parameters of its kernels.
#pragma once

#include <vector>

#include <jit/attention.h>

#include "generator/functors/functor_tensors.h"
#include "generator/problem/problem_shape.h"
#include "templates/base/gradient_params.cuh"
#include "templates/base/params.cuh"

namespace jit {

/// Throws Error invalid_spec where calls of the spec have no gradients so far.
void check_has_backward(const AttentionSpec& spec);

/// Checks `arguments` against `spec` and fills `params` and `gradients`. Returns false when there is nothing to write.
/// `tensors` is functor_tensor_uses(spec). Allocates nothing unless it throws Error invalid_argument, whose field is
/// the argument's name, or invalid_spec for a spec that has no gradients so far.
bool fill_params(const AttentionSpec& spec, const std::vector<FunctorTensorUse>& tensors,
                 const BackwardArguments& arguments, AttentionParams& params, GradientParams& gradients);

/// Fills them as above, whether or not calls of attention have gradients of the spec. With values_in_keys there is no dv.
void fill_gradient_params(const AttentionSpec& spec, const std::vector<FunctorTensorUse>& tensors,
                          const BackwardArguments& arguments, AttentionParams& params,
                          GradientParams& gradients);

/// The shape of such a call, of Pass::backward.
ProblemShape backward_shape(const AttentionParams& params, const GradientParams& gradients);

}  // namespace jit
