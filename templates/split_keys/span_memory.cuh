// Memory of waiting results of spans (split_keys/waiting_spans.cuh). Host and NVRTC compile this file.
#pragma once

#include "base/element.cuh"
#include "base/host_device.cuh"

namespace jit {

/// The third parameter of a kernel whose blocks compute the spans of a work tile one after another.
struct SpanMemory {
  float* pairs;  ///< the memory; contents may be anything
  int levels;    ///< of the tree of the spans of the longest sequence, above the spans themselves
};

/// Pairs of floats of a result in a thread's registers: `rows` rows of O, and a state for each.
JIT_HOST_DEVICE constexpr int span_node_pairs(int head_dim_v, int rows = 2) {
  return rows * padded_head_dim(head_dim_v) / 8 + rows;
}

}  // namespace jit
