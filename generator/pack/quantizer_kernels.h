// Quantizers that packs contain for FP8 attention.
#pragma once

#include <vector>

#include <jit/spec.h>

#include "generator/pack/kernel_build.h"

namespace jit {

/// Quantizers that produce q, k and v of the spec's calls from tensors of the type of o: with and without
/// rotation if head_dim allows it, with and without centered keys, with and without lengths. None if q is not
/// fp8.
std::vector<KernelBuild> of_quantizers(const AttentionSpec& spec, Target target);

}  // namespace jit
