// Quantizers that packs have beside kernels of FP8 attention.
#pragma once

#include <vector>

#include <jit/spec.h>

#include "generator/pack/kernel_build.h"

namespace jit {

/// The quantizers of which the spec's calls take q, k and v, out of tensors of the type of o: rotated or not where head_dim
/// can be, with or without k's mean, and of calls with lengths and without. None where q is not of fp8.
std::vector<KernelBuild> of_quantizers(const AttentionSpec& spec, Target target);

}  // namespace jit
