// Kernels of the gradients of tensors that scores read (templates/backward_tensors): steps of backward that
// are independent of earlier ones. `slots` has a bit per tensor with a requested gradient, in the order of
// functor_tensor_uses.
#pragma once

#include <cstddef>

#include <jit/spec.h>

#include "generator/launch/kernel_launch.h"
#include "generator/program/program.h"

namespace jit::backward_tensors {

/// Bytes of the sums, one per element of each tensor.
std::size_t workspace_bytes(const GradientParams& gradients, unsigned slots);

/// Sums gradients in two launches: the first determines their unit.
Program sum_program(const AttentionSpec& spec, unsigned slots);
void launch_sum(const KernelLaunch& launch, unsigned slots);

/// Rounds the sums. Requires: `launch_sum` ran before with the same workspace.
Program convert_program(const AttentionSpec& spec, unsigned slots);
void launch_convert(const KernelLaunch& launch, unsigned slots);

}  // namespace jit::backward_tensors
