// Which config to use when nothing was measured, and which to measure first. Pure functions: a cost model, no
// device.
#pragma once

#include <span>
#include <vector>

#include <jit/kernel_config.h>
#include <jit/spec.h>

#include "generator/kernels/device_limits.h"
#include "generator/problem/problem_shape.h"

namespace jit {

/// The shape that is assumed when a kernel is wanted before any call: enough work for every multiprocessor. Sequences
/// whose lengths only the device knows are taken to have few queries: kernels for these are not slow for many. What is
/// chosen for it may run calls of any sizes.
ProblemShape typical_shape(const DeviceLimits& limits, const AttentionSpec& spec = {});

/// The shape that decides which config serves calls of `shape`: with spec.split_keys one for all that can be read by
/// TMA, and one for all others, so that nothing else of a call changes a request's bits. Where all configs compute the
/// same bits, that of the call.
ProblemShape deciding_shape(const AttentionSpec& spec, const ProblemShape& shape);

/// The legal configs of the search grids of all families that serve the shape's pass and can read its tensors, the most
/// promising first for its deciding_shape(); equal estimates keep the grids' order. Throws Error no_valid_config when
/// there is none, with the reasons of those that need least.
std::vector<KernelConfig> ranked_configs(const AttentionSpec& spec, const ProblemShape& shape,
                                         const DeviceLimits& limits);

/// The legal configs in the order in which they are tried untuned: first those whose registers suffice for
/// sure, so that the first compile is the only one. The tuner, which sees what it measures, keeps the order
/// above.
std::vector<KernelConfig> untuned_order(const AttentionSpec& spec, const ProblemShape& shape,
                                        const DeviceLimits& limits);

/// The first of untuned_order() for each of many shapes of one pass, all of which TMA can map or none, without ranking
/// the others.
std::vector<KernelConfig> first_untuned(const AttentionSpec& spec, std::span<const ProblemShape> shapes,
                                        const DeviceLimits& limits);

}  // namespace jit
