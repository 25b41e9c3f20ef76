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

/// One pass where a family can serve the shape, else two, whose sums always have a fixed order: deterministic calls of
/// ragged sequences take these.
BackwardPlan choose_backward_plan(ContextState& context, const AttentionSpec& spec, const ProblemShape& shape,
                                  bool deterministic, int device);

}  // namespace jit
