// Memory of kernels whose blocks sum spans of keys in order (templates/split_keys/waiting_spans.cuh).
#pragma once

#include <cstddef>

#include <jit/spec.h>

#include "templates/base/params.cuh"
#include "templates/split_keys/span_memory.cuh"

namespace jit {

/// Bytes of waiting results of a block of `threads` threads with `rows` rows of O each; 0 if none ever waits.
std::size_t waiting_bytes(const AttentionSpec& spec, const AttentionParams& params, int threads,
                          int rows = 2);

/// The parameter of such a kernel, whose blocks divide `workspace`. Requires: spec.split_keys != 0.
SpanMemory span_memory(const AttentionSpec& spec, const AttentionParams& params, void* workspace);

}  // namespace jit
