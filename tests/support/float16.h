// Rounding to 16 bits, as references compute with it.

#include <jit/float16.h>
#pragma once

namespace jit::reference {

inline float to_float(DType dtype, std::uint16_t bits) { return float_from_bits(dtype, bits); }
inline std::uint16_t from_float(DType dtype, float value) { return float_to_bits(dtype, value); }

/// `value` as the 16-bit type holds it.
inline float rounded(DType dtype, float value) { return to_float(dtype, from_float(dtype, value)); }

/// Half the distance between 1 and the next number: the largest relative error of one rounding.
inline double unit_roundoff(DType dtype) { return dtype == DType::bf16 ? 0x1p-8 : 0x1p-11; }

}  // namespace jit::reference
