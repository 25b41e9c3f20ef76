// Conversion of a call's named buffers to the library's arguments.
#pragma once

#include <vector>

#include <jit/attention.h>

#include "xla/buffers.h"
#include "xla/problem.h"

namespace jit::xla {

/// A call's operands and results.
struct CallBuffers {
  std::vector<NamedBuffer> operands, results;
};

// Both throw Error invalid_argument for unknown and repeated names. An operand with a result's name gives the
// result's initial contents and must share its memory. The arguments refer to the names.
AttentionArguments forward_arguments(const Problem& problem, const CallBuffers& buffers);
BackwardArguments backward_arguments(const Problem& problem, const CallBuffers& buffers);

}  // namespace jit::xla
