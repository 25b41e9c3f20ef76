// The kernel of an output functor's gradients (templates/backward_output): the first step of backward for
// specs with such a functor, unless the family's own first step includes it. Later steps read the gradient of
// o before the functor.
#pragma once

#include <jit/spec.h>

#include "generator/launch/kernel_launch.h"
#include "generator/program/program.h"

namespace jit::backward_output {

Program program(const AttentionSpec& spec);

/// Requires: launch.kept has raw_gradient_bytes(). Stores the gradient there, and its address in
/// launch.gradients.
void launch(const AttentionSpec& spec, const KernelLaunch& launch);

}  // namespace jit::backward_output
