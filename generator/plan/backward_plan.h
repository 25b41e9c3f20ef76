// Which kernels compute the gradients of a call.
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

/// The kernel that computes all gradients, between the steps of its family, loaded on `device`. Throws Error
/// no_valid_config when the config is not legal, and what build_kernel and load_kernel throw.
Plan one_pass_plan(KernelStore& store, const AttentionSpec& spec, const KernelConfig& config, int device,
                   std::string why = "given");

/// The kernel of dQ, then that of dK and dV, which reads what the first one leaves of each query. Configs that are not
/// given are the cost models'. Throws the same.
Plan two_pass_plan(KernelStore& store, const AttentionSpec& spec, const ProblemShape& shape,
                   const std::optional<KernelConfig>& dq, const std::optional<KernelConfig>& dkv, int device,
                   std::string why = "given");

/// A backward call as its plan sees it.
struct BackwardCall {
  ProblemShape shape;  ///< of Pass::backward
  bool deterministic = false;
  bool has_sinks = false;     ///< whether the gradients of sinks are wanted
  unsigned tensor_slots = 0;  ///< those of what score and output read, a bit for each (gradient_slots)
};

/// The spec of the kernels of such calls: with lengths on the device those are of padded or varlen sequences, and none
/// knows of sinks, because LSE has them.
AttentionSpec backward_spec(const AttentionSpec& spec, const ProblemShape& shape);

/// Whether one of the kernels of a spec can compute all gradients of such calls.
bool has_one_pass(const AttentionSpec& spec, const ProblemShape& shape, const DeviceLimits& limits);

/// The plan that the cost models choose for dq, dk and dv: one pass where a family can serve the shape, else
/// two, whose sums always have a fixed order. `spec` is that of kernels.
Plan untuned_backward_plan(KernelStore& store, const AttentionSpec& spec, const ProblemShape& shape,
                           bool deterministic, int device, std::string why);

/// The plan of these configs, of which the first tells whether there are two passes.
Plan backward_plan(KernelStore& store, const AttentionSpec& spec, const PlanConfigs& configs, int device,
                   std::string why);

/// The kernels of that plan, compiled: those of the configs, then others.
std::vector<std::shared_ptr<const KernelImage>> build_backward_kernels(KernelStore& store,
                                                                       const AttentionSpec& spec,
                                                                       const PlanConfigs& configs,
                                                                       Target target);

/// Adds the kernels of the sinks' and the scores' tensors' gradients behind those of dq, dk and dv, and in front of all that of
/// an output functor. `spec` is the caller's.
void add_shared_gradients(KernelStore& store, Plan& plan, const AttentionSpec& spec, const BackwardCall& call,
                          int device);

}  // namespace jit
