// Inputs of micro-kernels, generated rather than stored: the same seed gives the same bytes on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace jit::conformance {

enum class Element : std::uint8_t { i8, i16, i32, i64, e4m3, e5m2, f16, bf16, tf32, f32, f64 };
std::size_t bytes_of(Element element);
bool is_float(Element element);
std::string_view to_string(Element element);

enum class Pattern : std::uint8_t {
  edges,       ///< operands of an arithmetic instruction: every pair of edge values, then a mixture
  bits,        ///< uniform bits
  integers,    ///< −8 … 8: products and sums are exact
  normals,     ///< random mantissas, exponents of −2 … 1
  wide,        ///< all finite exponents
  subnormals,  ///< half of them subnormal, the rest among the smallest normals
  specials,    ///< normals with a few infinities, NaNs, zeros and largest values
  canceling,   ///< neighbors nearly cancel; with `mirrored` as the other operand, so do their products
  mirrored,    ///< neighbors equal
  ties,        ///< few bits set, so that sums and products are often halfway cases
  range,       ///< evenly over [low, high]
  index,       ///< 0, 1, 2, …
  filler,      ///< every byte 0xcd
  zeros,
};
std::string_view to_string(Pattern pattern);

/// A device buffer and its contents before the launch.
struct Buffer {
  Element element = Element::i32;
  Pattern pattern = Pattern::bits;
  std::size_t count = 0;  ///< elements
  int operand = 0;        ///< of `edges`: index of the combined operand, from 0; −1: the only one
  double low = 0;         ///< of `range`; also of `edges` when not empty
  double high = 0;

  std::size_t bytes() const { return count * bytes_of(element); }
};

std::vector<std::byte> generate(const Buffer& buffer, std::uint64_t seed);

/// 64-bit FNV-1a.
std::uint64_t hash(const void* data, std::size_t bytes, std::uint64_t start = 0xcbf29ce484222325u);
inline std::uint64_t hash(std::string_view text) { return hash(text.data(), text.size()); }

/// Value of a float's bits.
double decode(Element element, std::uint64_t bits);
/// "0x3f800000 (1)"
std::string describe(Element element, std::uint64_t bits);

}  // namespace jit::conformance
