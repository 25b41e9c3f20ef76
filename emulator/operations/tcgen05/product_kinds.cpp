// Products of integers, and of blocks with scales.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "operations/arithmetic/numbers.h"
#include "operations/tcgen05/product.h"
#include "operations/tcgen05/state.h"

namespace jit::emulator {
namespace {

constexpr int scale_bias = 127;  // of ue8m0
constexpr std::uint8_t scale_nan = 255;
constexpr int line_words_along_k = 8;
constexpr int block_of_nibbles = 16;  // elements with an exact sum of products
constexpr int nibble_fraction = 35;   // kept bits of a sum of scaled blocks (MMA-Sim)

// e2m1, doubled.
int doubled(std::uint32_t code) {
  constexpr std::array<int, 8> magnitudes = {0, 1, 2, 3, 4, 6, 8, 12};
  const int magnitude = magnitudes[code & 7];
  return (code & 8) != 0 ? -magnitude : magnitude;
}

// A scale as significand · 2^exponent; nothing for NaN.
struct Scale {
  int significand = 1, exponent = 0;
  bool is_nan = false;
};
Scale scale_of(std::uint8_t bits, bool is_power) {
  if (is_power) return {1, bits - scale_bias, bits == scale_nan};
  const int field = bits >> 3 & 15, fraction = bits & 7;
  if ((bits & 0x7f) == 0x7f) return {1, 0, true};
  return field == 0 ? Scale{fraction, -9} : Scale{8 + fraction, field - 10};
}

// Sums of terms, each truncated at 2^(largest exponent − 35), then truncated to f32.
class AlignedSum {
 public:
  void add(double term) { terms_[count_++] = term; }
  float result() const {
    int top = std::numeric_limits<int>::min();
    for (int i = 0; i < count_; ++i) {
      if (terms_[i] != 0) top = std::max(top, std::ilogb(terms_[i]));
    }
    if (top == std::numeric_limits<int>::min()) return 0;
    const int point = nibble_fraction - top;
    std::int64_t sum = 0;
    for (int i = 0; i < count_; ++i)
      sum += static_cast<std::int64_t>(std::trunc(std::ldexp(terms_[i], point)));
    // Truncates to 24 bits.
    std::uint64_t magnitude = static_cast<std::uint64_t>(sum < 0 ? -sum : sum);
    const int extra = std::bit_width(magnitude) - 24;
    if (extra > 0) magnitude = magnitude >> extra << extra;
    const double value = std::ldexp(static_cast<double>(magnitude), -point);
    return static_cast<float>(sum < 0 ? -value : value);
  }

 private:
  std::array<double, 8> terms_{};
  int count_ = 0;
};

}  // namespace

std::uint8_t TensorProduct::a_scale(Block& block, int row, int number) const {
  const std::uint32_t word = block.tensor->memory.row(row)[operands_.a_scales->column + row / 32];
  return static_cast<std::uint8_t>(word >> 8 * (operands_.shape.a_scale_id + number));
}

// Each quarter of the lanes holds the scales of all columns.
std::uint8_t TensorProduct::b_scale(Block& block, int row, int column, int number) const {
  const std::uint32_t word =
      block.tensor->memory.row(row / 32 * 32 + column % 32)[operands_.b_scales->column + column / 32];
  return static_cast<std::uint8_t>(word >> 8 * (operands_.shape.b_scale_id + number));
}

void TensorProduct::multiply_scaled(Block& block, Factors a, Factors b, float* sums) const {
  const int n = operands_.shape.n, k = operands_.k;
  for (int row = 0; row < operands_.rows(); ++row) {
    const std::uint8_t of_row = a_scale(block, row, 0);
    for (int column = 0; column < n; ++column) {
      const std::uint8_t of_column = b_scale(block, row, column, 0);
      float& sum = sums[row * n + column];
      sum = of_row == scale_nan || of_column == scale_nan
                ? std::bit_cast<float>(f32_nan)
                : add_products(model_, {a.values + row * k, a.exponents + row * k},
                               {b.values + column, b.exponents + column}, n, k, sum,
                               of_row + of_column - 2 * scale_bias);
    }
  }
}

void TensorProduct::multiply_nibbles(std::size_t index, const std::vector<std::uint32_t>& b_lines) const {
  Block& block = *blocks_[index];
  const int blocks_of_scale = 64 / block_of_nibbles / operands_.scales;
  const bool is_power = operands_.shape.has_power_scales;
  std::vector<std::uint32_t> rows;
  read_a(block, rows);
  const int sign = operands_.shape.negates_a == operands_.shape.negates_b ? 1 : -1;
  for_each_sum(block, [&](int lane, std::uint32_t& word, std::size_t row, std::size_t column) {
    if (is_disabled(index, lane)) return;
    const std::uint32_t* const x = &rows[row * line_words_along_k];
    const std::uint32_t* const y = &b_lines[column * line_words_along_k];
    AlignedSum sum;
    bool is_nan = false;
    const float before = operands_.accumulates ? std::bit_cast<float>(word) : 0;
    for (int part = 0; part < 64 / block_of_nibbles; ++part) {
      int exact = 0;
      for (int i = part * block_of_nibbles; i < (part + 1) * block_of_nibbles; ++i) {
        exact += doubled(x[i / 8] >> i % 8 * 4 & 15) * doubled(y[i / 8] >> i % 8 * 4 & 15);
      }
      const auto r = static_cast<int>(row), c = static_cast<int>(column);
      const Scale left = scale_of(a_scale(block, r, part / blocks_of_scale), is_power);
      const Scale right = scale_of(b_scale(block, r, c, part / blocks_of_scale), is_power);
      is_nan = is_nan || left.is_nan || right.is_nan;
      sum.add(std::ldexp(static_cast<double>(sign * exact * left.significand * right.significand),
                         left.exponent + right.exponent - 2));
    }
    if (std::isnan(before) || is_nan) {
      word = f32_nan;
    } else if (!std::isinf(before)) {
      sum.add(static_cast<double>(before));
      word = std::bit_cast<std::uint32_t>(sum.result());
    }
  });
}

void TensorProduct::multiply_integers(std::size_t index, const std::vector<std::byte>& b) const {
  const auto k = static_cast<std::size_t>(operands_.k), n = static_cast<std::size_t>(operands_.shape.n);
  const auto value = [](std::byte bits, Type type) {
    return type == Type::s8 ? std::int64_t{static_cast<std::int8_t>(bits)}
                            : std::int64_t{static_cast<std::uint8_t>(bits)};
  };
  std::vector<std::uint32_t> rows;
  read_a(*blocks_[index], rows);
  const auto* const a = reinterpret_cast<const std::byte*>(rows.data());
  for_each_sum(*blocks_[index], [&](int lane, std::uint32_t& word, std::size_t row, std::size_t column) {
    if (is_disabled(index, lane)) return;
    std::int64_t sum = operands_.accumulates ? static_cast<std::int32_t>(word) : 0;
    for (std::size_t i = 0; i < k; ++i) {
      sum += value(a[row * k + i], operands_.shape.a) * value(b[i * n + column], operands_.shape.b);
    }
    if (operands_.shape.saturates) {
      sum = std::clamp<std::int64_t>(sum, std::numeric_limits<std::int32_t>::min(),
                                     std::numeric_limits<std::int32_t>::max());
    }
    word = static_cast<std::uint32_t>(sum);
  });
}

}  // namespace jit::emulator
