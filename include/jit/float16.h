/// @file
/// Numbers of 16 bits, and of 8, on the host: exact one way, rounded to nearest even the other, as GPUs do it.
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
