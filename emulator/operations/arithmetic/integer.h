// Common code of the integer family.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

#include <fmt/format.h>

#include "machine/decoder.h"

namespace jit::emulator {

/// Extended precision: add.cc, addc, sub.cc, subc, mad.cc, madc. Null for forms without CC.CF.
std::unique_ptr<const Operation> decode_carry(Decoder& decoder);
/// Logic, shifts and bit fields; null for another opcode.
std::unique_ptr<const Operation> decode_bits(Decoder& decoder);

// 128-bit integers are a compiler extension.
__extension__ using Int128 = __int128;
__extension__ using UnsignedInt128 = unsigned __int128;

/// The type twice as wide as T.
template <class T>
struct Doubled;
template <>
struct Doubled<std::uint16_t> : std::type_identity<std::uint32_t> {};
template <>
struct Doubled<std::int16_t> : std::type_identity<std::int32_t> {};
template <>
struct Doubled<std::uint32_t> : std::type_identity<std::uint64_t> {};
template <>
struct Doubled<std::int32_t> : std::type_identity<std::int64_t> {};
template <>
struct Doubled<std::uint64_t> : std::type_identity<UnsignedInt128> {};
template <>
struct Doubled<std::int64_t> : std::type_identity<Int128> {};

/// The type in which sums and products of T wrap around without undefined behavior.
template <class T>
using Wrapping = std::conditional_t<(sizeof(T) > 4), std::uint64_t, std::uint32_t>;

/// The low half of a product.
template <class T>
constexpr T multiply_low(T a, T b) {
  return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
}
/// The high half of a product.
template <class T>
constexpr T multiply_high(T a, T b) {
  using Product = typename Doubled<T>::type;
  if constexpr (std::is_signed_v<T>) {
    return static_cast<T>((static_cast<Product>(a) * b) >> (8 * sizeof(T)));
  } else {
    return static_cast<T>(static_cast<Product>(static_cast<Product>(a) * b) >> (8 * sizeof(T)));
  }
}

/// Calls f(T{}) for the C++ type of a 16- to 64-bit integer type.
template <class F>
std::unique_ptr<const Operation> with_integer(const Decoder& decoder, Type type, F f) {
  switch (type) {
    case Type::u16:
      return f(std::uint16_t{});
    case Type::u32:
      return f(std::uint32_t{});
    case Type::u64:
      return f(std::uint64_t{});
    case Type::s16:
      return f(std::int16_t{});
    case Type::s32:
      return f(std::int32_t{});
    case Type::s64:
      return f(std::int64_t{});
    default:
      decoder.fail(fmt::format("type .{} is not one of .u16, .u32, .u64, .s16, .s32, .s64", to_string(type)));
  }
}

/// An operation where signs do not matter: f works on the unsigned type.
template <class F>
std::unique_ptr<const Operation> with_unsigned(const Decoder& decoder, Type type, F f) {
  return with_integer(decoder, type, [&]<class T>(T) { return f(std::make_unsigned_t<T>{}); });
}

}  // namespace jit::emulator
