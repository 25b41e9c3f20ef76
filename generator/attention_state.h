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
  mutable DispatchTable<Plan> by_size;               ///< of forward, by device and size class
  mutable DispatchTable<Plan> defaults;              ///< by device, for sizes that nothing was chosen for
  mutable DispatchTable<Plan> backward_by_size;      ///< by device, size class and which gradients are wanted
  mutable DispatchTable<Plan> backward_of_operands;  ///< the part that computes dq, dk and dv
  mutable std::mutex choosing;  ///< held while a kernel is compiled or tuned, never by a launch
};

/// Reports what checked kernels have found in a call. For a spec that does not ask for it, on an emulated
/// device, it is told to the observer and no more: results are defined all the same. Waits for the call.
/// Throws Error invalid_argument, naming the array.
void report_faults(const AttentionState& state, FaultSlot& slot);

}  // namespace jit
