// The gradient of o before an output functor, which the first kernel of a backward call leaves for the others.
#pragma once

#include <cstddef>

#include <jit/spec.h>

#include "templates/base/gradient_params.cuh"

namespace jit {

/// It at an address.
RawGradient raw_gradient(const AttentionSpec& spec, const AttentionParams& params, void* data);

/// Its bytes; 0 without such a functor.
std::size_t raw_gradient_bytes(const AttentionSpec& spec, const AttentionParams& params);

}  // namespace jit
