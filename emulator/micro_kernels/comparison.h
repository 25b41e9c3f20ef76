// Comparison of results with recordings.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "micro_kernels/micro_kernel.h"

namespace jit::conformance {

struct Mismatches {
  std::size_t count = 0;  ///< elements
  std::size_t of = 0;
  double largest_ulps = 0;  ///< among finite ones; of integers: 0
  std::string first;  ///< the first few, one on a line: place, operands where they are simple, both values
};

/// Both have the size of the kernel's output.
Mismatches compare(const MicroKernel& kernel, std::span<const std::byte> expected,
                   std::span<const std::byte> got);

}  // namespace jit::conformance
