// Elements of q, k, v and o. Compiled by the host and by NVRTC.
#pragma once

#include "base/host_device.cuh"

namespace jit {

inline constexpr int element_bytes = 2;  ///< bf16 and fp16

/// Head dims are padded in shared memory to the 16 of mma's k.
JIT_HOST_DEVICE constexpr int padded_head_dim(int head_dim) { return (head_dim + 15) / 16 * 16; }

}  // namespace jit
