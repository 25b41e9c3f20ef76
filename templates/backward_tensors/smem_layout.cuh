// Tiles of a block, and the map of its shared memory. Compiled by the host, which needs the size to launch, and by NVRTC; the
// generated program asserts that both came to the same size.
#pragma once

#include "backward/pass_smem.cuh"

namespace jit::backward_tensors {

/// Queries and keys of a tile.
inline constexpr int warps = 4;
inline constexpr int tile_q = 16 * warps;
inline constexpr int tile_kv = 32;

JIT_HOST_DEVICE constexpr PassSmem smem_layout(int head_dim, int head_dim_v) {
  return pass_smem(head_dim, head_dim_v, tile_q, tile_kv, 0, 1);
}

}  // namespace jit::backward_tensors
