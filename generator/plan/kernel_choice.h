// From a spec to kernels on a device: the path that attention(), compile(), the tuner and the tools share.
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
  bool is_fallback = false;  ///< replaces a better kernel that is unavailable
};

/// The reaction to an unavailable kernel that cannot be compiled.
enum class Missing {
  is_an_error,  ///< for packs, which must contain the kernels that processes will choose
  /// Replaced by the next available kernel in order, with one event per spec, since every legal kernel of a
  /// spec computes all its calls; the same error if no kernel is available. Given configs are never replaced,
  /// nor kernels of specs with split_keys, whose bits must not depend on availability.
  is_replaced,
};

/// Notes in a plan's `why`, once, that its kernel is a fallback.
void remark_stand_in(std::string& why);

/// Whether an error says that a kernel is unavailable, since compiling is forbidden or there is no compiler.
bool is_out_of_reach(const Error& error);

/// Notifies, once per spec, that calls run a fallback instead of the chosen kernel.
void tell_of_stand_in(KernelStore& store, const AttentionSpec& spec, Target target);

/// Whether a kernel checks values of arrays on the device: if the spec asks for it, and always on emulated
/// devices.
bool is_checked(const AttentionSpec& spec, const KernelConfig& config, Target target);

/// The kernel of a config: from memory, else from disk, else compiled. Requires: the config is legal. Throws
/// Error compile_failed, nvrtc_unavailable, offline. Thread safe.
BuiltKernel build_kernel(KernelStore& store, const AttentionSpec& spec, const KernelConfig& config,
                         Target target);

/// The kernel if it needs no compile, else nothing.
std::optional<BuiltKernel> kernel_at_hand(KernelStore& store, const AttentionSpec& spec,
                                          const KernelConfig& config, Target target);

/// The untuned kernel: `given`, else the first clean one (ResourceUsage::is_clean) in the cost model's order
/// for `shape`; if none of the first few is clean, the best of these, with a warning. PTX has no such report,
/// so its first kernel is taken. Throws Error no_valid_config if `given` or every config is illegal;
/// unsupported_device; errors of build_kernel.
BuiltKernel choose_kernel(KernelStore& store, const AttentionSpec& spec,
                          const std::optional<KernelConfig>& given, const ProblemShape& shape,
                          const DeviceLimits& limits, Target target, Missing missing = Missing::is_an_error);

/// The untuned kernel of all gradients: as choose_kernel does, of those that add in a fixed order if
/// `deterministic`, with the same errors. None if no legal config adds so.
std::optional<BuiltKernel> choose_one_pass(KernelStore& store, const AttentionSpec& spec,
                                           const ProblemShape& shape, bool deterministic,
                                           const DeviceLimits& limits, Target target);

/// The configs to try in order for some requests of a call: `config` if given, else those of the cost model. None if no
/// family serves them.
std::vector<KernelConfig> configs_for(const AttentionSpec& spec, Requests requests,
                                      const std::optional<KernelConfig>& config, const ProblemShape& shape,
                                      const DeviceLimits& limits);

/// The kernel of one of these configs, as choose_kernel chooses. Requires: there are configs. Throws the errors of
/// build_kernel. Thread safe.
BuiltKernel choose_among(KernelStore& store, const AttentionSpec& spec,
                         const std::vector<KernelConfig>& configs, Target target, Missing missing);

/// The kernel of one family for some requests of a call: of configs_for(). None if no family serves them. Throws the
/// errors of build_kernel.
std::optional<BuiltKernel> choose_kernel_for(KernelStore& store, const AttentionSpec& spec, Requests requests,
                                             const std::optional<KernelConfig>& config,
                                             const ProblemShape& shape, const DeviceLimits& limits,
                                             Target target, Missing missing = Missing::is_an_error);

/// The plan of a call that runs this kernel, loaded on `device`. Throws Error load_failed.
Plan make_plan(KernelStore& store, const AttentionSpec& spec, BuiltKernel kernel, int device,
               std::string why);

/// Appends a kernel to the plan. Throws Error load_failed.
void add_kernel(KernelStore& store, Plan& plan, BuiltKernel kernel, int device);

}  // namespace jit
