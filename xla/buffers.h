// Operands and results of a call, by the names that the caller gave them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <jit/tensor.h>

#include "xla/abi.h"

namespace jit::xla {

/// A buffer as the library takes it.
struct NamedBuffer {
  std::string_view name;  ///< of the list of names, which outlives it
  TensorView view;
};

/// The buffers of a call with their names. A buffer "rng_state" may be uint32 (4), whose bits are read as int64 (2):
/// JAX has no 64 bits by default. Throws Error invalid_argument where there are more buffers than names, or fewer, or
/// one of them has an element type or a rank that no tensor of a call has; `kind` is "operands" or "results".
std::vector<NamedBuffer> named_buffers(const Buffers& buffers, const std::vector<std::string>& names,
                                       std::string_view kind);

}  // namespace jit::xla
