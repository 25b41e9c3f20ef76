// What a kernel is given beside AttentionParams. Compiled by the host and by NVRTC.
#pragma once

#include "base/tensor_map.cuh"
#include "split_keys/split_params.cuh"

namespace jit::forward_mla_wgmma {

/// The kernel's second parameter.
struct KernelMemory {
  /// (head_dim, seqlen, heads, batch), pages: (head_dim, page_size, heads, pages); box: rows of a panel. Unused where keys
  /// are copied by cp.async.
  TensorMap k;
  SplitParams split_params;
};

}  // namespace jit::forward_mla_wgmma
