// Sizes and first contents of the memory that kernels need beside the tensors of a call.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <memory>

#include <cuda.h>

#include <jit/device_buffer.h>

namespace jit {

/// The value of each byte of a mailbox before a kernel writes to it.
inline constexpr unsigned char mailbox_byte = 0xff;

/// The size of a workspace or mailbox: a power of two, so that few sizes serve all calls.
inline std::size_t rounded_up(std::size_t bytes) {
  constexpr std::size_t smallest = 4096;
  return std::bit_ceil(std::max(bytes, smallest));
}

/// The id of a stream is never given again, unlike its handle (CUDA driver API, "cuStreamGetId").
unsigned long long stream_id(CUstream stream);

/// Memory whose bytes are `value` when this returns, though some stream is being captured.
std::unique_ptr<const DeviceBuffer> make_filled(int device, std::size_t bytes, unsigned char value);

}  // namespace jit
