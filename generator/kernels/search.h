// Ranks configs by cost models: the first one runs untuned, the first few are measured. Pure functions.
#pragma once

#include <span>
#include <vector>

#include <jit/kernel_config.h>
#include <jit/spec.h>

#include "generator/kernels/device_limits.h"
#include "generator/problem/problem_shape.h"

namespace jit {

/// The shape that is assumed before any call: enough work for all SMs. Assumes few queries if lengths are on
/// the device, since these kernels are not slow for many. The chosen config may run calls of any size.
ProblemShape typical_shape(const DeviceLimits& limits, const AttentionSpec& spec = {});

/// The shape that decides the config for `shape`: with spec.split_keys, one for calls that TMA can read and
/// one for others, so that bits do not depend on other properties of a call; `shape` itself if all configs
/// compute the same bits.
ProblemShape deciding_shape(const AttentionSpec& spec, const ProblemShape& shape);

/// All legal configs of families that serve the shape's pass and can read its tensors, by predicted time for
/// its deciding_shape(); ties keep the grids' order. Throws Error no_valid_config if there are none, with
/// each family's reason.
std::vector<KernelConfig> ranked_configs(const AttentionSpec& spec, const ProblemShape& shape,
                                         const DeviceLimits& limits);

/// The ranked configs in the order to try without tuning: first those whose registers certainly suffice, so
/// that only one is compiled. The tuner, which measures, uses ranked_configs(). `deterministic` leaves those
/// whose kernels add in a fixed order, possibly none.
std::vector<KernelConfig> untuned_order(const AttentionSpec& spec, const ProblemShape& shape,
                                        const DeviceLimits& limits, bool deterministic = false);

/// The first of untuned_order() for each of many shapes of one pass, either all or none mappable by TMA,
/// without ranking the others. Requires: `deterministic` leaves some config (has_deterministic).
std::vector<KernelConfig> first_untuned(const AttentionSpec& spec, std::span<const ProblemShape> shapes,
                                        const DeviceLimits& limits, bool deterministic = false);

/// Whether a legal config for the shape has a kernel that adds in a fixed order.
bool has_deterministic(const AttentionSpec& spec, const ProblemShape& shape, const DeviceLimits& limits);

}  // namespace jit
