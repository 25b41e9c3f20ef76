// Memory of results of spans that wait (split_keys/waiting_spans.cuh). Compiled by the host and by NVRTC.
#pragma once

#include "base/element.cuh"
#include "base/host_device.cuh"

namespace jit {

/// The third parameter of a kernel whose blocks sum spans of keys one after another.
struct SpanMemory {
  float* pairs;  ///< of any contents
  int levels;    ///< of the tree of the spans of the longest sequence, above the spans themselves
};

/// Pairs of floats that a thread keeps of a result: those of `rows` rows of O, and a state of each.
JIT_HOST_DEVICE constexpr int span_node_pairs(int head_dim_v, int rows = 2) {
  return rows * padded_head_dim(head_dim_v) / 8 + rows;
}

}  // namespace jit
