// The tensors of a backward call beside those of its four operands: dlse, sinks and their gradient, and gradients of
// what scores read.
#pragma once

#include <vector>

#include <jit/attention.h>

#include "generator/functors/functor_tensors.h"
#include "templates/base/gradient_params.cuh"

namespace jit {

struct Extents;

/// Checks them and fills their part of `gradients`. Requires: all other tensors of the call passed their checks. Throws
/// Error invalid_argument, whose field is the argument's name, "d_tensors.bias" of a gradient by name.
void fill_functor_gradients(const AttentionSpec& spec, const std::vector<FunctorTensorUse>& tensors,
                            const BackwardArguments& arguments, const Extents& sizes,
                            GradientParams& gradients);

/// Checks forward's mean_score and its gradient, and says in `outputs` where they lie.
void fill_mean_gradients(const AttentionSpec& spec, const BackwardArguments& arguments, const Extents& sizes,
                         OutputParams& outputs);

/// A bit for each tensor that an output functor reads: its kernel makes their gradients.
unsigned output_slots(const std::vector<FunctorTensorUse>& tensors);

/// A bit for each tensor that has a gradient.
unsigned slots_with_gradient(const std::vector<FunctorTensorUse>& tensors);

/// A bit for each tensor whose gradient is wanted, in the order of functor_tensor_uses.
unsigned gradient_slots(const GradientParams& gradients);

}  // namespace jit
