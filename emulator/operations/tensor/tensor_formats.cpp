#include "operations/tensor/tensor_formats.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>

#include "operations/warps/lanes.h"

namespace jit::emulator {
namespace {

struct Element {
  std::uint32_t bits;  // of the float
  int exponent;
};

// All bits when the condition holds: what follows has no branches, so that loops over it become vectors.
[[gnu::always_inline]] inline std::uint32_t mask_of(bool condition) {
  return 0u - static_cast<std::uint32_t>(condition);
}
[[gnu::always_inline]] inline std::uint32_t choose(std::uint32_t mask, std::uint32_t yes, std::uint32_t no) {
  return (yes & mask) | (no & ~mask);
}

[[gnu::always_inline]] inline int choose_exponent(std::uint32_t special, std::uint32_t zero, int ordinary) {
  const std::uint32_t finite =
      choose(zero, static_cast<std::uint32_t>(zero_exponent), static_cast<std::uint32_t>(ordinary));
  return static_cast<int>(choose(special, special_exponent, finite));
}

// A format with fewer exponent bits than f32 and `fraction` bits below the point, magnitude in the low bits.
// `all_special`: every number with the largest exponent is infinite or NaN; else only the one with all bits
// set.
template <int fraction, int exponent_bits, bool all_special>
[[gnu::always_inline]] inline Element decode_small(std::uint32_t magnitude, std::uint32_t sign) {
  constexpr int bias = (1 << (exponent_bits - 1)) - 1;
  constexpr std::uint32_t top = (1u << exponent_bits) - 1;
  constexpr std::uint32_t largest = (top << fraction) | ((1u << fraction) - 1);
  const std::uint32_t exponent = magnitude >> fraction;
  const std::uint32_t special = mask_of(all_special ? exponent == top : magnitude == largest);
  const std::uint32_t subnormal = mask_of(exponent == 0);
  const float unit = std::bit_cast<float>(static_cast<std::uint32_t>(127 + 1 - bias - fraction) << 23);
  const auto small =
      std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<std::int32_t>(magnitude)) * unit);
  const std::uint32_t shifted = magnitude << (23 - fraction);
  const std::uint32_t normal = shifted + (static_cast<std::uint32_t>(127 - bias) << 23);
  return {choose(special, 0x7f800000u | shifted, choose(subnormal, small, normal)) | sign,
          choose_exponent(special, mask_of(magnitude == 0), static_cast<int>(exponent - subnormal) - bias)};
}

[[gnu::always_inline]] inline Element decode_wide(std::uint32_t bits) {
  const std::uint32_t exponent = (bits >> 23) & 255;
  return {bits, choose_exponent(mask_of(exponent == 255), mask_of((bits << 1) == 0),
                                static_cast<int>(exponent - mask_of(exponent == 0)) - 127)};
}

struct FromF16 {
  using Raw = std::uint16_t;
  [[gnu::always_inline]] Element operator()(std::uint32_t raw) const {
    return decode_small<10, 5, true>(raw & 0x7fff, (raw & 0x8000) << 16);
  }
};
struct FromBf16 {
  using Raw = std::uint16_t;
  [[gnu::always_inline]] Element operator()(std::uint32_t raw) const { return decode_wide(raw << 16); }
};
struct FromTf32 {
  using Raw = std::uint32_t;
  [[gnu::always_inline]] Element operator()(std::uint32_t raw) const {
    return decode_wide(raw & 0xffffe000u);
  }
};
struct FromE4m3 {
  using Raw = std::uint8_t;
  [[gnu::always_inline]] Element operator()(std::uint32_t raw) const {
    return decode_small<3, 4, false>(raw & 0x7f, (raw & 0x80) << 24);
  }
};
struct FromE5m2 {
  using Raw = std::uint8_t;
  [[gnu::always_inline]] Element operator()(std::uint32_t raw) const {
    return decode_small<2, 5, true>(raw & 0x7f, (raw & 0x80) << 24);
  }
};

template <class From>
[[gnu::always_inline]] inline void decode_all(const void* elements, std::size_t count, float* values,
                                              std::int16_t* exponents) {
  const auto* bytes = static_cast<const unsigned char*>(elements);
  for (std::size_t i = 0; i < count; ++i) {
    typename From::Raw raw;
    std::memcpy(&raw, bytes + i * sizeof(raw), sizeof(raw));
    const Element element = From{}(raw);
    values[i] = std::bit_cast<float>(element.bits);
    exponents[i] = static_cast<std::int16_t>(element.exponent);
  }
}

[[gnu::always_inline]] inline void decode_any(Type type, const void* elements, std::size_t count,
                                              float* values, std::int16_t* exponents) {
  switch (type) {
    case Type::f16:
      return decode_all<FromF16>(elements, count, values, exponents);
    case Type::bf16:
      return decode_all<FromBf16>(elements, count, values, exponents);
    case Type::tf32:
      return decode_all<FromTf32>(elements, count, values, exponents);
    case Type::e4m3:
      return decode_all<FromE4m3>(elements, count, values, exponents);
    case Type::e5m2:
      return decode_all<FromE5m2>(elements, count, values, exponents);
    default:
      throw std::logic_error("no type of tensor-core operands");
  }
}

}  // namespace

int element_bytes(Type type) {
  switch (type) {
    case Type::tf32:
      return 4;
    case Type::f16:
    case Type::bf16:
      return 2;
    default:
      return 1;
  }
}

void decode_elements(Type type, const void* elements, std::size_t count, float* values,
                     std::int16_t* exponents) {
  vectorized([](auto... arguments) { decode_any(arguments...); }, type, elements, count, values, exponents);
}

}  // namespace jit::emulator
