#include "generator/tensors/overlap.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <utility>

namespace jit {
namespace {

// A view in bytes, to compare views of different types, such as rows and the scales stored inline after them.
struct Bytes {
  std::int64_t shape[max_rank + 1] = {};
  std::int64_t strides[max_rank + 1] = {};
  int rank = 0;
};

// Nothing if strides overflow as byte counts.
std::optional<Bytes> bytes_of(const TensorView& view) {
  Bytes bytes;
  const int size = size_of(view.dtype);
  for (int i = 0; i < view.rank; ++i) {
    bytes.shape[i] = view.shape[i];
    if (__builtin_mul_overflow(view.strides[i], size, &bytes.strides[i])) return {};
  }
  const bool has_dense_rows = view.rank > 0 && view.strides[view.rank - 1] == 1;
  bytes.rank = view.rank + (has_dense_rows ? 0 : 1);
  if (has_dense_rows) {
    bytes.shape[bytes.rank - 1] *= size;
  } else {
    bytes.shape[bytes.rank - 1] = size;
  }
  bytes.strides[bytes.rank - 1] = 1;
  return bytes;
}

// Whether two views with equal strides, such as slices of a packed tensor, share a byte: whether their
// distance is a difference of two indices. Tries for each dimension, from the largest stride on, the two
// nearest multiples.
bool same_stride_overlap(const Bytes& a, const Bytes& b, std::int64_t distance, unsigned used) {
  int widest = -1;
  for (int i = 0; i < a.rank; ++i) {
    // A dimension of one element may have any stride.
    const bool moves = std::max(a.shape[i], b.shape[i]) > 1;
    if (moves && !(used >> i & 1) && (widest < 0 || std::abs(a.strides[i]) > std::abs(a.strides[widest])))
      widest = i;
  }
  if (widest < 0) return distance == 0;
  const std::int64_t stride = std::abs(a.strides[widest]);
  // Range of an index of b minus one of a, with positive strides.
  std::int64_t least = 1 - a.shape[widest], most = b.shape[widest] - 1;
  if (a.strides[widest] < 0) least = -std::exchange(most, -least);
  if (stride == 0) return same_stride_overlap(a, b, distance, used | 1u << widest);
  const std::int64_t below = distance >= 0 ? distance / stride : -((-distance + stride - 1) / stride);
  for (const std::int64_t steps : {below, below + 1}) {
    if (steps >= least && steps <= most &&
        same_stride_overlap(a, b, distance - steps * stride, used | 1u << widest))
      return true;
  }
  return false;
}

// Whether views of equal strides in their first dimension, such as parts of pages, share a byte, each page
// taken as a range. Only pages of which one begins at most a stride before the other can.
bool pages_meet(const TensorView& a, const TensorView& b, std::int64_t stride) {
  const auto of_page = [](TensorView view) {
    view.shape[0] = 1;
    return byte_range(view);
  };
  const ByteRange page = of_page(a), other = of_page(b);
  if (page.end - page.begin > stride || other.end - other.begin > stride) return true;
  const std::int64_t distance = page.begin - other.begin;
  const std::int64_t below = distance >= 0 ? distance / stride : -((-distance + stride - 1) / stride);
  for (const std::int64_t steps : {below, below + 1}) {
    const bool exists = steps >= 1 - a.shape[0] && steps <= b.shape[0] - 1;
    if (exists && page.meets({other.begin + steps * stride, other.end + steps * stride})) return true;
  }
  return false;
}

}  // namespace

bool overlaps_itself(const TensorView& tensor) {
  if (!has_elements(tensor)) return false;
  struct Dimension {
    std::int64_t size, stride;
  };
  Dimension dimensions[max_rank];
  int count = 0;
  for (int i = 0; i < tensor.rank; ++i) {
    if (tensor.shape[i] <= 1) continue;
    const Dimension dimension{tensor.shape[i], std::abs(tensor.strides[i])};
    int place = count++;
    for (; place > 0 && dimensions[place - 1].stride > dimension.stride; --place)
      dimensions[place] = dimensions[place - 1];
    dimensions[place] = dimension;
  }
  std::int64_t extent = 1;
  for (int i = 0; i < count; ++i) {
    if (dimensions[i].stride < extent) return true;
    extent += (dimensions[i].size - 1) * dimensions[i].stride;
  }
  return false;
}

bool overlap(const TensorView& a, const TensorView& b) {
  if (!byte_range(a).meets(byte_range(b))) return false;
  const std::optional<Bytes> of_a = bytes_of(a), of_b = bytes_of(b);
  if (!of_a || !of_b || of_a->rank != of_b->rank) return true;
  for (int i = 0; i < of_a->rank; ++i) {
    if (of_a->strides[i] == of_b->strides[i]) continue;
    const std::int64_t stride = of_a->strides[0];
    return i == 0 || stride <= 0 || pages_meet(a, b, stride);
  }
  return same_stride_overlap(
      *of_a, *of_b, reinterpret_cast<std::intptr_t>(a.data) - reinterpret_cast<std::intptr_t>(b.data), 0);
}

}  // namespace jit
