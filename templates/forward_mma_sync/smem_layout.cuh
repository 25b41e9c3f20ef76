// The map of a block's shared memory. Compiled by the host, which needs the size to launch, and by NVRTC; the
// generated program asserts that both came to the same size.
#pragma once

#include "base/element.cuh"
#include "base/host_device.cuh"

namespace jit::forward_mma_sync {

/// Byte offsets from the start of dynamic shared memory.
///
///     Q in shared memory:   | Q | K stage 0 | K stage 1 … | V stage 0 | V stage 1 … |
///     Q in registers:       | K stage 0 | K stage 1 … | V stage 0 | V stage 1 … |
///     at the end:           | O |
///
/// Q that goes to registers passes through before K comes; O lies over whatever lay there.
struct SmemLayout {
  int q;
  int k;
  int v;
  int o;
  int total;
};

JIT_HOST_DEVICE constexpr SmemLayout smem_layout(int head_dim, int head_dim_v, int tile_q, int tile_kv,
                                                 int stages_k, int stages_v, bool q_in_registers) {
  const int q_bytes = tile_q * padded_head_dim(head_dim) * element_bytes;
  const int k_bytes = tile_kv * padded_head_dim(head_dim) * element_bytes;
  const int v_bytes = tile_kv * padded_head_dim(head_dim_v) * element_bytes;
  const int o_bytes = tile_q * padded_head_dim(head_dim_v) * element_bytes;
  SmemLayout layout{};
  layout.q = 0;
  layout.k = q_in_registers ? 0 : q_bytes;
  layout.v = layout.k + stages_k * k_bytes;
  layout.o = 0;
  layout.total = layout.v + stages_v * v_bytes;
  if (layout.total < q_bytes) layout.total = q_bytes;
  if (layout.total < o_bytes) layout.total = o_bytes;
  return layout;
}

template <class Config>
JIT_HOST_DEVICE constexpr SmemLayout smem_layout() {
  return smem_layout(Config::head_dim, Config::head_dim_v, Config::tile_q, Config::tile_kv, Config::stages_k,
                     Config::stages_v, Config::q_in_registers);
}

}  // namespace jit::forward_mma_sync
