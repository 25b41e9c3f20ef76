#include "tools/jit_attention/array.h"

#include <gtest/gtest.h>

#include "tools/jit_attention/command.h"

namespace jit::tool {
namespace {

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
