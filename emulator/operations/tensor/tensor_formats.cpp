#include "operations/tensor/tensor_formats.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <stdexcept>

#include "operations/warps/lanes.h"

namespace jit::emulator {
namespace {

struct Element {
  std::uint32_t bits;  // bits of the f32
  int exponent;
};

// All bits when the condition holds; the following code is branchless, so that its loops vectorize.
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

// The encoding of infinity and NaN.
enum class Special {
  top,   // all codes with the largest exponent
  last,  // only the code with all bits set
  none,
};

// A format with fewer exponent bits than f32 and `fraction` fraction bits, magnitude in the low bits.
template <int fraction, int exponent_bits, Special specials>
[[gnu::always_inline]] inline Element decode_small(std::uint32_t magnitude, std::uint32_t sign) {
  constexpr int bias = (1 << (exponent_bits - 1)) - 1;
  constexpr std::uint32_t top = (1u << exponent_bits) - 1;
  constexpr std::uint32_t largest = (top << fraction) | ((1u << fraction) - 1);
  const std::uint32_t exponent = magnitude >> fraction;
  const std::uint32_t special = mask_of(specials == Special::top    ? exponent == top
                                        : specials == Special::last ? magnitude == largest
                                                                    : false);
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
    return decode_small<10, 5, Special::top>(raw & 0x7fff, (raw & 0x8000) << 16);
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
    return decode_small<3, 4, Special::last>(raw & 0x7f, (raw & 0x80) << 24);
  }
};
struct FromE5m2 {
  using Raw = std::uint8_t;
  [[gnu::always_inline]] Element operator()(std::uint32_t raw) const {
    return decode_small<2, 5, Special::top>(raw & 0x7f, (raw & 0x80) << 24);
  }
};
// Elements of 6 and 4 bits in bytes: the low 6 bits, or the 4 in the middle.
struct FromE2m3 {
  using Raw = std::uint8_t;
  [[gnu::always_inline]] Element operator()(std::uint32_t raw) const {
    return decode_small<3, 2, Special::none>(raw & 0x1f, (raw & 0x20) << 26);
  }
};
struct FromE3m2 {
  using Raw = std::uint8_t;
  [[gnu::always_inline]] Element operator()(std::uint32_t raw) const {
    return decode_small<2, 3, Special::none>(raw & 0x1f, (raw & 0x20) << 26);
  }
};
struct FromE2m1 {
  using Raw = std::uint8_t;
  [[gnu::always_inline]] Element operator()(std::uint32_t raw) const {
    return decode_small<1, 2, Special::none>(raw >> 2 & 7, (raw & 0x20) << 26);
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
    case Type::e2m3:
      return decode_all<FromE2m3>(elements, count, values, exponents);
    case Type::e3m2:
      return decode_all<FromE3m2>(elements, count, values, exponents);
    case Type::e2m1:
      return decode_all<FromE2m1>(elements, count, values, exponents);
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

void widen_elements(Type type, std::byte* pieces, std::size_t count) {
  const auto width = static_cast<std::size_t>(bits(type));
  if (width >= 8) return;
  const int shift = type == Type::e2m1 ? 2 : 0;
  constexpr std::size_t in_piece = 16;
  for (std::size_t piece = 0; piece < count; ++piece, pieces += in_piece) {
    std::array<std::byte, in_piece + 1> packed{};
    std::memcpy(packed.data(), pieces, in_piece);
    for (std::size_t i = 0; i < in_piece; ++i) {
      const std::size_t bit = i * width;
      const unsigned both =
          std::to_integer<unsigned>(packed[bit / 8]) | std::to_integer<unsigned>(packed[bit / 8 + 1]) << 8;
      pieces[i] = static_cast<std::byte>((both >> bit % 8 & ((1u << width) - 1)) << shift);
    }
  }
}

void decode_elements(Type type, const void* elements, std::size_t count, float* values,
                     std::int16_t* exponents) {
  vectorized([](auto... arguments) { decode_any(arguments...); }, type, elements, count, values, exponents);
}

}  // namespace jit::emulator
