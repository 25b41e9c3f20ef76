// The launches that transpose lists.
#pragma once

#include <jit/stream.h>

#include "generator/operations/operation.h"
#include "templates/transpose_lists/params.cuh"

namespace jit {

/// The operation's state in a context, created and loaded on the current device if necessary.
const OperationState& transposing_state(ContextState& context);

/// Its kernel for launches on `stream` of `device`, which must be current. Throws Error not_prepared during
/// stream capture if it is not loaded.
const LoadedKernel& transposing_kernel(ContextState& context, int device, Stream stream);

/// Queues the launches on `stream`. `params` has everything but the step.
void launch_transpose(const LoadedKernel& kernel, TransposeListsParams params, Stream stream);

}  // namespace jit
