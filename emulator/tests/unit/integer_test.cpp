#include <algorithm>
#include <cstdint>

#include <gtest/gtest.h>

#include "tests/unit/lane_run.h"

namespace jit::emulator::testing {
namespace {

using U8 = std::uint8_t;
using U16 = std::uint16_t;
using U32 = std::uint32_t;
using U64 = std::uint64_t;
using S16 = std::int16_t;
using S32 = std::int32_t;
using S64 = std::int64_t;
__extension__ using Int128 = __int128;

template <class T>
std::string name() {
  return fmt::format("{}{}", std::is_signed_v<T> ? 's' : 'u', 8 * sizeof(T));
}

S32 clamped(S64 x) {
  return static_cast<S32>(
      std::clamp<S64>(x, std::numeric_limits<S32>::min(), std::numeric_limits<S32>::max()));
}

template <class T>
class Integers : public ::testing::Test {};
using AllIntegers = ::testing::Types<U16, U32, U64, S16, S32, S64>;
TYPED_TEST_SUITE(Integers, AllIntegers);

TYPED_TEST(Integers, SumsAndProductsWrapAround) {
  using T = TypeParam;
  const auto type = name<T>();
  expect_pairs<T, T>("add." + type + " %d, %a, %b;", [](T a, T b) { return static_cast<T>(Int128{a} + b); });
  expect_pairs<T, T>("sub." + type + " %d, %a, %b;", [](T a, T b) { return static_cast<T>(Int128{a} - b); });
  expect_pairs<T, T>("mul.lo." + type + " %d, %a, %b;",
                     [](T a, T b) { return static_cast<T>(U64(a) * U64(b)); });
  expect_triples<T, T>("mad.lo." + type + " %d, %a, %b, %c;",
                       [](T a, T b, T c) { return static_cast<T>(U64(a) * U64(b) + U64(c)); });
}

TYPED_TEST(Integers, HighHalvesOfProducts) {
  using T = TypeParam;
  const auto high = [](T a, T b) {
    if constexpr (std::is_unsigned_v<T> && sizeof(T) == 8) {
      __extension__ using Unsigned128 = unsigned __int128;
      return static_cast<T>(Unsigned128{a} * b >> 64);
    } else {
      return static_cast<T>((Int128{a} * b) >> (8 * sizeof(T)));
    }
  };
  expect_pairs<T, T>("mul.hi." + name<T>() + " %d, %a, %b;", high);
  expect_triples<T, T>("mad.hi." + name<T>() + " %d, %a, %b, %c;",
                       [high](T a, T b, T c) { return static_cast<T>(U64(high(a, b)) + U64(c)); });
}

template <class Wide, class T>
void expect_wide() {
  expect_pairs<Wide, T>("mul.wide." + name<T>() + " %d, %a, %b;",
                        [](T a, T b) { return static_cast<Wide>(Int128{a} * b); });
  expect_triples<Wide, T, T, Wide>("mad.wide." + name<T>() + " %d, %a, %b, %c;", [](T a, T b, Wide c) {
    return static_cast<Wide>(U64(static_cast<Wide>(Int128{a} * b)) + U64(c));
  });
}

TEST(Integer, WideProducts) {
  expect_wide<U32, U16>();
  expect_wide<S32, S16>();
  expect_wide<U64, U32>();
  expect_wide<S64, S32>();
}

TYPED_TEST(Integers, ExtremaAndDifferences) {
  using T = TypeParam;
  const auto type = name<T>();
  expect_pairs<T, T>("min." + type + " %d, %a, %b;", [](T a, T b) { return std::min(a, b); });
  expect_pairs<T, T>("max." + type + " %d, %a, %b;", [](T a, T b) { return std::max(a, b); });
  expect_triples<T, T>("sad." + type + " %d, %a, %b, %c;", [](T a, T b, T c) {
    return static_cast<T>(Int128{c} + (a < b ? Int128{b} - a : Int128{a} - b));
  });
  if constexpr (std::is_signed_v<T>) {
    expect_values<T, T>("abs." + type + " %d, %a;",
                        [](T a) { return static_cast<T>(a < 0 ? -Int128{a} : Int128{a}); });
    expect_values<T, T>("neg." + type + " %d, %a;", [](T a) { return static_cast<T>(-Int128{a}); });
  }
}

TYPED_TEST(Integers, QuotientsAndRemainders) {
  using T = TypeParam;
  const auto [dividends, all_divisors] = interesting_pairs<T>();
  auto divisors = all_divisors;
  std::replace(divisors.begin(), divisors.end(), T{0}, T{1});
  expect_lanes<T>(
      "div." + name<T>() + " %d, %a, %b;", [](T a, T b) { return static_cast<T>(Int128{a} / b); }, dividends,
      divisors);
  expect_lanes<T>(
      "rem." + name<T>() + " %d, %a, %b;", [](T a, T b) { return static_cast<T>(Int128{a} % b); }, dividends,
      divisors);
}

TEST(Integer, DivisionByZeroIsReported) {
  for (const U32 divisor : {0u, 3u}) {
    TestDevice device;
    LaunchShape shape;
    shape.block = {32, 1, 1};
    const auto result =
        device.run(kernel_of("  ld.global.u32 %r1, [%rd60];\n  div.u32 %r2, %r60, %r1;\n"
                             "  mad.wide.u32 %rd1, %r60, 4, %rd61;\n  st.global.u32 [%rd1], %r2;\n"),
                   shape, {}, device.upload<U32>({divisor}), device.room<U32>(32));
    ASSERT_EQ(result.findings.size(), divisor == 0 ? 1u : 0u);
    if (divisor == 0) {
      EXPECT_EQ(result.findings[0].kind, FindingKind::illegal_instruction);
    }
  }
}

TEST(Integer, Saturation) {
  expect_pairs<S32, S32>("add.sat.s32 %d, %a, %b;", [](S64 a, S64 b) { return clamped(a + b); });
  expect_pairs<S32, S32>("sub.sat.s32 %d, %a, %b;", [](S64 a, S64 b) { return clamped(a - b); });
  expect_triples<S32, S32>("mad.hi.sat.s32 %d, %a, %b, %c;",
                           [](S64 a, S64 b, S64 c) { return clamped((a * b >> 32) + c); });
  expect_pairs<S32, S32>("max.relu.s32 %d, %a, %b;", [](S32 a, S32 b) { return std::max({a, b, 0}); });
  expect_pairs<S32, S32>("min.relu.s32 %d, %a, %b;",
                         [](S32 a, S32 b) { return std::max(std::min(a, b), 0); });
}

template <class T>
S64 low24(T x) {
  return std::is_signed_v<T> ? S64{static_cast<S32>(static_cast<U32>(x) << 8) >> 8} : S64(x) & 0xffffff;
}

template <class T>
void expect_24_bits() {
  const auto type = name<T>();
  expect_pairs<T, T>("mul24.lo." + type + " %d, %a, %b;",
                     [](T a, T b) { return static_cast<T>(low24(a) * low24(b)); });
  expect_pairs<T, T>("mul24.hi." + type + " %d, %a, %b;",
                     [](T a, T b) { return static_cast<T>(low24(a) * low24(b) >> 16); });
  expect_triples<T, T>("mad24.lo." + type + " %d, %a, %b, %c;",
                       [](T a, T b, T c) { return static_cast<T>(low24(a) * low24(b) + c); });
  expect_triples<T, T>("mad24.hi." + type + " %d, %a, %b, %c;",
                       [](T a, T b, T c) { return static_cast<T>((low24(a) * low24(b) >> 16) + c); });
}

TEST(Integer, ProductsOf24Bits) {
  expect_24_bits<U32>();
  expect_24_bits<S32>();
  expect_triples<S32, S32>("mad24.hi.sat.s32 %d, %a, %b, %c;",
                           [](S32 a, S32 b, S32 c) { return clamped((low24(a) * low24(b) >> 16) + c); });
}

template <class T, class F>
U32 on_both(U32 a, U32 b, F f) {
  const auto one = [&](int shift) { return U32{static_cast<U16>(f(T(a >> shift), T(b >> shift)))} << shift; };
  return one(0) | one(16);
}

TEST(Integer, PairsOf16Bits) {
  expect_pairs<U32, U32>("add.u16x2 %d, %a, %b;",
                         [](U32 a, U32 b) { return on_both<U16>(a, b, [](int x, int y) { return x + y; }); });
  expect_pairs<U32, U32>("sub.s16x2 %d, %a, %b;",
                         [](U32 a, U32 b) { return on_both<S16>(a, b, [](int x, int y) { return x - y; }); });
  expect_pairs<U32, U32>("min.u16x2 %d, %a, %b;", [](U32 a, U32 b) {
    return on_both<U16>(a, b, [](int x, int y) { return std::min(x, y); });
  });
  expect_pairs<U32, U32>("max.s16x2 %d, %a, %b;", [](U32 a, U32 b) {
    return on_both<S16>(a, b, [](int x, int y) { return std::max(x, y); });
  });
  expect_pairs<U32, U32>("min.relu.s16x2 %d, %a, %b;", [](U32 a, U32 b) {
    return on_both<S16>(a, b, [](int x, int y) { return std::max(std::min(x, y), 0); });
  });
}

TEST(Integer, CarriesGoThroughChains) {
  expect_pairs<U64, U64>(
      "mov.b64 {%r1, %r2}, %a;\n  mov.b64 {%r3, %r4}, %b;\n  add.cc.u32 %r5, %r1, %r3;\n"
      "  addc.u32 %r6, %r2, %r4;\n  mov.b64 %d, {%r5, %r6};",
      [](U64 a, U64 b) { return a + b; });
  expect_pairs<U64, U64>(
      "mov.b64 {%r1, %r2}, %a;\n  mov.b64 {%r3, %r4}, %b;\n  sub.cc.s32 %r5, %r1, %r3;\n"
      "  subc.s32 %r6, %r2, %r4;\n  mov.b64 %d, {%r5, %r6};",
      [](U64 a, U64 b) { return a - b; });
  // The carry out of a sum with a carry in, of 64 bits: 1 where a + b + 1 does not fit.
  expect_pairs<U64, U64>(
      "mov.u64 %rd1, -1;\n  add.cc.u64 %rd2, %rd1, 1;\n  addc.cc.u64 %rd3, %a, %b;\n  addc.u64 %d, 0, 0;",
      [](U64 a, U64 b) { return U64{a > ~b || a + b == ~U64{0}}; });
  expect_pairs<U64, U64>(
      "mov.u64 %rd1, 0;\n  sub.cc.u64 %rd2, %rd1, 1;\n  subc.cc.u64 %rd3, %a, %b;\n  subc.u64 %d, 0, 0;",
      [](U64 a, U64 b) { return a <= b ? ~U64{0} : U64{0}; });
  // A product of 64 bits from those of 32.
  expect_pairs<U64, U64>(
      "mov.b64 {%r1, %r2}, %a;\n  mov.b64 {%r3, %r4}, %b;\n  mul.hi.u32 %r6, %r1, %r3;\n"
      "  mad.lo.cc.u32 %r7, %r1, %r4, %r6;\n  madc.hi.u32 %r8, %r1, %r4, 0;\n"
      "  mad.lo.cc.u32 %r7, %r2, %r3, %r7;\n  madc.hi.cc.u32 %r8, %r2, %r3, %r8;\n"
      "  mov.b64 %d, {%r7, %r8};",
      [](U64 a, U64 b) {
        const U64 low = (a & 0xffffffff) * (b & 0xffffffff) >> 32;
        return low + (a & 0xffffffff) * (b >> 32) + (a >> 32) * (b & 0xffffffff);
      });
}

TEST(Integer, DotProducts) {
  const auto dot4 = [](auto a_part, auto b_part) {
    return [=](U32 a, U32 b, U32 c) {
      S64 sum = c;
      for (int i = 0; i < 32; i += 8) {
        sum += S64{decltype(a_part)(a >> i)} * S64{decltype(b_part)(b >> i)};
      }
      return static_cast<U32>(sum);
    };
  };
  expect_triples<U32, U32>("dp4a.u32.u32 %d, %a, %b, %c;", dot4(U8{}, U8{}));
  expect_triples<U32, U32>("dp4a.s32.u32 %d, %a, %b, %c;", dot4(std::int8_t{}, U8{}));
  expect_triples<U32, U32>("dp4a.s32.s32 %d, %a, %b, %c;", dot4(std::int8_t{}, std::int8_t{}));
  const auto dot2 = [](auto a_part, auto b_part, int first) {
    return [=](U32 a, U32 b, U32 c) {
      S64 sum = c;
      for (int i = 0; i < 2; ++i) {
        sum += S64{decltype(a_part)(a >> (16 * i))} * S64{decltype(b_part)(b >> (8 * (first + i)))};
      }
      return static_cast<U32>(sum);
    };
  };
  expect_triples<U32, U32>("dp2a.lo.u32.s32 %d, %a, %b, %c;", dot2(U16{}, std::int8_t{}, 0));
  expect_triples<U32, U32>("dp2a.hi.s32.u32 %d, %a, %b, %c;", dot2(S16{}, U8{}, 2));
}

TEST(Integer, LanesThatDoNotExecuteKeepTheirRegisters) {
  for (const char* instruction : {"add.u32 %r1, %r60, 100;", "div.u32 %r1, %r60, 1;", "popc.b32 %r1, %r60;",
                                  "add.cc.u32 %r1, %r60, 9;"}) {
    TestDevice device;
    LaunchShape shape;
    shape.block = {32, 1, 1};
    const auto out = device.room<U32>(32);
    const auto result = device.run(
        kernel_of(
            std::string("  and.b32 %r2, %r60, 5;\n  setp.eq.u32 %p1, %r2, 4;\n  mov.u32 %r1, 77;\n  @%p1 ") +
            instruction + "\n  mad.wide.u32 %rd1, %r60, 4, %rd61;\n  st.global.u32 [%rd1], %r1;\n"),
        shape, {}, out, out);
    EXPECT_TRUE(result.findings.empty());
    const auto values = device.download<U32>(out, 32);
    for (U32 lane = 0; lane < 32; ++lane) {
      EXPECT_EQ(values[lane] == 77, (lane & 5) != 4) << instruction << " lane " << lane;
    }
  }
}

TEST(Integer, WrongFormsAreRefused) {
  for (const char* instruction :
       {"add.sat.u32 %r1, %r2, %r3;", "mul.u32 %r1, %r2, %r3;", "abs.u32 %r1, %r2;",
        "add.cc.u16 %h1, %h2, %h3;", "mul.wide.u64 %rd1, %rd2, %rd3;", "add.b32 %r1, %r2, %r3;",
        "add.u32.foo %r1, %r2, %r3;", "add.u32 %r1, %r2;", "min.relu.u16x2 %r1, %r2, %r3;"}) {
    EXPECT_THROW(Module(kernel_of(std::string("  ") + instruction), {9, 0, 'a'}), PtxError) << instruction;
  }
}

}  // namespace
}  // namespace jit::emulator::testing
