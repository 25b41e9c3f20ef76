// Parameters of a kernel by TMA whose keys are split over blocks, beside AttentionParams. Compiled by the host and by
// NVRTC.
#pragma once

#include "base/tensor_map.cuh"
#include "split_keys/split_params.cuh"

namespace jit {

/// The kernel's second parameter. Maps are of (head_dim, seqlen, heads, batch), in pages of (head_dim, page_size,
/// heads, pages); boxes are rows of a panel. A map that the kernel has no use for is not made.
struct KernelMemory {
  TensorMap k;
  TensorMap v;
  SplitParams split_params;
};

}  // namespace jit
