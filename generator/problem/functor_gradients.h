// Further tensors of a backward call: dlse, sinks and their gradient, and gradients of tensors that scores
// read.
#pragma once

#include <vector>

#include <jit/attention.h>

#include "generator/functors/functor_tensors.h"
#include "templates/base/gradient_params.cuh"

namespace jit {

struct Extents;

/// Checks these tensors and fills their part of `gradients`. Requires: the call's other tensors are checked.
/// Throws Error invalid_argument, whose field is the argument's name, or "d_tensors.NAME".
void fill_functor_gradients(const AttentionSpec& spec, const std::vector<FunctorTensorUse>& tensors,
                            const BackwardArguments& arguments, const Extents& sizes,
                            GradientParams& gradients);

/// Checks forward's mean_score and its gradient, and sets them in `outputs`.
void fill_mean_gradients(const AttentionSpec& spec, const BackwardArguments& arguments, const Extents& sizes,
                         OutputParams& outputs);

/// A bit per tensor that an output functor reads; its kernel computes their gradients.
unsigned output_slots(const std::vector<FunctorTensorUse>& tensors);

/// A bit per tensor that has a gradient.
unsigned slots_with_gradient(const std::vector<FunctorTensorUse>& tensors);

/// A bit per tensor with a requested gradient, in the order of functor_tensor_uses.
unsigned gradient_slots(const GradientParams& gradients);

}  // namespace jit
