// Arguments of a call: a spec, names, and a value for each name.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <jit/c.h>

#include "tvm/abi.h"

namespace jit::tvm {

/// A value's text; nothing for values of another kind.
std::optional<std::string_view> text_of(const Value& value);

struct NamedValue {
  std::string_view name;
  const Value* value;

  // Each throws Error invalid_argument, with the name as its field, for a value of another kind.
  const jit_tensor* tensor() const;  ///< null for None
  int whole() const;                 ///< also for a boolean
  double real() const;               ///< also for an integer
};

/// The arguments of a function of this library. They refer to the values.
struct GivenCall {
  std::string spec;
  std::vector<NamedValue> values;
};

/// Reads (spec, names, value, …): one value for each of the names, which spaces or commas separate. Throws Error
/// invalid_argument.
GivenCall read_call(const Value* arguments, std::int32_t count);

/// The first tensor's device; nothing without tensors.
std::optional<jit_tensor_device> device_of(const GivenCall& call);

}  // namespace jit::tvm
