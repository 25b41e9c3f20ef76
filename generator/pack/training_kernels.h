// Kernels that packs for training contain in addition to forward kernels.
#pragma once

#include <span>
#include <vector>

#include <jit/kernel_config.h>
#include <jit/spec.h>

#include "generator/kernels/device_limits.h"
#include "generator/pack/kernel_build.h"
#include "generator/problem/problem_shape.h"

namespace jit {

/// The passes of the spec's backward calls on such a device, each with a kernel chosen by sizes: both passes
/// of two, which serve all calls, and the single pass if a kernel exists for it. Throws Error invalid_spec if
/// the spec has no backward.
std::vector<Pass> training_passes(const AttentionSpec& spec, const DeviceLimits& limits);

/// The small kernels around the one-pass kernel of `config`. `output` is the functor that was removed from the
/// spec.
std::vector<KernelBuild> around_one_pass(const AttentionSpec& spec, const OutputFunctor& output,
                                         const KernelConfig& config, Target target);

/// Kernels for the gradients of sinks, if the spec has any, and of all tensors that the score reads.
std::vector<KernelBuild> of_shared_gradients(const AttentionSpec& spec, Target target);

}  // namespace jit
