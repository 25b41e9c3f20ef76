// What a kernel is given beside AttentionParams where TMA copies tiles. Compiled by the host and by NVRTC.
#pragma once

#include "base/tensor_map.cuh"
#include "split_keys/split_params.cuh"

namespace jit::forward_split_kv {

/// The kernel's second parameter.
struct KernelMemory {
  TensorMap
      k;  ///< (head_dim, seqlen, heads, batch), pages: (head_dim, page_size, heads, pages); box: rows of a panel
  TensorMap v;
  SplitParams split_params;
};

}  // namespace jit::forward_split_kv
