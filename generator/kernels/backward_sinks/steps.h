// The kernel of the gradients of sinks (templates/backward_sinks), a step of backward.
#pragma once

#include <jit/spec.h>

#include "generator/launch/kernel_launch.h"
#include "generator/program/program.h"
#include "templates/backward_sinks/params.cuh"

namespace jit::backward_sinks {

/// The program, which is equal for all specs with these kinds of sequences.
Program program(const AttentionSpec& spec);

/// Requires: the workspace holds the previous step's statistics in this layout.
void launch(const KernelLaunch& launch, QueryStatisticsLayout layout);

}  // namespace jit::backward_sinks
