#include "staging.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace jit::python {
namespace {

struct Extent {
  std::int64_t low = 0;   ///< elements before the first one
  std::int64_t high = 0;  ///< elements after it
  bool possible = true;   ///< no dimension is empty or negative, and the size fits memory
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
  if (!extent.possible) return;  // nothing to copy, or the call's checks will refuse it
  const int size = size_of(host.dtype);
  host_first_ = static_cast<std::byte*>(host.data);
  host_begin_ = host_first_ + extent.low * size;
  bytes_ = static_cast<std::size_t>(extent.high - extent.low + 1) * static_cast<std::size_t>(size);
  constexpr std::uintptr_t most_aligned = 16;
  offset_ = reinterpret_cast<std::uintptr_t>(host_begin_) % most_aligned;
  buffer_ = DeviceBuffer(device, bytes_ + offset_);
  view_.data = static_cast<char*>(buffer_.data()) + offset_ - extent.low * size;
  if (contents) buffer_.upload(host_begin_, bytes_, offset_);
}

void Staged::download() const {
  if (bytes_ == 0) return;
  // Copies by way of a buffer: others may be writing to the gaps between elements.
  std::vector<std::byte> copy(bytes_);
  buffer_.download(copy.data(), bytes_, offset_);
  const int size = size_of(view_.dtype);
  const int last = view_.rank - 1;
  const bool whole_rows = view_.strides[last] == 1;
  const std::int64_t columns = whole_rows ? 1 : view_.shape[last];
  const std::size_t piece =
      static_cast<std::size_t>(whole_rows ? view_.shape[last] : 1) * static_cast<std::size_t>(size);
  std::int64_t index[max_rank] = {};
  const std::ptrdiff_t first = host_first_ - host_begin_;
  for (bool more = true; more;) {
    std::int64_t elements = 0;
    for (int i = 0; i < last; ++i) elements += index[i] * view_.strides[i];
    for (std::int64_t column = 0; column < columns; ++column) {
      const std::ptrdiff_t place = first + (elements + column * view_.strides[last]) * size;
      std::memcpy(host_begin_ + place, copy.data() + place, piece);
    }
    more = false;
    for (int i = last - 1; i >= 0 && !more; --i) {
      more = ++index[i] < view_.shape[i];
      if (!more) index[i] = 0;
    }
  }
}

}  // namespace jit::python
