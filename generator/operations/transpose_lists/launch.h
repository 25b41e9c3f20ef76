// The launches that transpose lists.
#pragma once

#include <jit/stream.h>

#include "generator/operations/operation.h"
#include "templates/transpose_lists/params.cuh"

namespace jit {

/// The operation's state in a context, made and loaded on the current device if there is none.
const OperationState& transposing_state(ContextState& context);

/// Its kernel for launches on `stream` of `device`, the current one. Throws Error not_prepared under capture if it is not
/// loaded.
const LoadedKernel& transposing_kernel(ContextState& context, int device, Stream stream);

/// Puts the launches on `stream`. `params` has all but the step.
void launch_transpose(const LoadedKernel& kernel, TransposeListsParams params, Stream stream);

}  // namespace jit
