/// @file
/// A piece of a device's memory, freed at the end of its scope. Programs that have GPU memory of their own
/// need none; for an emulated device there is no other.
///
/// @code
/// std::vector<float> values(256, 1.0f);
/// const jit::DeviceBuffer buffer(0, values.size() * sizeof(float));  // on device 0
/// buffer.upload(values.data(), buffer.size());
/// buffer.fill(0, stream);
/// buffer.download(values.data(), buffer.size(), 0, stream);
/// assert(values[0] == 0 && buffer.address() != 0);
/// const jit::TensorView tensor = jit::TensorView::dense(buffer.data(), jit::DType::fp32, {4, 64});
/// @endcode
#pragma once

#include <cstddef>

#include <jit/stream.h>

namespace jit {

/// Owns `size()` bytes on one device; movable. Copies are complete when the call returns. They throw Error
/// invalid_argument for bytes outside the buffer; every function that uses the device throws driver_error. Several
/// threads may copy at the same time.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  /// Throws Error driver_error when memory is short. The bytes are not initialized.
  DeviceBuffer(int device, std::size_t bytes);
  ~DeviceBuffer();
  /// Takes over the memory of `other`, which has none afterwards.
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  /// Frees the own memory, and takes over that of `other`.
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;

  /// Address on the device; 0 without bytes.
  unsigned long long address() const { return address_; }
  /// The address as TensorView takes it; null without bytes.
  void* data() const { return reinterpret_cast<void*>(address_); }
  /// Number of bytes.
  std::size_t size() const { return bytes_; }

  /// Copies `bytes` bytes from the host to `offset`, and back.
  void upload(const void* from, std::size_t bytes, std::size_t offset = 0) const;
  /// Copies to the host, after the work on `stream`. Do not use null, the default stream, while another thread
  /// captures.
  void download(void* to, std::size_t bytes, std::size_t offset = 0, Stream stream = nullptr) const;
  /// Sets every byte to `value`, on `stream`.
  void fill(unsigned char value, Stream stream) const;

 private:
  int device_ = 0;
  unsigned long long address_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace jit
