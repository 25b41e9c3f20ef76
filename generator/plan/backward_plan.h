// Selects the kernels that compute the gradients of a call.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <jit/kernel_config.h>
#include <jit/spec.h>

#include "generator/build/image.h"
#include "generator/plan/plan.h"
#include "generator/problem/problem_shape.h"

namespace jit {

struct KernelStore;

/// The plan of one kernel for all gradients, between its family's small kernels, loaded on `device`. Throws
/// Error no_valid_config if the config is not legal, and the errors of build_kernel and load_kernel.
Plan one_pass_plan(KernelStore& store, const AttentionSpec& spec, const KernelConfig& config, int device,
                   std::string why = "given");

/// The plan of the dQ kernel, then the dK and dV kernel, which reads per-query statistics that the first one
/// stores. The cost model chooses configs that are not given. Throws the same errors.
Plan two_pass_plan(KernelStore& store, const AttentionSpec& spec, const ProblemShape& shape,
                   const std::optional<KernelConfig>& dq, const std::optional<KernelConfig>& dkv, int device,
                   std::string why = "given");

/// The properties of a backward call that decide its plan.
struct BackwardCall {
  ProblemShape shape;  ///< of Pass::backward
  bool deterministic = false;
  bool has_sinks = false;     ///< gradients of sinks are requested
  unsigned tensor_slots = 0;  ///< requested gradients of functors' tensors, one bit each (gradient_slots)
};

/// The spec of backward kernels for such calls: padded or varlen if lengths are on the device, and without
/// sinks, which LSE already contains.
AttentionSpec backward_spec(const AttentionSpec& spec, const ProblemShape& shape);

/// Whether a kernel of the spec can compute all gradients of such calls in one pass.
bool has_one_pass(const AttentionSpec& spec, const ProblemShape& shape, const DeviceLimits& limits);

/// The plan for dq, dk and dv by the cost models: one pass if a family serves the shape, else two, whose sums
/// have a fixed order. `spec` is a backward_spec.
Plan untuned_backward_plan(KernelStore& store, const AttentionSpec& spec, const ProblemShape& shape,
                           bool deterministic, int device, std::string why);

/// The plan of these configs; the first one decides between one and two passes.
Plan backward_plan(KernelStore& store, const AttentionSpec& spec, const PlanConfigs& configs, int device,
                   std::string why);

/// The kernels of that plan, compiled at once, main kernels first.
std::vector<std::shared_ptr<const KernelImage>> build_backward_kernels(KernelStore& store,
                                                                       const AttentionSpec& spec,
                                                                       const PlanConfigs& configs,
                                                                       Target target);

/// The programs of the kernels that add_shared_gradients() adds behind others, to be compiled beside these.
std::vector<Program> shared_gradient_programs(const AttentionSpec& spec, const BackwardCall& call);

/// Adds kernels: gradients of sinks and of scores' tensors after those of dq, dk and dv, and those of an
/// output functor before all. `spec` is the caller's.
void add_shared_gradients(KernelStore& store, Plan& plan, const AttentionSpec& spec, const BackwardCall& call,
                          int device);

}  // namespace jit
