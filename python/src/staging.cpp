#include "staging.h"

#include <cstdint>

namespace jit::python {
namespace {

struct Extent {
  std::int64_t low = 0;   ///< elements before the first one
  std::int64_t high = 0;  ///< elements after it
  bool possible = true;   ///< no dimension is empty or negative, and memory could hold it
};

Extent extent_of(const TensorView& view) {
  Extent extent;
  for (int i = 0; i < view.rank; ++i) {
    std::int64_t reach = 0;
    if (view.shape[i] <= 0 || __builtin_mul_overflow(view.shape[i] - 1, view.strides[i], &reach) ||
        __builtin_add_overflow(reach < 0 ? extent.low : extent.high, reach,
                               reach < 0 ? &extent.low : &extent.high)) {
      extent.possible = false;
      return extent;
    }
  }
  constexpr std::int64_t most = std::int64_t{1} << 48;
  extent.possible = extent.low > -most && extent.high < most;
  return extent;
}

}  // namespace

Staged::Staged(int device, const TensorView& host, bool contents) : view_(host) {
  const Extent extent = extent_of(host);
  if (!extent.possible) return;  // nothing to copy, or what the checks of the call will refuse
  const int size = size_of(host.dtype);
  host_begin_ = static_cast<char*>(host.data) + extent.low * size;
  bytes_ = static_cast<std::size_t>(extent.high - extent.low + 1) * static_cast<std::size_t>(size);
  constexpr std::uintptr_t most_aligned = 16;
  offset_ = reinterpret_cast<std::uintptr_t>(host_begin_) % most_aligned;
  buffer_ = DeviceBuffer(device, bytes_ + offset_);
  view_.data = static_cast<char*>(buffer_.data()) + offset_ - extent.low * size;
  if (contents) buffer_.upload(host_begin_, bytes_, offset_);
}

void Staged::download() const {
  if (bytes_ != 0) buffer_.download(host_begin_, bytes_, offset_);
}

}  // namespace jit::python
