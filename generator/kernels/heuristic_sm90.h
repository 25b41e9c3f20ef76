// The cost model of wgmma kernels.
#pragma once

#include "generator/kernels/heuristic.h"

namespace jit::sm90 {

double estimated_cycles(const AttentionSpec& spec, const KernelConfig& config, const ProblemShape& shape,
                        const DeviceLimits& limits);

}  // namespace jit::sm90
