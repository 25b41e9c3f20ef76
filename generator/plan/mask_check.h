// Checked calls: whether a mask's functions are consistent.
#pragma once

#include <jit/spec.h>
#include <jit/stream.h>

#include "generator/build/kernel_store.h"
#include "templates/base/params.cuh"

namespace jit {

/// Compares the mask's other functions with its `keep` for all scores of a call, by a separate kernel, and
/// waits for it. Does nothing during stream capture. Throws Error invalid_spec, naming the mask, query and
/// key of a mismatch, and the errors of compiling and launching.
void check_mask(KernelStore& store, const AttentionSpec& spec, const AttentionParams& params, int device,
                Stream stream);

}  // namespace jit
