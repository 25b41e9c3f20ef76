#include "tests/support/tensor_reference.h"

#include <cmath>
#include <limits>

namespace jit::emulator::testing {

double NumberFormat::value(std::uint32_t raw) const {
  const double sign = raw >> (bits - 1) & 1 ? -1.0 : 1.0;
  const int top = (1 << exponent_bits) - 1;
  const std::uint32_t most = (1u << fraction_bits) - 1;
  if (field(raw) == top && !has_numbers) {
    if (has_infinity && fraction(raw) == 0) return sign * std::numeric_limits<double>::infinity();
    if (has_infinity || fraction(raw) == most) return std::numeric_limits<double>::quiet_NaN();
  }
  const double significand = std::ldexp(fraction(raw), -fraction_bits) + (field(raw) != 0 ? 1 : 0);
  return sign * std::ldexp(significand, exponent(raw));
}

std::uint32_t encode_exact(const NumberFormat& format, double value) {
  const std::uint32_t sign = std::signbit(value) ? 1u << (format.bits - 1) : 0;
  const std::uint32_t top = ((1u << format.exponent_bits) - 1) << format.fraction_bits;
  if (std::isnan(value)) return (1u << (format.bits - 1)) - 1;
  if (value == 0) return sign;
  if (std::isinf(value)) return sign | top;
  int exponent = 0;
  std::frexp(value, &exponent);
  exponent = std::max(exponent - 1, 1 - format.bias());
  if (exponent > format.bias()) return sign | top;
  const auto significand =
      static_cast<std::uint32_t>(std::ldexp(std::fabs(value), format.fraction_bits - exponent));
  const auto field = static_cast<std::uint32_t>(exponent + format.bias()) << format.fraction_bits;
  const std::uint32_t hidden = 1u << format.fraction_bits;
  return sign | (significand >= hidden ? field | (significand - hidden) : significand);
}

namespace {

// One group: bits of the accumulator in, bits out.
std::uint32_t sum_group(const SumRule& rule, const NumberFormat& a, const NumberFormat& b,
                        const std::vector<std::uint32_t>& x, const std::vector<std::uint32_t>& y,
                        std::uint32_t c) {
  const NumberFormat& format = rule.to_f16 ? f16_numbers : f32_numbers;
  double plain = format.value(c);
  int top = -126;
  if (plain != 0) top = std::max(top, format.exponent(c));
  std::vector<double> products;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double product = products.emplace_back(a.value(x[i]) * b.value(y[i]));
    plain += product;
    if (product != 0) top = std::max(top, a.exponent(x[i]) + b.exponent(y[i]));
  }
  if (!std::isfinite(plain)) return encode_exact(format, plain);
  const auto cut = [&](double value) { return std::trunc(std::ldexp(value, rule.fraction_bits - top)); };
  double sum = cut(format.value(c));
  for (const double product : products) sum += cut(product);
  if (sum == 0) return 0;
  sum = std::ldexp(sum, top - rule.fraction_bits);
  int exponent = 0;
  std::frexp(sum, &exponent);
  exponent = std::max(exponent - 1, 1 - format.bias());
  const int last = exponent - (rule.to_f16 ? 10 : rule.kept_fraction);
  const double units = std::ldexp(sum, -last);
  return encode_exact(format, std::ldexp(rule.to_f16 ? std::nearbyint(units) : std::trunc(units), last));
}

}  // namespace

std::uint32_t reference_sum(const SumRule& rule, const NumberFormat& a, const NumberFormat& b,
                            const std::vector<std::uint32_t>& x, const std::vector<std::uint32_t>& y,
                            std::uint32_t c) {
  std::vector<std::vector<std::size_t>> groups;
  if (rule.through_f16) {
    groups.resize(2);
    for (std::size_t i = 0; i < x.size(); ++i) groups[i % 4 / 2].push_back(i);
  } else {
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (i % static_cast<std::size_t>(rule.group) == 0) groups.emplace_back();
      groups.back().push_back(i);
    }
  }
  std::uint32_t sum = rule.through_f16 ? 0 : c;
  for (const auto& group : groups) {
    std::vector<std::uint32_t> left, right;
    for (const std::size_t i : group) {
      left.push_back(x[i]);
      right.push_back(y[i]);
    }
    sum = sum_group(rule, a, b, left, right, sum);
  }
  if (!rule.through_f16) return sum;
  const NumberFormat& format = rule.to_f16 ? f16_numbers : f32_numbers;
  const double exact = format.value(sum) + format.value(c);
  if (!std::isfinite(exact)) return encode_exact(format, exact);
  if (!rule.to_f16) return encode_exact(format, static_cast<double>(static_cast<float>(exact)));
  int exponent = 0;
  std::frexp(exact, &exponent);
  const int last = std::max(exponent - 1, -14) - 10;
  return encode_exact(format, std::ldexp(std::nearbyint(std::ldexp(exact, -last)), last));
}

std::uint32_t random_element(const NumberFormat& format, std::mt19937& random, bool wild) {
  std::uint32_t raw = random();
  if (format.bits < 32) raw &= (1u << format.bits) - 1;
  if (wild) return raw;
  const std::uint32_t kind = random() % 16;
  const std::uint32_t sign = raw >> (format.bits - 1) << (format.bits - 1);
  const int shift = format.ignored_bits + format.fraction_bits;
  const std::uint32_t fraction = raw & ((1u << shift) - 1);
  if (kind == 0) return sign;
  if (kind == 1) return sign | fraction;
  const int field = format.bias() - 6 + static_cast<int>(random() % 10);
  return sign | static_cast<std::uint32_t>(std::max(field, 1)) << shift | fraction;
}

}  // namespace jit::emulator::testing
