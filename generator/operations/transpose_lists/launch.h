// The launches that transpose lists.
#pragma once

#include "generator/launch/loaded_kernel.h"
#include "runtime/launch.h"
#include "templates/transpose_lists/params.cuh"

namespace jit {

/// Puts them on `stream`. `params` has all but the step.
void launch_transpose(const LoadedKernel& kernel, TransposeListsParams params, CUstream stream);

}  // namespace jit
