// Checked calls: whether tables of positions and ends of subtrees hold legal values.
#pragma once

#include <jit/spec.h>
#include <jit/stream.h>

#include "generator/build/kernel_store.h"
#include "templates/base/params.cuh"

namespace jit {

/// Checks the position tables of a call, and the ends that the mask `tree` reads, by separate kernels, and
/// waits for them. Does nothing for a spec without these or during stream capture. Throws Error
/// invalid_argument, naming the array, element and rule, and the errors of compiling and launching.
void check_arrays(KernelStore& store, const AttentionSpec& spec, const AttentionParams& params, int device,
                  Stream stream);

}  // namespace jit
