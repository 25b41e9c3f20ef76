// The map of a block's shared memory. Compiled by the host, which needs the size to launch, and by NVRTC; the
// generated program asserts that both came to the same size.
#pragma once

#include "base/element.cuh"
#include "base/host_device.cuh"

namespace jit::backward_dkv_mma_sync {

/// Byte offsets from the start of dynamic shared memory.
///
///     | K | V | Q stage 0 | dO | LSE | delta | Q stage 1 | dO | LSE | delta … |
///
/// dK leaves through K's place and dV through V's.
struct SmemLayout {
  int k;
  int v;
  int q;  ///< of stage 0
  int d_o;
  int lse_log2;
  int delta;
  int stage_bytes;  ///< from one stage to the next
  int total;
};

JIT_HOST_DEVICE constexpr SmemLayout smem_layout(int head_dim, int head_dim_v, int tile_q, int tile_kv,
                                                 int stages) {
  const int row = padded_head_dim(head_dim) * element_bytes,
            row_v = padded_head_dim(head_dim_v) * element_bytes;
  // A tile begins at a multiple of 128 bytes.
  const int statistics = (tile_q * 4 + 127) / 128 * 128;
  SmemLayout layout{};
  layout.k = 0;
  layout.v = tile_kv * row;
  layout.q = layout.v + tile_kv * row_v;
  layout.d_o = layout.q + tile_q * row;
  layout.lse_log2 = layout.d_o + tile_q * row_v;
  layout.delta = layout.lse_log2 + statistics;
  layout.stage_bytes = tile_q * (row + row_v) + 2 * statistics;
  layout.total = layout.q + stages * layout.stage_bytes;
  return layout;
}

template <class Config>
JIT_HOST_DEVICE constexpr SmemLayout smem_layout() {
  return smem_layout(Config::head_dim, Config::head_dim_v, Config::tile_q, Config::tile_kv, Config::stages);
}

}  // namespace jit::backward_dkv_mma_sync
