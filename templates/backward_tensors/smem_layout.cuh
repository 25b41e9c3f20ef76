// The map of a block's shared memory. Compiled by the host, which needs the size to launch, and by NVRTC; the
// generated program asserts that both came to the same size.
#pragma once

#include "base/element.cuh"
#include "base/host_device.cuh"

namespace jit::backward_tensors {

/// Queries and keys of a tile.
inline constexpr int warps = 4;
inline constexpr int tile_q = 16 * warps;
inline constexpr int tile_kv = 32;

/// Byte offsets from the start of dynamic shared memory.
///
///     | Q | dO | K | V |
struct SmemLayout {
  int q;
  int d_o;
  int k;
  int v;
  int total;
};

JIT_HOST_DEVICE constexpr SmemLayout smem_layout(int head_dim, int head_dim_v) {
  const int row = padded_head_dim(head_dim) * element_bytes,
            row_v = padded_head_dim(head_dim_v) * element_bytes;
  SmemLayout layout{};
  layout.q = 0;
  layout.d_o = tile_q * row;
  layout.k = layout.d_o + tile_q * row_v;
  layout.v = layout.k + tile_kv * row;
  layout.total = layout.v + tile_kv * row_v;
  return layout;
}

}  // namespace jit::backward_tensors
