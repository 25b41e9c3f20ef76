// The kernel of the sinks' gradients (templates/backward_sinks): one of the steps of a backward call.
#pragma once

#include "generator/launch/kernel_launch.h"
#include "generator/program/program.h"

namespace jit::backward_sinks {

/// How another step left what is known of each query (GradientParams::lse_log2, delta).
struct Statistics {
  long long rows;  ///< of each head
  float sign;      ///< of delta: 1 or −1
};

/// The same program for every spec.
Program program();

/// Requires: the workspace is as the step before left it.
void launch(const KernelLaunch& launch, const Statistics& statistics);

}  // namespace jit::backward_sinks
