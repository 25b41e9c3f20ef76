// Instructions whose result in a thread depends only on that thread's operands.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "micro_kernels/kernel_text.h"

namespace jit::conformance {

/// A row of a table of such instructions; each thread evaluates one set of operands.
struct Scalar {
  /// The instruction without operands; with `body`, only the micro-kernel's name.
  std::string name;
  /// A letter for the result, then one for each operand: h f16, g bf16, H f16x2, G bf16x2, f f32, F f32x2,
  /// t tf32, d f64, b 8, s 16, i 32 and l 64 bits of integer, e e4m3, E e5m2, x e4m3x2, X e5m2x2, p predicate (result
  /// only).
  std::string signature;
  /// Instructions with $0 for the result and $1, $2, … for the operands; empty: the one of the name. May use
  /// %q<8> .pred, %x<8> .b32, %y<8> .b64 and %z<8> .b16.
  std::string body = {};
  double low = 0, high = 0;  ///< range of half of the operands in the second half of the threads
  Comparison comparison = {};
};

/// `version`: PTX version.
MicroKernel scalar_kernel(const Scalar& scalar, const std::string& target, const char* version = "8.7");
void append(std::vector<MicroKernel>& kernels, std::span<const Scalar> table, const std::string& target,
            const char* version = "8.7");

}  // namespace jit::conformance
