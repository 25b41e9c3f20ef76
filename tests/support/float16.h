// Rounding to 16 and 8 bits, as references compute with it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <jit/float16.h>

namespace jit::reference {

inline float to_float(DType dtype, std::uint16_t bits) { return float_from_bits(dtype, bits); }
inline std::uint16_t from_float(DType dtype, float value) { return float_to_bits(dtype, value); }

/// `value` as the 16-bit type holds it.
inline float rounded(DType dtype, float value) { return to_float(dtype, from_float(dtype, value)); }

/// Half the distance between 1 and the next number: the largest relative error of one rounding.
inline double unit_roundoff(DType dtype) { return dtype == DType::bf16 ? 0x1p-8 : 0x1p-11; }

/// Codes of 8 bits by what they are worth: magnitudes grow with the code, whose upper bit is the sign.
class NearestCode {
 public:
  explicit NearestCode(DType dtype) {
    for (std::uint16_t code = 0; std::isfinite(float_from_bits(dtype, code)); ++code)
      magnitudes_.push_back(float_from_bits(dtype, code));
  }

  /// The code nearest to `wanted`; of two the smaller.
  unsigned char operator()(float wanted) const {
    const float magnitude = std::abs(wanted);
    auto nearest = std::lower_bound(magnitudes_.begin(), magnitudes_.end() - 1, magnitude);
    if (nearest != magnitudes_.begin() && magnitude - nearest[-1] <= *nearest - magnitude) --nearest;
    const auto code = nearest - magnitudes_.begin();
    return static_cast<unsigned char>(wanted < 0 && code != 0 ? code | 0x80 : code);
  }

 private:
  std::vector<float> magnitudes_;
};

}  // namespace jit::reference
