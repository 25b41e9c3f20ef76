// Checked calls: whether a mask's functions agree with one another.
#pragma once

#include <jit/spec.h>
#include <jit/stream.h>

#include "generator/build/kernel_store.h"
#include "templates/base/params.cuh"

namespace jit {

/// Compares all that the spec's mask says of the scores of a call with its `keep`, by a kernel of its own, and waits for it.
/// Nothing happens while the stream is being captured. Throws Error invalid_spec, which names the mask, the query and the
/// key, where they disagree, and what compiling and launching throw.
void check_mask(KernelStore& store, const AttentionSpec& spec, const AttentionParams& params, int device,
                Stream stream);

}  // namespace jit
