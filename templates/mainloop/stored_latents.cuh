// Shared memory of rows of 8-bit latents as they are stored, of each warp that copies and converts them. Compiled by the
// host and by NVRTC.
#pragma once

#include "base/host_device.cuh"
#include "mainloop/row_quads.cuh"

namespace jit {

/// Stages of a warp, of a quad of rows each: as many as fit.
inline constexpr int least_stored_stages = 3, most_stored_stages = 6;

/// Bytes from row to row, each of so many bytes: an odd number of halves of what all banks hold, so that halves of two
/// neighbors lie in different banks.
JIT_HOST_DEVICE constexpr int stored_row_stride(int row_bytes) { return (row_bytes + 63) / 128 * 128 + 64; }

/// Bytes of so many stages of each of so many warps, for rows of so many bytes.
JIT_HOST_DEVICE constexpr int stored_latent_bytes(int row_bytes, int warps, int stages) {
  return row_bytes == 0 ? 0 : warps * stages * quad_rows * stored_row_stride(row_bytes);
}

}  // namespace jit
