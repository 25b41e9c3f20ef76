// The kernels of the gradients of what scores read (templates/backward_tensors): steps of a backward call that need
// nothing of those before them. `slots` has a bit for each tensor whose gradient is wanted, in the order of
// functor_tensor_uses.
#pragma once

#include <cstddef>

#include <jit/spec.h>

#include "generator/launch/kernel_launch.h"
#include "generator/program/program.h"

namespace jit::backward_tensors {

/// Bytes of sums, for each element of each tensor.
std::size_t workspace_bytes(const GradientParams& gradients, unsigned slots);

/// Sums, in two runs: the first finds their unit.
Program sum_program(const AttentionSpec& spec, unsigned slots);
void launch_sum(const KernelLaunch& launch, unsigned slots);

/// Rounds the sums. Requires: `launch_sum` ran before, in the same workspace.
Program convert_program(const AttentionSpec& spec, unsigned slots);
void launch_convert(const KernelLaunch& launch, unsigned slots);

}  // namespace jit::backward_tensors
