// From the named buffers of a call to the arguments of the library.
#pragma once

#include <vector>

#include <jit/attention.h>

#include "xla/buffers.h"
#include "xla/problem.h"

namespace jit::xla {

/// Operands of a call, and results that it writes.
struct CallBuffers {
  std::vector<NamedBuffer> operands, results;
};

// Both throw Error invalid_argument for a name that no tensor has, and for one that is given twice. An operand may
// have the name of a result: it is what the result holds at first, and must be the same memory. The arguments refer
// to the names.
AttentionArguments forward_arguments(const Problem& problem, const CallBuffers& buffers);
BackwardArguments backward_arguments(const Problem& problem, const CallBuffers& buffers);

}  // namespace jit::xla
