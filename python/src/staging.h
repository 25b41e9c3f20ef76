// CPU arrays on an emulated device: copies in its memory while it computes.
#pragma once

#include <cstddef>

#include <jit/device_buffer.h>
#include <jit/tensor.h>

namespace jit::python {

/// A host array's copy in an emulated device's memory, with the same strides and alignment.
class Staged {
 public:
  Staged() = default;
  /// With `contents`, copies the array; else only allocates.
  Staged(int device, const TensorView& host, bool contents);

  const TensorView& view() const { return view_; }
  /// Copies the elements back, without the gaps between them.
  void download() const;

 private:
  DeviceBuffer buffer_;
  std::byte* host_first_ = nullptr;  // first element by index
  std::byte* host_begin_ = nullptr;  // lowest address
  std::size_t bytes_ = 0;
  std::size_t offset_ = 0;
  TensorView view_;
};

}  // namespace jit::python
