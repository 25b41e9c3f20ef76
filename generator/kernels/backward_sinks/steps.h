// The kernel of the sinks' gradients (templates/backward_sinks): one of the steps of a backward call.
#pragma once

#include <jit/spec.h>

#include "generator/launch/kernel_launch.h"
#include "generator/program/program.h"
#include "templates/backward_sinks/params.cuh"

namespace jit::backward_sinks {

/// One program for all specs with these kinds of sequences.
Program program(const AttentionSpec& spec);

/// Requires: the workspace is as the step before left it, laid out so.
void launch(const KernelLaunch& launch, QueryStatisticsLayout layout);

}  // namespace jit::backward_sinks
