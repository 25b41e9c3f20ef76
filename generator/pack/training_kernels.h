// Kernels that packs for training have beside the kernels of forward.
#pragma once

#include <span>
#include <vector>

#include <jit/kernel_config.h>
#include <jit/spec.h>

#include "generator/kernels/device_limits.h"
#include "generator/pack/kernel_build.h"
#include "generator/problem/problem_shape.h"

namespace jit {

/// The passes that backward calls of a spec may run on such a device, one kernel of each, chosen by sizes: both of two
/// passes, which serve all calls, and the single one, where there is a kernel for it. Throws Error invalid_spec where
/// the spec has no backward.
std::vector<Pass> training_passes(const AttentionSpec& spec, const DeviceLimits& limits);

/// Kernels that a one-pass kernel needs around it; with the deterministic one, if the spec has it. `config`
/// is the one that is chosen for some sizes, `output` the functor that the spec has lost.
std::vector<KernelBuild> around_one_pass(const AttentionSpec& spec, const OutputFunctor& output,
                                         const KernelConfig& config, const DeviceLimits& limits,
                                         Target target);

/// Kernels of the gradients of sinks, if the spec has them, and of all that the score reads together.
std::vector<KernelBuild> of_shared_gradients(const AttentionSpec& spec, Target target);

}  // namespace jit
