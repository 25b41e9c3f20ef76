// Shared memory of rows of 8-bit latents as they are stored, of each warp that copies and converts them. Compiled by the
// host and by NVRTC.
#pragma once

#include "base/host_device.cuh"

namespace jit {

/// Stages of a warp, and rows of each.
inline constexpr int stored_stages = 3, stored_stage_rows = 8;

/// Bytes from row to row, each of so many bytes: whole chunks.
JIT_HOST_DEVICE constexpr int stored_row_stride(int row_bytes) { return (row_bytes + 15) / 16 * 16; }

/// Bytes of the stages of so many warps, for rows of so many bytes.
JIT_HOST_DEVICE constexpr int stored_latent_bytes(int row_bytes, int warps) {
  return warps * stored_stages * stored_stage_rows * stored_row_stride(row_bytes);
}

}  // namespace jit
