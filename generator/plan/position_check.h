// Checked calls: whether position tables hold legal values.
#pragma once

#include <jit/spec.h>
#include <jit/stream.h>

#include "generator/build/kernel_store.h"
#include "templates/base/params.cuh"

namespace jit {

/// Checks the position tables of a call by a separate kernel, and waits for it. Does nothing for a spec
/// without positions or during stream capture. Throws Error invalid_argument, naming the table, element and
/// rule, and the errors of compiling and launching.
void check_positions(KernelStore& store, const AttentionSpec& spec, const AttentionParams& params, int device,
                     Stream stream);

}  // namespace jit
