// CPU arrays on an emulated device: its memory holds copies of them while it computes.
#pragma once

#include <cstddef>

#include <jit/device_buffer.h>
#include <jit/tensor.h>

namespace jit::python {

/// A copy of an array of the host in an emulated device's memory, with the same strides and alignment.
class Staged {
 public:
  Staged() = default;
  /// Copies the array's contents; with `contents` false only makes room.
  Staged(int device, const TensorView& host, bool contents);

  const TensorView& view() const { return view_; }
  /// Copies the elements back, and nothing that lies between them.
  void download() const;

 private:
  DeviceBuffer buffer_;
  std::byte* host_first_ = nullptr;  // of the elements by index
  std::byte* host_begin_ = nullptr;  // of their memory
  std::size_t bytes_ = 0;
  std::size_t offset_ = 0;
  TensorView view_;
};

}  // namespace jit::python
