// Shared memory of rows of 8-bit latents as they are stored, of each warp that copies and converts them. Compiled by the
// host and by NVRTC.
#pragma once

#include "base/host_device.cuh"

namespace jit {

/// Groups of rows that a warp's ring has room for, and rows of a group.
inline constexpr int latent_ring_groups = 3, latent_ring_rows = 8;

/// Bytes from row to row, each of so many bytes: whole chunks.
JIT_HOST_DEVICE constexpr int latent_ring_row(int row_bytes) { return (row_bytes + 15) / 16 * 16; }

/// Bytes of the rings of so many warps, for rows of so many bytes.
JIT_HOST_DEVICE constexpr int latent_ring_bytes(int row_bytes, int warps) {
  return warps * latent_ring_groups * latent_ring_rows * latent_ring_row(row_bytes);
}

}  // namespace jit
