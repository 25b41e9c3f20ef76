// Whether tensors share memory.
#pragma once

#include <cstdint>

#include <jit/tensor.h>

namespace jit {

inline bool has_elements(const TensorView& tensor) {
  for (int i = 0; i < tensor.rank; ++i) {
    if (tensor.shape[i] == 0) return false;
  }
  return tensor.rank != 0;
}

/// Address range from a tensor's first byte to its end; empty without elements.
struct ByteRange {
  std::intptr_t begin = 0, end = 0;

  bool meets(const ByteRange& other) const { return begin < other.end && other.begin < end; }
};
inline ByteRange byte_range(const TensorView& tensor) {
  if (!has_elements(tensor)) return {};
  std::int64_t low = 0, high = 0;
  for (int i = 0; i < tensor.rank; ++i) {
    const std::int64_t reach = (tensor.shape[i] - 1) * tensor.strides[i];
    (reach < 0 ? low : high) += reach;
  }
  const auto base = reinterpret_cast<std::intptr_t>(tensor.data);
  const int bytes = size_of(tensor.dtype);
  return {base + low * bytes, base + (high + 1) * bytes};
}

/// Whether two elements may share an address: not if, in order of strides, each stride exceeds the extent of
/// the previous dimensions.
bool overlaps_itself(const TensorView& tensor);

/// Whether two tensors may share a byte. Exact for views with equal strides, such as slices of a packed
/// tensor; conservative for others, by address ranges: of their pages, if the first dimension has equal
/// strides.
bool overlap(const TensorView& a, const TensorView& b);

}  // namespace jit
