// The call that a function describes without making it.
#pragma once

#include <optional>
#include <string>
#include <type_traits>
#include <variant>

#include "capi/operation.h"
#include "capi/structs.h"

namespace jit::c {

/// The arguments of a forward call, a backward call, both or neither.
struct GivenCall {
  std::optional<AttentionArguments> forward;
  std::optional<BackwardArguments> backward;
};

inline GivenCall given_call(const jit_forward_arguments* forward, const jit_backward_arguments* backward,
                            int device) {
  GivenCall call;
  if (forward != nullptr) call.forward = forward_arguments_of(known_part(forward, "forward"), device);
  if (backward != nullptr) call.backward = backward_arguments_of(known_part(backward, "backward"), device);
  return call;
}

/// Throws Error invalid_argument when both are given.
inline void check_at_most_one(const void* forward, const void* backward) {
  if (forward != nullptr && backward != nullptr)
    refuse("backward", "was given beside forward; give one of the two");
}

/// Throws Error invalid_argument when either is given for an operation other than attention.
inline void check_no_arguments(const jit_operation& operation, const void* forward, const void* backward) {
  if (forward != nullptr || backward != nullptr) {
    refuse(forward != nullptr ? "forward" : "backward", std::string("was given for an operation of kind ") +
                                                            kind_name(operation.problem.index()) +
                                                            "; only calls of attention have these arguments");
  }
}

/// Calls `use` with the loaded kernel of an operation other than attention.
template <class Use>
void use_operation(const jit_operation& operation, const Use& use) {
  const Context& context = operation.context.context;
  std::visit(
      [&](const auto& spec) {
        using Spec = std::decay_t<decltype(spec)>;
        if constexpr (std::is_same_v<Spec, AppendSpec>) use(append(spec, context));
        if constexpr (std::is_same_v<Spec, MergeSpec>) use(merge(spec, context));
        if constexpr (std::is_same_v<Spec, QuantizeSpec>) use(quantize_qkv(spec, context));
        if constexpr (std::is_same_v<Spec, BlockMaskSpec>) use(block_mask(spec, context));
        if constexpr (std::is_same_v<Spec, KeyMassSpec>) use(key_mass(spec, context));
      },
      operation.problem);
}

}  // namespace jit::c
