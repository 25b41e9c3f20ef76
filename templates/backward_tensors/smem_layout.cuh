// Tiles of a block, and the layout of its shared memory. Host and NVRTC compile this file; the generated program
// asserts that both compute the same size.
#pragma once

#include "backward/pass_smem.cuh"

namespace jit::backward_tensors {

/// Keys of a tile, and the warps of a block that have 16 queries each: few where rows are long, beside as many that copy.
inline constexpr int tile_kv = 32;
JIT_HOST_DEVICE constexpr int row_warps(int head_dim, int head_dim_v) {
  return column_warps(head_dim, head_dim_v) == 1 ? 4 : 1;
}
JIT_HOST_DEVICE constexpr int tile_q(int head_dim, int head_dim_v) {
  return 16 * row_warps(head_dim, head_dim_v);
}
JIT_HOST_DEVICE constexpr int threads(int head_dim, int head_dim_v) {
  return 32 * row_warps(head_dim, head_dim_v) * column_warps(head_dim, head_dim_v);
}

JIT_HOST_DEVICE constexpr PassSmem smem_layout(int head_dim, int head_dim_v) {
  return pass_smem(head_dim, head_dim_v, tile_q(head_dim, head_dim_v), tile_kv, 0, 1);
}

}  // namespace jit::backward_tensors
