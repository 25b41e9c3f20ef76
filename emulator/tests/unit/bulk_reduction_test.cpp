// Reductions by bulk copies, against plain arithmetic on the host.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/support/ptx_run.h"
#include "tests/unit/async_ptx.h"

namespace jit::emulator::testing {
namespace {

constexpr const char* buffers = ".shared .align 8 .b64 bar;\n.shared .align 128 .b8 buf[8192];\n";

float half_value(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const float magnitude = exponent == 31  ? (fraction ? NAN : INFINITY)
                          : exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                                          : std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

/// The half nearest to a value, ties to even, by search.
std::uint16_t nearest_half(double value) {
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const double magnitude = std::fabs(value);
  if (magnitude >= 65520) return sign | 0x7c00;
  std::uint16_t low = 0, high = 0x7bff;
  while (low < high) {
    const auto middle = static_cast<std::uint16_t>((low + high + 1) / 2);
    if (half_value(middle) <= magnitude) {
      low = middle;
    } else {
      high = static_cast<std::uint16_t>(middle - 1);
    }
  }
  if (low == 0x7bff) return sign | low;
  const double below = magnitude - half_value(low);
  const double above = half_value(static_cast<std::uint16_t>(low + 1)) - magnitude;
  if (below > above || (below == above && (low & 1))) ++low;
  return sign | low;
}

float bfloat_value(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

/// Reduces `operands` into `values` on the emulator.
template <class T>
std::vector<T> reduce(const std::string& operation, const std::vector<T>& values,
                      const std::vector<T>& operands) {
  const std::string bytes = std::to_string(values.size() * sizeof(T));
  std::string body =
      init_by_first("bar", 1) + R"(
  mov.u32 %r1, buf;
  mov.u32 %r2, bar;
  setp.eq.u32 %p1, %r60, 0;
  @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], )" +
      bytes + ";\n  @%p1 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%rd60], " +
      bytes + ", [%r2];\n" + wait_for("%r2", "0", "WAIT") +
      "  @%p1 cp.reduce.async.bulk.global.shared::cta.bulk_group." + operation + " [%rd61], [%r1], " + bytes +
      ";\n  @%p1 cp.async.bulk.commit_group;\n  @%p1 cp.async.bulk.wait_group 0;\n";
  TestDevice device;
  const std::uint64_t in = device.upload(operands);
  const std::uint64_t out = device.upload(values);
  const LaunchResult result =
      device.run(kernel_of(body, buffers), {.block = {32, 1, 1}}, {.threads = 1}, in, out);
  EXPECT_EQ(findings_of(result), "") << operation;
  return device.download<T>(out, values.size());
}

template <class T>
std::vector<T> random_bits(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<T> values(count);
  for (T& value : values) value = static_cast<T>(random());
  // Equal and extreme ones, too.
  values[0] = values[1] = 0;
  values[2] = static_cast<T>(-1);
  values[3] = static_cast<T>(T{1} << (8 * sizeof(T) - 1));
  return values;
}

template <class T>
void check_integers(const std::string& operation, std::function<T(T, T)> expected) {
  const auto values = random_bits<T>(512, 1), operands = random_bits<T>(512, 2);
  const auto result = reduce(operation, values, operands);
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(result[i], expected(values[i], operands[i]))
        << operation << " " << values[i] << " " << operands[i];
  }
}

template <class Signed>
Signed as_signed(std::make_unsigned_t<Signed> bits) {
  return static_cast<Signed>(bits);
}

TEST(BulkReduction, OfIntegers) {
  using U32 = std::uint32_t;
  using U64 = std::uint64_t;
  check_integers<U32>("add.u32", [](U32 a, U32 b) { return a + b; });
  check_integers<U32>("add.s32", [](U32 a, U32 b) { return a + b; });
  check_integers<U64>("add.u64", [](U64 a, U64 b) { return a + b; });
  check_integers<U32>("min.u32", [](U32 a, U32 b) { return a < b ? a : b; });
  check_integers<U32>("max.u32", [](U32 a, U32 b) { return a > b ? a : b; });
  check_integers<U32>("min.s32", [](U32 a, U32 b) {
    return as_signed<std::int32_t>(a) < as_signed<std::int32_t>(b) ? a : b;
  });
  check_integers<U32>("max.s32", [](U32 a, U32 b) {
    return as_signed<std::int32_t>(a) > as_signed<std::int32_t>(b) ? a : b;
  });
  check_integers<U64>("min.u64", [](U64 a, U64 b) { return a < b ? a : b; });
  check_integers<U64>("max.u64", [](U64 a, U64 b) { return a > b ? a : b; });
  check_integers<U64>("min.s64", [](U64 a, U64 b) {
    return as_signed<std::int64_t>(a) < as_signed<std::int64_t>(b) ? a : b;
  });
  check_integers<U64>("max.s64", [](U64 a, U64 b) {
    return as_signed<std::int64_t>(a) > as_signed<std::int64_t>(b) ? a : b;
  });
  check_integers<U32>("inc.u32", [](U32 a, U32 b) { return a >= b ? 0 : a + 1; });
  check_integers<U32>("dec.u32", [](U32 a, U32 b) { return a == 0 || a > b ? b : a - 1; });
  check_integers<U32>("and.b32", [](U32 a, U32 b) { return a & b; });
  check_integers<U32>("or.b32", [](U32 a, U32 b) { return a | b; });
  check_integers<U32>("xor.b32", [](U32 a, U32 b) { return a ^ b; });
  check_integers<U64>("and.b64", [](U64 a, U64 b) { return a & b; });
  check_integers<U64>("or.b64", [](U64 a, U64 b) { return a | b; });
  check_integers<U64>("xor.b64", [](U64 a, U64 b) { return a ^ b; });
}

TEST(BulkReduction, OfHalves) {
  const auto values = random_bits<std::uint16_t>(2048, 5), operands = random_bits<std::uint16_t>(2048, 6);
  const auto sums = reduce("add.noftz.f16", values, operands);
  const auto smallest = reduce("min.f16", values, operands);
  const auto largest = reduce("max.f16", values, operands);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float a = half_value(values[i]), b = half_value(operands[i]);
    if (std::isnan(a) || std::isnan(b) || std::isnan(a + b)) {
      EXPECT_EQ(sums[i], 0x7fff);
      if (std::isnan(a) != std::isnan(b)) {
        EXPECT_EQ(smallest[i], std::isnan(a) ? operands[i] : values[i]);
      }
      continue;
    }
    EXPECT_EQ(sums[i],
              std::isinf(a + b) ? (a + b < 0 ? 0xfc00 : 0x7c00) : nearest_half(double{a} + double{b}))
        << a << " + " << b;
    if (a != b) {
      EXPECT_EQ(smallest[i], a < b ? values[i] : operands[i]);
      EXPECT_EQ(largest[i], a > b ? values[i] : operands[i]);
    }
  }
}

TEST(BulkReduction, OfBfloats) {
  const auto values = random_bits<std::uint16_t>(2048, 7), operands = random_bits<std::uint16_t>(2048, 8);
  const auto sums = reduce("add.noftz.bf16", values, operands);
  const auto largest = reduce("max.bf16", values, operands);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float a = bfloat_value(values[i]), b = bfloat_value(operands[i]);
    if (std::isnan(a + b)) {
      EXPECT_EQ(sums[i], 0x7fff);
      continue;
    }
    // The exact sum lies between the results for its neighbors; of those the nearest, or the even one.
    const double exact = double{a} + double{b};
    const float got = bfloat_value(sums[i]);
    if (!std::isinf(got)) {
      const double error = std::fabs(got - exact);
      for (const int step : {-1, 1}) {
        const float other = bfloat_value(static_cast<std::uint16_t>(sums[i] + step));
        if (std::isnan(other) || std::isinf(other) || (sums[i] & 0x7fff) == 0) continue;
        EXPECT_LE(error, std::fabs(other - exact)) << a << " + " << b;
        if (error == std::fabs(other - exact)) {
          EXPECT_EQ(sums[i] & 1, 0) << a << " + " << b;
        }
      }
    }
    if (a != b) {
      EXPECT_EQ(largest[i], a > b ? values[i] : operands[i]);
    }
  }
}

TEST(BulkReduction, OfFloats) {
  std::vector<float> values, operands;
  std::mt19937 random(9);
  for (int i = 0; i < 512; ++i) {
    values.push_back(
        std::ldexp(static_cast<float>(random() % 1000) - 500, static_cast<int>(random() % 40) - 20));
    operands.push_back(
        std::ldexp(static_cast<float>(random() % 1000) - 500, static_cast<int>(random() % 40) - 20));
  }
  // Subnormal operands and results stay.
  values[0] = 0x1p-127f, operands[0] = 1.0f;
  values[1] = -0x1p-127f, operands[1] = -0x1p-127f;
  values[2] = 0x1.8p-126f, operands[2] = -0x1p-126f;
  values[3] = INFINITY, operands[3] = -INFINITY;
  const auto sums = reduce("add.f32", values, operands);
  EXPECT_EQ(sums[0], 1.0f);
  EXPECT_EQ(sums[1], -0x1p-126f);
  EXPECT_EQ(sums[2], 0x1p-127f);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(sums[3]), 0x7fffffffu);
  for (std::size_t i = 4; i < values.size(); ++i) EXPECT_EQ(sums[i], values[i] + operands[i]);

  std::vector<double> wide(values.begin(), values.end()), more(operands.begin(), operands.end());
  wide[3] = 0x1p-1060;
  more[3] = 0x1p-1070;
  const auto wide_sums = reduce("add.f64", wide, more);
  for (std::size_t i = 0; i < wide.size(); ++i) EXPECT_EQ(wide_sums[i], wide[i] + more[i]);
}

TEST(BulkReduction, OfManyBlocksAtOnceLosesNothing) {
  const std::string body = R"(
  mov.u32 %r1, buf;
  shl.b32 %r3, %r60, 2;
  add.u32 %r4, %r3, %r1;
  setp.eq.u32 %p1, %r60, 0;
  st.shared.u32 [%r4], %r60;
  fence.proxy.async.shared::cta;
  bar.sync 0;
  @%p1 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd61], [%r1], 256;
  @%p1 cp.async.bulk.commit_group;
  @%p1 cp.async.bulk.wait_group.read 0;
)";
  TestDevice device;
  const std::uint64_t out = device.upload(std::vector<std::uint32_t>(64, 0));
  LaunchOptions options;
  options.threads = 4;
  const LaunchResult result =
      device.run(kernel_of(body, buffers), {.grid = {200, 1, 1}, .block = {64, 1, 1}}, options, out, out);
  EXPECT_EQ(findings_of(result), "");
  const auto sums = device.download<std::uint32_t>(out, 64);
  for (std::uint32_t i = 0; i < 64; ++i) EXPECT_EQ(sums[i], 200 * i);
}

}  // namespace
}  // namespace jit::emulator::testing
