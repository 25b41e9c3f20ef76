// A piece of a device's memory, freed at the end of its scope. Programs that have GPU memory of their own
// need none; for an emulated device there is no other.
#pragma once

#include <cstddef>

#include <jit/stream.h>

namespace jit {

/// Owns `size()` bytes on one device; movable. Copies are synchronous, and done when the call returns.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  /// Throws Error driver_error when memory is short. The bytes are not initialised.
  DeviceBuffer(int device, std::size_t bytes);
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;

  unsigned long long address() const { return address_; }
  void* data() const { return reinterpret_cast<void*>(address_); }
  std::size_t size() const { return bytes_; }

  void upload(const void* from, std::size_t bytes, std::size_t offset = 0) const;
  /// `stream` orders the copy: null, the default stream, may not be used while another thread captures.
  void download(void* to, std::size_t bytes, std::size_t offset = 0, Stream stream = nullptr) const;
  /// Sets every byte to `value`, on `stream`.
  void fill(unsigned char value, Stream stream) const;

 private:
  int device_ = 0;
  unsigned long long address_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace jit
