// Checked calls: whether tables of positions hold what they may.
#pragma once

#include <jit/spec.h>
#include <jit/stream.h>

#include "generator/build/kernel_store.h"
#include "templates/base/params.cuh"

namespace jit {

/// Looks at the tables of a call by a kernel of its own, and waits for it. Nothing happens for a spec without positions, and
/// while the stream is being captured. Throws Error invalid_argument, which names the table, the element and the rule, and
/// what compiling and launching throw.
void check_positions(KernelStore& store, const AttentionSpec& spec, const AttentionParams& params, int device,
                     Stream stream);

}  // namespace jit
