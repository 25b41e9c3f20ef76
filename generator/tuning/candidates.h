// Which configs the tuner measures on the first run.
#pragma once

#include <vector>

#include <jit/kernel_config.h>
#include <jit/spec.h>

#include "generator/kernels/device_limits.h"
#include "generator/kernels/problem_shape.h"

namespace jit {

/// Of configs that are near-copies of one another, as many are worth timing.
inline constexpr int most_near_copies = 2;

/// The most promising configs in the model's order, near-copies left out. The first one is the default.
std::vector<KernelConfig> first_run_candidates(const AttentionSpec& spec, const ProblemShape& shape,
                                               const DeviceLimits& limits);

}  // namespace jit
