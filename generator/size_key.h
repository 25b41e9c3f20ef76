// Keys of plans: device and size class.
#pragma once

#include <cstdint>

#include "cache/digest.h"
#include "generator/problem/problem_shape.h"

namespace jit {

// Spreads neighboring size classes: DispatchTable takes its slot from the low half.
inline Digest spread(std::uint64_t number) {
  return {.high = number, .low = number * 0x9e3779b97f4a7c15u >> 16};
}

/// The key of a device and the size class of a shape.
inline Digest size_key(int device, const ProblemShape& shape) {
  const SizeClass sizes = size_class(shape);
  return spread(
      static_cast<std::uint64_t>(device) << 32 | static_cast<std::uint64_t>(sizes.has_many_heads) << 29 |
      static_cast<std::uint64_t>(sizes.is_mixed) << 28 | static_cast<std::uint64_t>(sizes.pass) << 26 |
      static_cast<std::uint64_t>(sizes.has_device_lengths) << 25 |
      static_cast<std::uint64_t>(sizes.tma) << 24 | static_cast<std::uint64_t>(sizes.rows) << 16 |
      static_cast<std::uint64_t>(sizes.seqlen_q) << 8 | static_cast<std::uint64_t>(sizes.seqlen_kv));
}

}  // namespace jit
