#include <cmath>
#include <cstdint>

#include <gtest/gtest.h>

#include "tests/support/small_floats.h"
#include "tests/unit/lane_run.h"

namespace jit::emulator::testing {
namespace {

using U16 = std::uint16_t;
using U32 = std::uint32_t;
using U64 = std::uint64_t;
using S16 = std::int16_t;
using S32 = std::int32_t;
using S64 = std::int64_t;

std::string set_and_store(const std::string& comparison) {
  return comparison + " %p1, %a, %b;\n  selp.u32 %d, 1, 0, %p1;";
}

template <class T>
class Comparisons : public ::testing::Test {};
using AllIntegers = ::testing::Types<U16, U32, U64, S16, S32, S64>;
TYPED_TEST_SUITE(Comparisons, AllIntegers);

TYPED_TEST(Comparisons, OfIntegers) {
  using T = TypeParam;
  const auto expect = [](const std::string& op, const std::string& type, auto holds) {
    expect_pairs<U32, T>(set_and_store("setp." + op + "." + type),
                         [holds](T a, T b) { return U32{holds(a, b)}; });
  };
  const auto type = fmt::format("{}{}", std::is_signed_v<T> ? 's' : 'u', 8 * sizeof(T));
  expect("eq", type, [](T a, T b) { return a == b; });
  expect("ne", type, [](T a, T b) { return a != b; });
  expect("lt", type, [](T a, T b) { return a < b; });
  expect("le", type, [](T a, T b) { return a <= b; });
  expect("gt", type, [](T a, T b) { return a > b; });
  expect("ge", type, [](T a, T b) { return a >= b; });
  if constexpr (std::is_unsigned_v<T>) {
    expect("lo", type, [](T a, T b) { return a < b; });
    expect("ls", type, [](T a, T b) { return a <= b; });
    expect("hi", type, [](T a, T b) { return a > b; });
    expect("hs", type, [](T a, T b) { return a >= b; });
    expect("eq", fmt::format("b{}", 8 * sizeof(T)), [](T a, T b) { return a == b; });
    expect("ne", fmt::format("b{}", 8 * sizeof(T)), [](T a, T b) { return a != b; });
  }
}

// The fourteen operators on values that order as doubles do.
template <class F>
void for_float_operators(F f) {
  const auto unordered = [](double a, double b) { return std::isnan(a) || std::isnan(b); };
  f("eq", [](double a, double b) { return a == b; });
  f("ne", [=](double a, double b) { return a != b && !unordered(a, b); });
  f("lt", [](double a, double b) { return a < b; });
  f("le", [](double a, double b) { return a <= b; });
  f("gt", [](double a, double b) { return a > b; });
  f("ge", [](double a, double b) { return a >= b; });
  f("equ", [=](double a, double b) { return a == b || unordered(a, b); });
  f("neu", [](double a, double b) { return a != b; });
  f("ltu", [=](double a, double b) { return a < b || unordered(a, b); });
  f("leu", [=](double a, double b) { return a <= b || unordered(a, b); });
  f("gtu", [=](double a, double b) { return a > b || unordered(a, b); });
  f("geu", [=](double a, double b) { return a >= b || unordered(a, b); });
  f("num", [=](double a, double b) { return !unordered(a, b); });
  f("nan", [=](double a, double b) { return unordered(a, b); });
}

TEST(Compare, Floats) {
  for_float_operators([](const std::string& op, auto holds) {
    expect_pairs<U32, float>(set_and_store("setp." + op + ".f32"),
                             [=](float a, float b) { return U32{holds(a, b)}; });
    expect_pairs<U32, double>(set_and_store("setp." + op + ".f64"),
                              [=](double a, double b) { return U32{holds(a, b)}; });
    expect_pairs<U32, U16>(set_and_store("setp." + op + ".f16"),
                           [=](U16 a, U16 b) { return U32{holds(f16.value(a), f16.value(b))}; });
    expect_pairs<U32, U16>(set_and_store("setp." + op + ".bf16"),
                           [=](U16 a, U16 b) { return U32{holds(bf16.value(a), bf16.value(b))}; });
  });
  const auto flushed = [](float x) { return std::fpclassify(x) == FP_SUBNORMAL ? 0.0f : x; };
  expect_pairs<U32, float>(set_and_store("setp.eq.ftz.f32"),
                           [=](float a, float b) { return U32{flushed(a) == flushed(b)}; });
}

TEST(Compare, BothResultsAndAThirdPredicate) {
  // %p1 is a < b combined with a > 100, %p2 is its complement before the combination.
  const auto expect = [](const std::string& combine, auto reference) {
    expect_pairs<U32, S32>("setp.gt.s32 %p3, %a, 100;\n  setp.lt." + combine +
                               ".s32 %p1|%p2, %a, %b, !%p3;\n  selp.u32 %r1, 1, 0, %p1;\n"
                               "  selp.u32 %r2, 2, 0, %p2;\n  or.b32 %d, %r1, %r2;",
                           [=](S32 a, S32 b) {
                             const bool c = !(a > 100);
                             return U32{reference(a < b, c)} | U32{reference(!(a < b), c)} << 1;
                           });
  };
  expect("and", [](bool x, bool y) { return x && y; });
  expect("or", [](bool x, bool y) { return x || y; });
  expect("xor", [](bool x, bool y) { return x != y; });
  expect_pairs<U32, S32>("setp.le.s32 _|%p2, %a, %b;\n  selp.u32 %d, 1, 0, %p2;",
                         [](S32 a, S32 b) { return U32{a > b}; });
}

TEST(Compare, PairsOfHalves) {
  expect_pairs<U32, U32>(
      "setp.gt.f16x2 %p1|%p2, %a, %b;\n  selp.u32 %r1, 1, 0, %p1;\n  selp.u32 %r2, 2, 0, %p2;\n"
      "  or.b32 %d, %r1, %r2;",
      [](U32 a, U32 b) {
        return U32{f16.value(a & 0xffff) > f16.value(b & 0xffff)} |
               U32{f16.value(a >> 16) > f16.value(b >> 16)} << 1;
      });
  const auto halves = [](U32 a, U32 b, U32 value) {
    return (bf16.value(a & 0xffff) <= bf16.value(b & 0xffff) ? value : 0) |
           (bf16.value(a >> 16) <= bf16.value(b >> 16) ? value << 16 : 0);
  };
  expect_pairs<U32, U32>("set.le.bf16x2.bf16x2 %d, %a, %b;",
                         [=](U32 a, U32 b) { return halves(a, b, 0x3f80); });
  expect_pairs<U32, U32>("set.le.u32.bf16x2 %d, %a, %b;", [=](U32 a, U32 b) { return halves(a, b, 0xffff); });
}

TEST(Compare, SetGivesValues) {
  expect_pairs<U32, S32>("set.lt.u32.s32 %d, %a, %b;", [](S32 a, S32 b) { return a < b ? ~0u : 0u; });
  expect_pairs<float, U64>("set.ne.f32.u64 %d, %a, %b;", [](U64 a, U64 b) { return a != b ? 1.0f : 0.0f; });
  expect_pairs<U16, float>("set.geu.f16.f32 %d, %a, %b;",
                           [](float a, float b) { return a < b ? U16{0} : U16{0x3c00}; });
  expect_pairs<U16, U16>("set.eq.u16.f16 %d, %a, %b;",
                         [](U16 a, U16 b) { return f16.value(a) == f16.value(b) ? U16{0xffff} : U16{0}; });
  expect_pairs<U32, S32>("setp.eq.s32 %p1, %a, 0;\n  set.gt.or.s32.s32 %d, %a, %b, %p1;",
                         [](S32 a, S32 b) { return a > b || a == 0 ? ~0u : 0u; });
}

TEST(Compare, Selection) {
  expect_triples<U16, U16, U16, S32>("setp.lt.s32 %p1, %c, 5;\n  selp.b16 %d, %a, %b, %p1;",
                                     [](U16 a, U16 b, S32 c) { return c < 5 ? a : b; });
  expect_triples<U64, U64, U64, S32>("setp.lt.s32 %p1, %c, 5;\n  selp.b64 %d, %a, %b, %p1;",
                                     [](U64 a, U64 b, S32 c) { return c < 5 ? a : b; });
  expect_triples<U32, U32, U32, S32>("slct.b32.s32 %d, %a, %b, %c;",
                                     [](U32 a, U32 b, S32 c) { return c >= 0 ? a : b; });
  expect_triples<U64, U64, U64, float>("slct.u64.f32 %d, %a, %b, %c;",
                                       [](U64 a, U64 b, float c) { return c >= 0 ? a : b; });
  expect_triples<U32, U32, U32, float>("slct.ftz.s32.f32 %d, %a, %b, %c;", [](U32 a, U32 b, float c) {
    return c >= 0 || std::fpclassify(c) == FP_SUBNORMAL ? a : b;
  });
}

TEST(Compare, Properties) {
  const auto expect = [](const char* property, auto holds) {
    const auto test = [&](const char* type) {
      return fmt::format("testp.{}.{} %p1, %a;\n  selp.u32 %d, 1, 0, %p1;", property, type);
    };
    expect_values<U32, float>(test("f32"), [=](float x) { return U32{holds(x)}; });
    expect_values<U32, double>(test("f64"), [=](double x) { return U32{holds(x)}; });
  };
  expect("finite", [](auto x) { return std::isfinite(x); });
  expect("infinite", [](auto x) { return std::isinf(x); });
  expect("number", [](auto x) { return !std::isnan(x); });
  expect("notanumber", [](auto x) { return std::isnan(x); });
  expect("normal", [](auto x) { return std::isnormal(x) || x == 0; });  // zero, too, says silicon
  expect("subnormal", [](auto x) { return std::fpclassify(x) == FP_SUBNORMAL; });
}

TEST(Compare, LogicOnPredicates) {
  const auto expect = [](const std::string& instruction, auto reference) {
    expect_pairs<U32, S32>("setp.gt.s32 %p1, %a, 7;\n  setp.gt.s32 %p2, %b, 3;\n  " + instruction +
                               "\n  selp.u32 %d, 1, 0, %p3;",
                           [=](S32 a, S32 b) { return U32{reference(a > 7, b > 3)}; });
  };
  expect("and.pred %p3, %p1, %p2;", [](bool a, bool b) { return a && b; });
  expect("or.pred %p3, %p1, %p2;", [](bool a, bool b) { return a || b; });
  expect("xor.pred %p3, %p1, %p2;", [](bool a, bool b) { return a != b; });
  expect("not.pred %p3, %p1;", [](bool a, bool) { return !a; });
  expect("mov.pred %p3, %p2;", [](bool, bool b) { return b; });
  expect("mov.pred %p3, 1;", [](bool, bool) { return true; });
  // Only where the guard holds.
  expect("mov.pred %p3, %p2;\n  @%p1 not.pred %p3, %p3;", [](bool a, bool b) { return a ? !b : b; });
}

TEST(Compare, WrongFormsAreRefused) {
  for (const char* instruction :
       {"setp.lt.b32 %p1, %r1, %r2;", "setp.lo.s32 %p1, %r1, %r2;", "setp.equ.s32 %p1, %r1, %r2;",
        "setp.eq.and.s32 %p1, %r1, %r2;", "setp.eq.s32 %r1, %r1, %r2;", "setp.eq.ftz.f64 %p1, %fd1, %fd2;",
        "set.eq.f16x2.f32 %r1, %f1, %f2;", "selp.b32 %r1, %r2, %r3;", "testp.finite.u32 %p1, %r1;"}) {
    EXPECT_THROW(Module(kernel_of(std::string("  ") + instruction), {9, 0, 'a'}), PtxError) << instruction;
  }
}

}  // namespace
}  // namespace jit::emulator::testing
