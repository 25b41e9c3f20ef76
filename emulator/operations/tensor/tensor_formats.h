// Number formats of tensor-core operands, decoded for dot products.
#pragma once

#include <cstddef>
#include <cstdint>

#include "machine/types.h"

namespace jit::emulator {

// Exponents of zero, infinity and NaN. The sum of two exponents gives the kind of a product: below
// `zero_product` one factor is 0 and the other finite; above any finite sum one factor is infinite or NaN.
inline constexpr std::int16_t zero_exponent = -8000;
inline constexpr std::int16_t special_exponent = 16200;
inline constexpr std::int16_t zero_product = -7000;

/// Values of operands as floats, which hold each of them exactly, and the exponents by which hardware aligns:
/// a subnormal has the format's least one, and a significand below 1.
struct Factors {
  const float* values = nullptr;
  const std::int16_t* exponents = nullptr;
};

/// Bytes of an element as tensor cores read it: tf32 lies in 4.
int element_bytes(Type type);

/// Widens 16-byte pieces that contain 16 elements of 4 or 6 bits and padding to a byte per element, as tensor
/// memory holds them. Wider elements stay unchanged.
void widen_elements(Type type, std::byte* pieces, std::size_t count);

/// Decodes `count` consecutive elements of `type`: f16, bf16, tf32 (the 13 low bits are dropped), e4m3, e5m2,
/// or e2m3, e3m2 and e2m1 in bytes. No alignment is needed.
void decode_elements(Type type, const void* elements, std::size_t count, float* values,
                     std::int16_t* exponents);

}  // namespace jit::emulator
