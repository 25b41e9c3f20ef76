// Which kernels compute the gradients of a call.
#pragma once

#include <optional>
#include <vector>

#include <jit/kernel_config.h>
#include <jit/spec.h>

#include "generator/kernels/problem_shape.h"
#include "generator/launch/plan.h"

namespace jit {

struct ContextState;

/// What a backward call of one size runs.
struct BackwardPlan {
  Plan plan;
  std::vector<KernelConfig> configs;  ///< of its steps: those around a one-pass kernel have that kernel's
};

/// The kernel that computes all gradients, between those that prepare and convert, loaded on `device`. Throws Error
/// no_valid_config when the config is not legal, and what build_kernel and load_kernel throw.
BackwardPlan one_pass_plan(ContextState& context, const AttentionSpec& spec, const BackwardWgmma& config,
                           int device);

/// The kernel of dQ, then that of dK and dV, which reads what the first one leaves of each query. Configs that are not
/// given are the cost models'. Throws the same.
BackwardPlan two_pass_plan(ContextState& context, const AttentionSpec& spec, const ProblemShape& shape,
                           const std::optional<BackwardDqMmaSync>& dq,
                           const std::optional<BackwardDkvMmaSync>& dkv, int device);

/// A backward call as its plan sees it.
struct BackwardCall {
  ProblemShape shape;
  bool deterministic = false;
  bool has_sinks = false;     ///< whether the gradients of sinks are wanted
  unsigned tensor_slots = 0;  ///< those of what the score reads, a bit for each (gradient_slots)
};

/// One pass where a family can serve the shape, else two, whose sums always have a fixed order: deterministic calls of
/// ragged sequences take these. Behind them the kernels of the sinks' and the tensors' gradients.
BackwardPlan choose_backward_plan(ContextState& context, const AttentionSpec& spec, const BackwardCall& call,
                                  int device);

}  // namespace jit
