// Memory of kernels whose blocks sum spans of keys one after another (templates/split_keys/waiting_spans.cuh).
#pragma once

#include <cstddef>

#include <jit/spec.h>

#include "templates/base/params.cuh"
#include "templates/split_keys/span_memory.cuh"

namespace jit {

/// Bytes of the results that wait in a block of so many threads, each with `rows` rows of O; 0: none ever waits.
std::size_t waiting_bytes(const AttentionSpec& spec, const AttentionParams& params, int threads,
                          int rows = 2);

/// The parameter of such a kernel, of blocks that have as much of `workspace` each. Requires: spec.split_keys != 0.
SpanMemory span_memory(const AttentionSpec& spec, const AttentionParams& params, void* workspace);

}  // namespace jit
