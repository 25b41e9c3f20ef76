// Keys of specs in tables in memory.
#pragma once

#include <optional>

#include <jit/kernel_config.h>
#include <jit/spec.h>

#include "cache/digest.h"

namespace jit {

/// The key of a spec and config; different ones have different keys. Counts every field: those that kernels
/// do not depend on (softmax_scale) still decide what a handle computes. Allocates nothing.
Digest dispatch_key(const AttentionSpec& spec, const std::optional<KernelConfig>& config);

}  // namespace jit
