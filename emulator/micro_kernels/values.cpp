#include "micro_kernels/values.h"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <stdexcept>

#include <fmt/format.h>

namespace jit::conformance {
namespace {

// Layout of a float: sign, exponent, mantissa.
struct Format {
  int exponent_bits;
  int mantissa_bits;
  int unused_bits;  ///< below the mantissa
};

Format format_of(Element element) {
  switch (element) {
    case Element::e4m3:
      return {4, 3, 0};
    case Element::e5m2:
      return {5, 2, 0};
    case Element::f16:
      return {5, 10, 0};
    case Element::bf16:
      return {8, 7, 0};
    case Element::tf32:
      return {8, 10, 13};
    case Element::f32:
      return {8, 23, 0};
    case Element::f64:
      return {11, 52, 0};
    default:
      throw std::logic_error(fmt::format("{} is not a float", to_string(element)));
  }
}

std::uint64_t low_bits(int count) {
  return count >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
}

class Generator {
 public:
  Generator(const Buffer& buffer, std::uint64_t seed)
      : buffer_(buffer), width_(static_cast<int>(bytes_of(buffer.element)) * 8), random_(seed) {
    if (is_float(buffer.element)) {
      format_ = format_of(buffer.element);
      bias_ = (1 << (format_.exponent_bits - 1)) - 1;
      // The last exponent holds infinity and NaN, except in e4m3.
      last_exponent_ = (1 << format_.exponent_bits) - (buffer.element == Element::e4m3 ? 1 : 2);
      make_float_edges();
    } else {
      make_integer_edges();
    }
  }

  std::uint64_t at(std::size_t index) {
    switch (buffer_.pattern) {
      case Pattern::edges:
        return edge_or_mixture(index);
      case Pattern::bits:
        return random_() & low_bits(width_);
      case Pattern::integers:
        return number(static_cast<double>(below(17)) - 8);
      case Pattern::normals:
        return with_exponent(bias_ - 2 + static_cast<int>(below(4)));
      case Pattern::wide:
        return with_exponent(1 + static_cast<int>(below(static_cast<std::uint32_t>(last_exponent_ - 1))));
      case Pattern::subnormals:
        return with_exponent(below(2) != 0 ? 0 : static_cast<int>(below(4)));
      case Pattern::specials:
        return below(24) == 0 ? pick(edges_) : with_exponent(bias_ - 2 + static_cast<int>(below(4)));
      case Pattern::canceling:
        return canceling(index);
      case Pattern::mirrored:
        if (index % 2 == 0) last_ = with_exponent(bias_ - 3 + static_cast<int>(below(6)));
        return last_;
      case Pattern::ties:
        return tie();
      case Pattern::range:
        return from_range();
      case Pattern::index:
        return is_float(buffer_.element) ? number(static_cast<double>(index)) : index & low_bits(width_);
      case Pattern::filler:
        return 0xcdcdcdcdcdcdcdcdu & low_bits(width_);
      case Pattern::zeros:
        return 0;
    }
    throw std::logic_error("unknown pattern");
  }

 private:
  std::uint32_t below(std::uint32_t bound) {
    return static_cast<std::uint32_t>((random_() >> 32) * bound >> 32);
  }
  std::uint64_t pick(std::span<const std::uint64_t> from) {
    return from[below(static_cast<std::uint32_t>(from.size()))];
  }

  std::uint64_t assemble(std::uint64_t sign, std::uint64_t exponent, std::uint64_t mantissa) const {
    const int mantissa_bits = format_.mantissa_bits + format_.unused_bits;
    return sign << (width_ - 1) | exponent << mantissa_bits | mantissa << format_.unused_bits;
  }
  std::uint64_t with_exponent(int exponent) {
    std::uint64_t mantissa = random_() & low_bits(format_.mantissa_bits);
    // e4m3 has one NaN, with all bits set.
    if (buffer_.element == Element::e4m3 && exponent == 15 && mantissa == 7) mantissa = 6;
    return assemble(below(2), static_cast<std::uint64_t>(exponent), mantissa);
  }

  /// A value that the element holds exactly, or the nearest towards zero.
  std::uint64_t number(double value) const {
    if (!is_float(buffer_.element))
      return static_cast<std::uint64_t>(static_cast<std::int64_t>(value)) & low_bits(width_);
    if (value == 0) return assemble(std::signbit(value) ? 1 : 0, 0, 0);
    int exponent = 0;
    const double fraction = std::frexp(std::fabs(value), &exponent) * 2 - 1;  // of 1.…
    const int biased = exponent - 1 + bias_;
    if (biased > last_exponent_) return assemble(value < 0, static_cast<std::uint64_t>(last_exponent_), 0);
    if (biased < 1) {
      const double scaled = std::ldexp(std::fabs(value), bias_ - 1 + format_.mantissa_bits);
      return assemble(value < 0, 0, static_cast<std::uint64_t>(scaled));
    }
    const auto mantissa = static_cast<std::uint64_t>(std::ldexp(fraction, format_.mantissa_bits));
    return assemble(value < 0, static_cast<std::uint64_t>(biased), mantissa);
  }

  std::uint64_t from_range() {
    const double unit = static_cast<double>(random_() >> 11) * 0x1p-53;
    const double span = buffer_.high - buffer_.low;
    return number(is_float(buffer_.element) ? buffer_.low + unit * span
                                            : std::floor(buffer_.low + unit * (span + 1)));
  }

  std::uint64_t tie() {
    std::uint64_t mantissa = 0;
    for (int i = static_cast<int>(below(3)); i > 0; --i) {
      mantissa |= std::uint64_t{1} << below(static_cast<std::uint32_t>(format_.mantissa_bits));
    }
    if (below(4) == 0) mantissa = ~mantissa & low_bits(format_.mantissa_bits);
    const int spread = format_.mantissa_bits + 2;
    const int exponent = bias_ - spread / 2 + static_cast<int>(below(static_cast<std::uint32_t>(spread)));
    return assemble(below(2), static_cast<std::uint64_t>(std::min(std::max(exponent, 1), last_exponent_ - 1)),
                    mantissa);
  }

  std::uint64_t canceling(std::size_t index) {
    if (index % 2 == 0) {
      last_ = with_exponent(bias_ - 1 + static_cast<int>(below(3)));
      return last_;
    }
    // The negated neighbor, sometimes off by its last bit.
    const std::uint64_t opposite = last_ ^ assemble(1, 0, 0);
    return below(4) == 0 ? opposite ^ assemble(0, 0, 1) : opposite;
  }

  std::uint64_t edge_or_mixture(std::size_t index) {
    if (buffer_.operand < 0) return index < edges_.size() ? edges_[index] : mixture();
    if (index < edges_.size() * edges_.size()) {
      if (buffer_.operand == 0) return edges_[index % edges_.size()];
      if (buffer_.operand == 1) return edges_[index / edges_.size()];
      return below(2) != 0 ? pick(edges_) : mixture();
    }
    return mixture();
  }

  std::uint64_t mixture() {
    const bool has_range = buffer_.low < buffer_.high;
    if (has_range && below(2) != 0) return from_range();
    if (!is_float(buffer_.element)) {
      switch (below(4)) {
        case 0:
          return below(64);
        case 1:
          return pick(edges_);
        default:
          return random_() & low_bits(width_);
      }
    }
    switch (below(8)) {
      case 0:
        return pick(edges_);
      case 1:
        return number(static_cast<double>(below(64)) / 2 - 16);
      case 2:
        return with_exponent(0);
      case 3:
        return random_() & low_bits(width_) & ~low_bits(format_.unused_bits);
      case 4:
      case 5:
        return tie();
      default:
        return with_exponent(bias_ - 4 + static_cast<int>(below(8)));
    }
  }

  void make_integer_edges() {
    const std::uint64_t all = low_bits(width_);
    const std::uint64_t top = std::uint64_t{1} << (width_ - 1);
    const std::uint64_t half = low_bits(width_ / 2);
    edges_ = {0,
              1,
              2,
              3,
              7,
              all,
              all - 1,
              top,
              top - 1,
              top + 1,
              half,
              half + 1,
              static_cast<std::uint64_t>(width_) - 1,
              static_cast<std::uint64_t>(width_),
              0x5555555555555555u & all,
              0x123456789abcdef0u & all};
  }

  void make_float_edges() {
    const std::uint64_t ones = low_bits(format_.mantissa_bits);
    const auto one = static_cast<std::uint64_t>(bias_);
    const auto last = static_cast<std::uint64_t>(last_exponent_);
    const std::uint64_t largest = buffer_.element == Element::e4m3 ? ones - 1 : ones;
    edges_ = {assemble(0, 0, 0),          assemble(1, 0, 0),          assemble(0, 0, 1),
              assemble(1, 0, ones),       assemble(0, 1, 0),          assemble(0, one, 0),
              assemble(1, one, 0),        assemble(0, one, 1),        assemble(1, one - 1, 0),
              assemble(0, one + 1, ones), assemble(0, last, largest), assemble(1, last, largest)};
    const std::uint64_t beyond = last + 1;
    if (buffer_.element == Element::e4m3) {
      edges_.insert(edges_.end(),
                    {assemble(0, 15, 7), assemble(1, 15, 7), assemble(0, 1, 1), assemble(0, 14, 0)});
    } else {
      const std::uint64_t quiet = std::uint64_t{1} << (format_.mantissa_bits - 1);
      edges_.insert(edges_.end(), {assemble(0, beyond, 0), assemble(1, beyond, 0),
                                   assemble(0, beyond, quiet | (quiet >> 1)), assemble(1, beyond, 1)});
    }
  }

  const Buffer& buffer_;
  int width_;
  std::mt19937_64 random_;  // portable, unlike the outputs of std distributions
  Format format_{};
  int bias_ = 0;
  int last_exponent_ = 0;
  std::vector<std::uint64_t> edges_;
  std::uint64_t last_ = 0;
};

}  // namespace

std::size_t bytes_of(Element element) {
  switch (element) {
    case Element::i8:
    case Element::e4m3:
    case Element::e5m2:
      return 1;
    case Element::i16:
    case Element::f16:
    case Element::bf16:
      return 2;
    case Element::i32:
    case Element::tf32:
    case Element::f32:
      return 4;
    case Element::i64:
    case Element::f64:
      return 8;
  }
  return 0;
}

bool is_float(Element element) { return element >= Element::e4m3; }

std::string_view to_string(Element element) {
  constexpr std::array names = {"i8",  "i16",  "i32",  "i64", "e4m3", "e5m2",
                                "f16", "bf16", "tf32", "f32", "f64"};
  return names.at(static_cast<std::size_t>(element));
}

std::string_view to_string(Pattern pattern) {
  constexpr std::array names = {"edges",      "bits",     "integers",   "normals",  "wide",
                                "subnormals", "specials", "cancelling", "mirrored", "ties",
                                "range",      "index",    "filler",     "zeros"};
  return names.at(static_cast<std::size_t>(pattern));
}

std::vector<std::byte> generate(const Buffer& buffer, std::uint64_t seed) {
  std::vector<std::byte> bytes(buffer.bytes());
  Generator generator(buffer, seed);
  const std::size_t size = bytes_of(buffer.element);
  for (std::size_t i = 0; i < buffer.count; ++i) {
    const std::uint64_t value = generator.at(i);
    std::memcpy(bytes.data() + i * size, &value, size);
  }
  return bytes;
}

std::uint64_t hash(const void* data, std::size_t bytes, std::uint64_t start) {
  const auto* at = static_cast<const unsigned char*>(data);
  for (std::size_t i = 0; i < bytes; ++i) start = (start ^ at[i]) * 0x100000001b3u;
  return start;
}

double decode(Element element, std::uint64_t bits) {
  const Format format = format_of(element);
  bits >>= format.unused_bits;
  const std::uint64_t mantissa = bits & low_bits(format.mantissa_bits);
  const int exponent = static_cast<int>(bits >> format.mantissa_bits & low_bits(format.exponent_bits));
  const double sign = (bits >> (format.mantissa_bits + format.exponent_bits) & 1) != 0 ? -1 : 1;
  const int last = (1 << format.exponent_bits) - 1;
  if (element == Element::e4m3 ? exponent == last && mantissa == 7 : exponent == last && mantissa != 0) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  if (element != Element::e4m3 && exponent == last) return sign * std::numeric_limits<double>::infinity();
  const double fraction =
      std::ldexp(static_cast<double>(mantissa), -format.mantissa_bits) + (exponent == 0 ? 0 : 1);
  return sign * std::ldexp(fraction, std::max(exponent, 1) - (last >> 1));
}

std::string describe(Element element, std::uint64_t bits) {
  const std::string digits = fmt::format("0x{:0{}x}", bits, bytes_of(element) * 2);
  return is_float(element) ? fmt::format("{} ({:.9g})", digits, decode(element, bits)) : digits;
}

}  // namespace jit::conformance
