#include "tools/jit_attention/array.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "tools/jit_attention/command.h"
#include "tools/jit_attention/float_bits.h"

namespace jit::tool {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

// For neighbours a < b of a 16-bit type, `to` must send their midpoint to the even one and everything else to
// the nearer one.
template <class To, class From>
void expect_nearest_even(int last_finite, const To& to, const From& from) {
  for (int bits = 0; bits < last_finite; ++bits) {
    const auto low = static_cast<std::uint16_t>(bits), high = static_cast<std::uint16_t>(bits + 1);
    const auto even = bits % 2 == 0 ? low : high;
    const float middle = from(low) + (from(high) - from(low)) / 2;  // exact: 16-bit types have few digits
    const auto sign = static_cast<std::uint16_t>(0x8000);
    ASSERT_EQ(to(from(low)), low) << bits;
    ASSERT_EQ(to(middle), even) << bits;
    ASSERT_EQ(to(std::nextafter(middle, -infinity)), low) << bits;
    ASSERT_EQ(to(std::nextafter(middle, infinity)), high) << bits;
    ASSERT_EQ(to(-middle), sign | even) << bits;
  }
}

TEST(FloatBits, Fp16RoundsToNearestEven) { expect_nearest_even(0x7bff, to_fp16, from_fp16); }

TEST(FloatBits, Bf16RoundsToNearestEven) {
  // Below the 128 subnormals the midpoints are exact, too, since floats have 16 more digits.
  expect_nearest_even(0x7f7f, to_bf16, from_bf16);
}

TEST(FloatBits, KnownValues) {
  EXPECT_EQ(to_fp16(1.0f), 0x3c00);
  EXPECT_EQ(to_fp16(-2.5f), 0xc100);
  EXPECT_EQ(to_fp16(65504.0f), 0x7bff);
  EXPECT_EQ(to_fp16(std::ldexp(1.0f, -24)), 0x0001);
  EXPECT_EQ(to_bf16(1.0f), 0x3f80);
  EXPECT_EQ(to_bf16(-2.5f), 0xc020);
}

TEST(FloatBits, OverflowAndSpecialValues) {
  EXPECT_EQ(to_fp16(65519.996f), 0x7bff);
  EXPECT_EQ(to_fp16(65520.0f), 0x7c00);
  EXPECT_EQ(to_fp16(-1e30f), 0xfc00);
  EXPECT_EQ(to_bf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(to_fp16(-infinity), 0xfc00);
  EXPECT_EQ(to_bf16(infinity), 0x7f80);
  EXPECT_EQ(to_fp16(-0.0f), 0x8000);
  EXPECT_TRUE(std::isnan(from_fp16(to_fp16(std::nanf("")))));
  EXPECT_TRUE(std::isnan(from_bf16(to_bf16(std::nanf("")))));
  EXPECT_TRUE(std::isnan(from_bf16(to_bf16(std::bit_cast<float>(0x7f800001)))));  // rounding must not make ∞
  EXPECT_TRUE(std::isnan(from_fp16(0x7e00)));
  EXPECT_EQ(from_fp16(0xfc00), -infinity);
}

TEST(Array, ConvertsWithinAKind) {
  Array floats = zeros(DType::fp32, {2});
  floats.as<float>()[1] = 1.5f;
  const Array halves = convert(floats, DType::fp16, "x");
  EXPECT_EQ(halves.as<std::uint16_t>()[1], 0x3e00);
  EXPECT_EQ(convert(halves, DType::bf16, "x").as<std::uint16_t>()[1], 0x3fc0);
  EXPECT_EQ(convert(halves, DType::fp32, "x").as<float>()[1], 1.5f);

  Array numbers = zeros(DType::int64, {3});
  numbers.as<std::int64_t>()[0] = -5;
  EXPECT_EQ(convert(numbers, DType::int32, "x").as<std::int32_t>()[0], -5);
  EXPECT_THROW(convert(numbers, DType::uint8, "x"), BadInput);
  numbers.as<std::int64_t>()[0] = std::int64_t{1} << 31;
  EXPECT_THROW(convert(numbers, DType::int32, "x"), BadInput);
  EXPECT_THROW(convert(numbers, DType::fp32, "x"), BadInput);
}

TEST(Array, RefusesSizesThatOverflow) {
  EXPECT_THROW(zeros(DType::fp32, {std::int64_t{1} << 40, std::int64_t{1} << 40}), BadInput);
}

}  // namespace
}  // namespace jit::tool
