// The arithmetic of tensor cores: what is known of the hardware, and the fast way against the slow one.
#include "operations/tensor/tensor_core.h"

#include <bit>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "tests/support/tensor_reference.h"

namespace jit::emulator {
namespace {

using Result = AccumulationModel::Result;
using namespace testing;

constexpr TargetArch ampere{8, 0, 0}, ada{8, 9, 0}, hopper{9, 0, 'a'}, thor{11, 0, 'a'},
    blackwell{12, 0, 'a'};

/// a · b + c for one row and one column; the rest of the 4 × 8 is left at zero.
float dot(const AccumulationModel& model, const std::vector<float>& a, const std::vector<float>& b, float c) {
  const std::size_t k = a.size();
  std::vector<float> a_values(4 * k), b_values(8 * k), sums(4 * 8);
  std::vector<std::int16_t> a_exponents(4 * k), b_exponents(8 * k);
  std::vector<std::uint16_t> a_bits(4 * k), b_bits(8 * k);
  for (std::size_t i = 0; i < k; ++i) {
    a_bits[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(a[i]) >> 16);
    b_bits[i * 8] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(b[i]) >> 16);
  }
  decode_elements(Type::bf16, a_bits.data(), a_bits.size(), a_values.data(), a_exponents.data());
  decode_elements(Type::bf16, b_bits.data(), b_bits.size(), b_values.data(), b_exponents.data());
  sums[0] = c;
  multiply_add(model, 4, 8, static_cast<int>(k), {a_values.data(), a_exponents.data()},
               {b_values.data(), b_exponents.data()}, sums.data());
  return sums[0];
}

TEST(AccumulationModel, GroupsAndBitsByArchitecture) {
  const auto model = [](TargetArch arch, TensorUnit unit, Type type, int k) {
    return accumulation_model(arch, unit, type, Type::f32, k);
  };
  EXPECT_EQ(model(ampere, TensorUnit::mma, Type::bf16, 16).group, 8);
  EXPECT_EQ(model(ampere, TensorUnit::mma, Type::bf16, 16).fraction_bits, 24);
  EXPECT_EQ(model(ampere, TensorUnit::mma, Type::tf32, 8).group, 4);
  EXPECT_EQ(model(hopper, TensorUnit::mma, Type::f16, 16).group, 16);
  EXPECT_EQ(model(hopper, TensorUnit::mma, Type::f16, 8).group, 8);
  EXPECT_EQ(model(hopper, TensorUnit::wgmma, Type::f16, 16).fraction_bits, 25);
  EXPECT_EQ(model(hopper, TensorUnit::wgmma, Type::e4m3, 32).fraction_bits, 13);
  EXPECT_EQ(model(hopper, TensorUnit::wgmma, Type::e4m3, 32).result, Result::e8m13);
  EXPECT_TRUE(model(hopper, TensorUnit::mma, Type::e4m3, 32).through_f16);
  EXPECT_TRUE(model(thor, TensorUnit::mma, Type::e4m3, 32).through_f16);
  EXPECT_EQ(model(ada, TensorUnit::mma, Type::e5m2, 32).group, 16);
  EXPECT_EQ(model(ada, TensorUnit::mma, Type::e5m2, 32).fraction_bits, 13);
  EXPECT_EQ(model(blackwell, TensorUnit::mma, Type::e5m2, 32).fraction_bits, 25);
  EXPECT_FALSE(model(blackwell, TensorUnit::mma, Type::e5m2, 32).through_f16);
}

TEST(TensorCore, SmallTermsAreCutOffBelowTheLargest) {
  // Beside 1, each of the small terms is lost alone, though together they would count.
  std::vector<float> a(16, 0x1p-13f), b(16, 0x1p-12f);
  const auto of = [](TargetArch arch) {
    return accumulation_model(arch, TensorUnit::mma, Type::bf16, Type::f32, 16);
  };
  EXPECT_EQ(dot(of(ampere), a, b, 1.0f), 1.0f);
  EXPECT_EQ(dot(of(hopper), a, b, 1.0f), 1.0f + 0x1p-21f);
  for (float& x : b) x = 0x1p-11f;
  EXPECT_EQ(dot(of(ampere), a, b, 1.0f), 1.0f + 0x1p-20f);
  // −1 loses them the same way: towards zero.
  EXPECT_EQ(dot(of(hopper), a, b, -1.0f), -1.0f + 0x1p-20f);
}

TEST(TensorCore, ResultsAreCutOffTowardsZero) {
  const AccumulationModel model = accumulation_model(hopper, TensorUnit::mma, Type::bf16, Type::f32, 16);
  std::vector<float> a(16, 0.0f), b(16, 0.0f);
  a[0] = 0x1p-12f;
  b[0] = 0x1.8p-12f;
  // 1 ± 1.5 · 2^-24; below 1 the last place is worth 2^-24.
  EXPECT_EQ(dot(model, a, b, 1.0f), 1.0f);
  EXPECT_EQ(dot(model, a, b, -1.0f), -1.0f + 0x1p-23f);
  b[0] = -b[0];
  EXPECT_EQ(dot(model, a, b, 1.0f), 1.0f - 0x1p-23f);
  EXPECT_EQ(dot(model, a, b, -1.0f), -1.0f);
}

TEST(TensorCore, AmpereAddsTheHalvesOneAfterTheOther) {
  // In one group with 2^30, 32 is the last that is not cut off.
  std::vector<float> a(16, 0.0f), b(16, 1.0f);
  a[0] = 0x1p30f;
  a[8] = -0x1p30f;
  a[1] = 1.0f;
  const auto of = [](TargetArch arch) {
    return accumulation_model(arch, TensorUnit::mma, Type::bf16, Type::f32, 16);
  };
  EXPECT_EQ(dot(of(hopper), a, b, 0.0f), 0.0f);
  a[1] = 0.0f;
  a[9] = 32.0f;
  EXPECT_EQ(dot(of(hopper), a, b, 0.0f), 32.0f);
  a[9] = 0.0f;
  a[1] = 64.0f;
  EXPECT_EQ(dot(of(ampere), a, b, 0.0f), 0.0f);  // lost when the first half was rounded to f32
  EXPECT_EQ(dot(of(hopper), a, b, 0.0f), 64.0f);
}

TEST(TensorCore, InfinitiesAndNans) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const AccumulationModel model = accumulation_model(hopper, TensorUnit::mma, Type::bf16, Type::f32, 16);
  std::vector<float> a(16, 1.0f), b(16, 1.0f);
  const auto bits = [&](float c) { return std::bit_cast<std::uint32_t>(dot(model, a, b, c)); };
  EXPECT_EQ(bits(infinity), 0x7f800000u);
  EXPECT_EQ(bits(-infinity), 0xff800000u);
  EXPECT_EQ(bits(std::bit_cast<float>(0xffc01234u)), 0x7fffffffu);
  a[3] = -infinity;
  EXPECT_EQ(bits(0), 0xff800000u);
  EXPECT_EQ(bits(infinity), 0x7fffffffu);
  b[3] = 0.0f;
  EXPECT_EQ(bits(0), 0x7fffffffu);
  b[3] = -1.0f;
  EXPECT_EQ(bits(infinity), 0x7f800000u);
  a[3] = 0x1p127f;
  b[3] = 0x1p127f;
  EXPECT_EQ(bits(0), 0x7f800000u);
}

struct SpeedCase {
  NumberFormat format;
  int k;
  AccumulationModel model;
};

/// `count` random elements, taken apart, their values checked against the format's definition. `large`: all
/// near 2 and of one sign, so that sums are as large as they can be.
struct RandomFactors {
  std::vector<float> values;
  std::vector<std::int16_t> exponents;

  RandomFactors(const NumberFormat& format, std::size_t count, std::mt19937& random, bool wild, bool large)
      : values(count), exponents(count) {
    std::vector<std::uint32_t> raw(count);
    std::vector<std::uint8_t> bytes;
    for (std::uint32_t& x : raw) {
      x = random_element(format, random, wild);
      if (large) {
        const auto two = static_cast<std::uint32_t>((format.bias() + 1) << format.fraction_bits);
        x = (two - 1 - random() % 2) << format.ignored_bits;
      }
      for (int b = 0; b < format.bits; b += 8) bytes.push_back(static_cast<std::uint8_t>(x >> b));
    }
    decode_elements(format.type, bytes.data(), count, values.data(), exponents.data());
    for (std::size_t i = 0; i < count; ++i) {
      const double expected = format.value(raw[i]);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(values[i])) << std::hex << raw[i];
      } else {
        EXPECT_EQ(values[i], static_cast<float>(expected)) << std::hex << raw[i];
      }
    }
  }
};

void compare_fast_and_slow(const SpeedCase& test, std::mt19937& random, bool wild, bool large) {
  constexpr std::size_t rows = 8, columns = 24;
  const auto k = static_cast<std::size_t>(test.k);
  const RandomFactors a(test.format, rows * k, random, wild, large);
  const RandomFactors b(test.format, columns * k, random, wild, large);
  const NumberFormat& sums = test.model.result == Result::f16 ? f16_numbers : f32_numbers;
  std::vector<float> c(rows * columns);
  for (float& x : c) {
    x = static_cast<float>(sums.value(random_element(sums, random, wild)));
    if (wild && random() % 2) x = 0;
  }
  const std::vector<float> before = c;
  multiply_add(test.model, rows, columns, test.k, {a.values.data(), a.exponents.data()},
               {b.values.data(), b.exponents.data()}, c.data());
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t column = 0; column < columns; ++column) {
      float expected = before[row * columns + column];
      for (int first = 0; first < test.k; first += test.model.group) {
        const std::size_t left = row * k + static_cast<std::size_t>(first);
        const std::size_t right = static_cast<std::size_t>(first) * columns + column;
        expected = add_products(test.model, {&a.values[left], &a.exponents[left]},
                                {&b.values[right], &b.exponents[right]}, columns, test.model.group, expected);
      }
      ASSERT_EQ(std::bit_cast<std::uint32_t>(c[row * columns + column]),
                std::bit_cast<std::uint32_t>(expected))
          << "row " << row << " column " << column;
    }
  }
}

TEST(TensorCore, FastAndSlowAgreeBitForBit) {
  std::mt19937 random(7);
  const std::vector<SpeedCase> cases = {
      {f16_numbers, 16, {16, 25}},
      {f16_numbers, 16, {8, 24}},
      {f16_numbers, 16, {16, 25, Result::f16}},
      {bf16_numbers, 16, {16, 25}},
      {tf32_numbers, 8, {8, 25}},
      {tf32_numbers, 4, {4, 24}},
      {e4m3_numbers, 32, {32, 13, Result::e8m13}},
      {e4m3_numbers, 32, {32, 25}},
      {e5m2_numbers, 32, {16, 13, Result::f16}},
  };
  for (std::size_t number = 0; number < cases.size(); ++number) {
    SCOPED_TRACE(number);
    for (int round = 0; round < 12; ++round) {
      compare_fast_and_slow(cases[number], random, round % 3 == 1, round % 3 == 2);
    }
  }
}

}  // namespace
}  // namespace jit::emulator
