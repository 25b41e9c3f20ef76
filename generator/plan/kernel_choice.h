// From a spec to kernels on a device: the one way that attention(), compile(), the tuner and the tools go.
//
//     spec → config (given, recorded, tuned, else the cost model's) → program → image → plan
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <jit/error.h>
#include <jit/kernel_config.h>
#include <jit/spec.h>

#include "generator/build/image.h"
#include "generator/kernels/device_limits.h"
#include "generator/plan/plan.h"
#include "generator/problem/problem_shape.h"

namespace jit {

struct KernelStore;

/// A config and its compiled kernel.
struct BuiltKernel {
  KernelConfig config;
  std::shared_ptr<const KernelImage> image;
  bool is_fallback = false;  ///< for a better one that cannot be had here
};

/// The reaction to a kernel that is not at hand and cannot be compiled.
enum class Missing {
  is_an_error,  ///< for packs, which must have what processes will choose
  /// The first of its order that is at hand is taken, with one event for each spec: every legal kernel of a spec computes
  /// all its calls. Where there is none, that is the same error. A config that was given is never replaced, nor one of a
  /// spec with split_keys, whose bits must not depend on what is at hand.
  is_replaced,
};

/// Says in a plan, once, that it runs such a kernel.
void remark_stand_in(std::string& why);

/// Whether an error says that a kernel cannot be had here, because compiling is forbidden or there is no compiler.
bool is_out_of_reach(const Error& error);

/// Tells, once for each spec, that calls run another kernel than the one that was chosen for them.
void tell_of_stand_in(KernelStore& store, const AttentionSpec& spec, Target target);

/// Whether a kernel looks at what arrays on the device hold: where the spec wants it, and on emulated devices always.
bool is_checked(const AttentionSpec& spec, const KernelConfig& config, Target target);

/// The kernel of a config: from memory, else from disk, else compiled. Requires: the config is legal. Throws
/// Error compile_failed, nvrtc_unavailable, offline. Thread safe.
BuiltKernel build_kernel(KernelStore& store, const AttentionSpec& spec, const KernelConfig& config,
                         Target target);

/// The kernel where nothing has to be compiled; nothing where the kernel is not at hand.
std::optional<BuiltKernel> kernel_at_hand(KernelStore& store, const AttentionSpec& spec,
                                          const KernelConfig& config, Target target);

/// The kernel that serves when nothing was measured: `given`, else the cost model's first for `shape` that is
/// clean (ResourceUsage::is_clean); when none of the first few is, the best of them, with a warning event.
/// Machine code alone tells what is clean: of PTX the first is taken. Throws Error no_valid_config when `given`
/// is not legal or nothing is; unsupported_device; what build_kernel throws.
BuiltKernel choose_kernel(KernelStore& store, const AttentionSpec& spec,
                          const std::optional<KernelConfig>& given, const ProblemShape& shape,
                          const DeviceLimits& limits, Target target, Missing missing = Missing::is_an_error);

/// The kernel of one family for some requests of a call: of `config`, if given, else the cost model's first for `shape` as
/// above. None where no family serves them. Throws what build_kernel throws.
std::optional<BuiltKernel> choose_kernel_for(KernelStore& store, const AttentionSpec& spec, Requests requests,
                                             const std::optional<KernelConfig>& config,
                                             const ProblemShape& shape, const DeviceLimits& limits,
                                             Target target, Missing missing = Missing::is_an_error);

/// The plan of a call that runs this kernel, loaded on `device`. Throws Error load_failed.
Plan make_plan(KernelStore& store, const AttentionSpec& spec, BuiltKernel kernel, int device,
               std::string why);

/// Adds a kernel to the plan, which runs behind the others. Throws Error load_failed.
void add_kernel(KernelStore& store, Plan& plan, BuiltKernel kernel, int device);

}  // namespace jit
