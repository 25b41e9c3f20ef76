// Transposition of small matrices in vector registers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace jit::emulator {
namespace detail {

using Vector4 [[gnu::vector_size(16)]] = std::uint32_t;
using Vector8 [[gnu::vector_size(16)]] = std::uint16_t;

template <class Vector>
Vector load_vector(const void* from) {
  Vector vector;
  std::memcpy(&vector, from, sizeof(Vector));
  return vector;
}
template <class Vector>
void store_vector(void* to, Vector vector) {
  std::memcpy(to, &vector, sizeof(Vector));
}

inline Vector4 low_pairs(Vector4 a, Vector4 b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
inline Vector4 high_pairs(Vector4 a, Vector4 b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }
inline Vector8 low_pairs(Vector8 a, Vector8 b) {
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}
inline Vector8 high_pairs(Vector8 a, Vector8 b) {
  return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}

}  // namespace detail

/// Transposes a 4 × 4 matrix of 32-bit elements; the strides are bytes between rows.
inline void transpose_4x4(const std::byte* from, std::size_t from_stride, std::byte* to,
                          std::size_t to_stride) {
  using namespace detail;
  const auto row = [&](std::size_t r) { return load_vector<Vector4>(from + r * from_stride); };
  const Vector4 a = low_pairs(row(0), row(2)), b = high_pairs(row(0), row(2));
  const Vector4 c = low_pairs(row(1), row(3)), d = high_pairs(row(1), row(3));
  store_vector(to, low_pairs(a, c));
  store_vector(to + to_stride, high_pairs(a, c));
  store_vector(to + 2 * to_stride, low_pairs(b, d));
  store_vector(to + 3 * to_stride, high_pairs(b, d));
}

/// Transposes a contiguous 8 × 8 matrix of 16-bit elements. May be in place.
inline void transpose_8x8(const void* from, void* to) {
  using namespace detail;
  constexpr std::size_t rows = 8;
  Vector8 now[rows], then[rows];
  std::memcpy(now, from, sizeof(now));
  // Each step interleaves rows i and i + 4; three steps move the three bits of the row index.
  for (int step = 0; step < 3; ++step) {
    for (std::size_t i = 0; i < rows / 2; ++i) {
      then[2 * i] = low_pairs(now[i], now[i + 4]);
      then[2 * i + 1] = high_pairs(now[i], now[i + 4]);
    }
    std::memcpy(now, then, sizeof(now));
  }
  std::memcpy(to, now, sizeof(now));
}

}  // namespace jit::emulator
