// Sizes and initial contents of the memory that kernels need in addition to the tensors of a call.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <memory>

#include <cuda.h>

#include <jit/device_buffer.h>

namespace jit {

/// The initial value of each byte of a mailbox.
inline constexpr unsigned char mailbox_byte = 0xff;

/// The size of a workspace or mailbox: a power of two, so that few sizes serve all calls.
inline std::size_t rounded_up(std::size_t bytes) {
  constexpr std::size_t smallest = 4096;
  return std::bit_ceil(std::max(bytes, smallest));
}

/// The id of a stream, which unlike its handle is never reused (CUDA driver API, "cuStreamGetId").
unsigned long long stream_id(CUstream stream);

/// Memory filled with `value` on return, even while some stream is being captured.
std::unique_ptr<const DeviceBuffer> make_filled(int device, std::size_t bytes, unsigned char value);

}  // namespace jit
