// The key of a spec in tables in memory.
#pragma once

#include <optional>

#include <jit/kernel_config.h>
#include <jit/spec.h>

#include "cache/digest.h"

namespace jit {

/// Equal for equal specs and configs alone. Allocates nothing. Every field counts: those that the kernel does
/// not know (softmax_scale) are part of what a handle computes.
Digest dispatch_key(const AttentionSpec& spec, const std::optional<KernelConfig>& config);

}  // namespace jit
