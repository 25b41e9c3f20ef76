// A call's operands and results by their names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <jit/tensor.h>

#include "xla/abi.h"

namespace jit::xla {

/// A buffer as a view of the library.
struct NamedBuffer {
  std::string_view name;  ///< from the list of names, which outlives it
  TensorView view;
};

/// The buffers of a call with their names. A buffer "rng_state" may be uint32 (4), read as int64 (2), since
/// JAX disables 64 bits by default. Throws Error invalid_argument unless there are as many names as buffers,
/// and for element types and ranks that no tensor of a call has; `kind` is "operands" or "results".
std::vector<NamedBuffer> named_buffers(const Buffers& buffers, const std::vector<std::string>& names,
                                       std::string_view kind);

}  // namespace jit::xla
