// The map of a block's shared memory. Compiled by the host, which needs the size to launch, and by NVRTC; the
// generated program asserts that both came to the same size.
#pragma once

#include "base/element.cuh"
#include "base/host_device.cuh"

namespace jit::backward_dq_mma_sync {

/// Byte offsets from the start of dynamic shared memory.
///
///     | Q | dO | K stage 0 | V stage 0 | K stage 1 | V stage 1 … |
///
/// dQ leaves through Q's place.
struct SmemLayout {
  int q;
  int d_o;
  int k;  ///< of stage 0
  int v;
  int stage_bytes;  ///< from one stage to the next
  int total;
};

JIT_HOST_DEVICE constexpr SmemLayout smem_layout(int head_dim, int head_dim_v, int tile_q, int tile_kv,
                                                 int stages) {
  const int row = padded_head_dim(head_dim) * element_bytes,
            row_v = padded_head_dim(head_dim_v) * element_bytes;
  SmemLayout layout{};
  layout.q = 0;
  layout.d_o = tile_q * row;
  layout.k = layout.d_o + tile_q * row_v;
  layout.v = layout.k + tile_kv * row;
  layout.stage_bytes = tile_kv * (row + row_v);
  layout.total = layout.k + stages * layout.stage_bytes;
  return layout;
}

template <class Config>
JIT_HOST_DEVICE constexpr SmemLayout smem_layout() {
  return smem_layout(Config::head_dim, Config::head_dim_v, Config::tile_q, Config::tile_kv, Config::stages);
}

}  // namespace jit::backward_dq_mma_sync
