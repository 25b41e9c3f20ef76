// The gradient of O before an output functor, which a backward call's first kernel computes for the others.
#pragma once

#include <cstddef>

#include <jit/spec.h>

#include "templates/base/gradient_params.cuh"

namespace jit {

/// The gradient at `data`.
RawGradient raw_gradient(const AttentionSpec& spec, const AttentionParams& params, void* data);

/// The gradient's size in bytes; 0 without an output functor.
std::size_t raw_gradient_bytes(const AttentionSpec& spec, const AttentionParams& params);

}  // namespace jit
