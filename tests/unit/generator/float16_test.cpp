
#include <bit>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include <jit/float16.h>

namespace jit {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

// For neighbors a < b of a 16-bit type, `to` must send their midpoint to the even one and everything else to
// the nearer one.
void expect_nearest_even(DType dtype, int last_finite) {
  const auto to = [dtype](float value) { return float_to_bits(dtype, value); };
  const auto from = [dtype](std::uint16_t bits) { return float_from_bits(dtype, bits); };
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

TEST(Float16, Fp16RoundsToNearestEven) { expect_nearest_even(DType::fp16, 0x7bff); }

TEST(Float16, Bf16RoundsToNearestEven) {
  // Below the 128 subnormals the midpoints are exact, too, since floats have 16 more digits.
  expect_nearest_even(DType::bf16, 0x7f7f);
}

// OCP, "8-bit Floating Point Specification": largest and least numbers, what is no number.
TEST(Float16, ReadsEightBits) {
  EXPECT_EQ(float_from_bits(DType::fp8_e4m3, 0x7e), 448);
  EXPECT_EQ(float_from_bits(DType::fp8_e4m3, 0x88), -0x1p-6f);
  EXPECT_EQ(float_from_bits(DType::fp8_e4m3, 0x01), 0x1p-9f);
  EXPECT_EQ(float_from_bits(DType::fp8_e4m3, 0x3c), 1.5f);
  EXPECT_TRUE(std::isnan(float_from_bits(DType::fp8_e4m3, 0xff)));
  EXPECT_EQ(float_from_bits(DType::fp8_e5m2, 0x7b), 57344);
  EXPECT_EQ(float_from_bits(DType::fp8_e5m2, 0x7c), infinity);
  EXPECT_EQ(float_from_bits(DType::fp8_e5m2, 0x81), -0x1p-16f);
  EXPECT_TRUE(std::isnan(float_from_bits(DType::fp8_e5m2, 0x7d)));
}

TEST(Float16, KnownValues) {
  EXPECT_EQ(float_to_bits(DType::fp16, 1.0f), 0x3c00);
  EXPECT_EQ(float_to_bits(DType::fp16, -2.5f), 0xc100);
  EXPECT_EQ(float_to_bits(DType::fp16, 65504.0f), 0x7bff);
  EXPECT_EQ(float_to_bits(DType::fp16, std::ldexp(1.0f, -24)), 0x0001);
  EXPECT_EQ(float_to_bits(DType::bf16, 1.0f), 0x3f80);
  EXPECT_EQ(float_to_bits(DType::bf16, -2.5f), 0xc020);
}

TEST(Float16, OverflowAndSpecialValues) {
  EXPECT_EQ(float_to_bits(DType::fp16, 65519.996f), 0x7bff);
  EXPECT_EQ(float_to_bits(DType::fp16, 65520.0f), 0x7c00);
  EXPECT_EQ(float_to_bits(DType::fp16, -1e30f), 0xfc00);
  EXPECT_EQ(float_to_bits(DType::bf16, std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(float_to_bits(DType::fp16, -infinity), 0xfc00);
  EXPECT_EQ(float_to_bits(DType::bf16, infinity), 0x7f80);
  EXPECT_EQ(float_to_bits(DType::fp16, -0.0f), 0x8000);
  EXPECT_TRUE(std::isnan(float_from_bits(DType::fp16, float_to_bits(DType::fp16, std::nanf("")))));
  EXPECT_TRUE(std::isnan(float_from_bits(DType::bf16, float_to_bits(DType::bf16, std::nanf("")))));
  EXPECT_TRUE(std::isnan(float_from_bits(
      DType::bf16,
      float_to_bits(DType::bf16, std::bit_cast<float>(0x7f800001)))));  // rounding must not make ∞
  EXPECT_TRUE(std::isnan(float_from_bits(DType::fp16, 0x7e00)));
  EXPECT_EQ(float_from_bits(DType::fp16, 0xfc00), -infinity);
}

}  // namespace
}  // namespace jit
