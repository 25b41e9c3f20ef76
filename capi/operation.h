// Contents of a jit_operation.
#pragma once

#include <optional>
#include <string>
#include <type_traits>
#include <variant>

#include <jit/append.h>
#include <jit/attention.h>
#include <jit/block_mask.h>
#include <jit/c.h>
#include <jit/c_key_mass.h>
#include <jit/device.h>
#include <jit/kernel_config.h>
#include <jit/key_mass.h>
#include <jit/merge.h>
#include <jit/quantize.h>

#include "capi/context.h"
#include "capi/errors.h"

namespace jit::c {

/// Attention that compiles at its calls, unless it has a config.
struct AttentionProblem {
  AttentionSpec spec;
  std::optional<KernelConfig> config;
  Attention when_called;  ///< without the config
};

using Problem =
    std::variant<AttentionProblem, AppendSpec, MergeSpec, QuantizeSpec, BlockMaskSpec, KeyMassSpec>;

/// "attention", "append" etc., by the variant's index.
const char* kind_name(std::size_t index);

template <class Wanted, class... All>
constexpr std::size_t place_of(const std::variant<All...>*) {
  std::size_t place = 0;
  (void)((std::is_same_v<Wanted, All> || (++place, false)) || ...);
  return place;
}

/// A problem's kernels on the current device. Throws compile errors.
Attention attention_here(const AttentionProblem& problem, const Context& context);

}  // namespace jit::c

struct jit_operation {
  jit_context context;
  jit::c::Problem problem;
};

namespace jit::c {

/// The problem of an operation. Throws Error invalid_argument for null and for an operation of another kind.
template <class Wanted>
const Wanted& problem_of(const jit_operation* operation, const char* argument) {
  const Problem& problem = checked_pointer(operation, argument).problem;
  if (const Wanted* wanted = std::get_if<Wanted>(&problem)) return *wanted;
  refuse(argument, std::string("is an operation of kind ") + kind_name(problem.index()) + "; it must be of " +
                       kind_name(place_of<Wanted>(static_cast<const Problem*>(nullptr))));
}

/// Makes the device of a call current for its lifetime.
class CallDevice {
 public:
  explicit CallDevice(const jit_context& context) {
    if (context.device < 0) {
      current_.emplace();
    } else {
      current_.emplace(context.device);
    }
  }
  int ordinal() const { return current_->ordinal(); }

 private:
  std::optional<CurrentDevice> current_;
};

// The library's arguments for a call on a device; -1: any.
AttentionArguments forward_arguments_of(const jit_forward_arguments& given, int device);
BackwardArguments backward_arguments_of(const jit_backward_arguments& given, int device);

}  // namespace jit::c
