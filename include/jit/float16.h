/// @file
/// Conversion of 16-bit and 8-bit numbers on the host: exact to float, rounded to the nearest even from float, as on
/// GPUs.
///
/// @code
/// const std::uint16_t bits = jit::float_to_bits(jit::DType::bf16, 1.5f);
/// assert(bits == 0x3fc0 && jit::float_from_bits(jit::DType::bf16, bits) == 1.5f);
/// assert(jit::float_from_bits(jit::DType::fp8_e4m3, 0x38) == 1.0f);
/// @endcode
#pragma once

#include <cstdint>

#include <jit/tensor.h>

namespace jit {

/// The value of these bits. Requires: dtype is bf16, fp16, fp8_e4m3 or fp8_e5m2.
float float_from_bits(DType dtype, std::uint16_t bits);

/// The nearest number of the type; too large ones become infinite, NaN stays NaN. Requires: dtype is bf16 or
/// fp16.
std::uint16_t float_to_bits(DType dtype, float value);

}  // namespace jit
