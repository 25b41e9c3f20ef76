// The state that the handles of one spec share. Owned by its ContextState.
#pragma once

#include <mutex>
#include <optional>
#include <vector>

#include <jit/spec.h>
#include <jit/stream.h>

#include "cache/dispatch_table.h"
#include "generator/functors/functor_tensors.h"
#include "generator/launch/fault_slot.h"
#include "generator/plan/plan.h"
#include "generator/problem/argument_table.h"
#include "generator/problem/known_attention.h"

namespace jit {

struct ContextState;

struct AttentionState {
  AttentionState(ContextState& owner, AttentionSpec wanted, std::optional<KernelConfig> fixed,
                 bool is_deferred = false)
      : context(owner),
        spec(std::move(wanted)),
        given(fixed),
        deferred(is_deferred),
        rules(spec),
        tensors(functor_tensor_uses(spec)) {}

  ContextState& context;
  const AttentionSpec spec;
  const std::optional<KernelConfig> given;
  const bool deferred;  ///< nothing is compiled before the first call
  const ArgumentRules rules;
  const std::vector<FunctorTensorUse> tensors;
  mutable Shared<KnownAttention> last_call;
  mutable DispatchTable<Plan> by_size;               ///< forward plans, by device and size class
  mutable DispatchTable<Plan> defaults;              ///< untuned plans, by device
  mutable DispatchTable<Plan> backward_by_size;      ///< by device, size class and requested gradients
  mutable DispatchTable<Plan> backward_of_operands;  ///< plans that compute only dq, dk and dv
  mutable std::mutex choosing;  ///< held while a kernel is compiled or tuned, never by a launch
};

/// Reports a fault that checked kernels have recorded in a call: throws Error invalid_argument, naming the
/// array, if the spec asks for checks; else, on emulated devices, only notifies the observer with a warning.
/// Results are defined in both cases. Waits for the call.
void report_faults(const AttentionState& state, FaultSlot& slot);

}  // namespace jit
