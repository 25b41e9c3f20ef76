// The kernel of an output functor's gradients (templates/backward_output): the first step of a backward call whose spec has
// such a functor, unless the family's own first step makes them. Behind it the gradient of o is that of o before the functor.
#pragma once

#include <jit/spec.h>

#include "generator/launch/kernel_launch.h"
#include "generator/program/program.h"

namespace jit::backward_output {

Program program(const AttentionSpec& spec);

/// Requires: launch.kept has raw_gradient_bytes(). Leaves the gradient there, and in launch.gradients where it is.
void launch(const AttentionSpec& spec, const KernelLaunch& launch);

}  // namespace jit::backward_output
