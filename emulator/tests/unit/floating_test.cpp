#include <algorithm>
#include <cfenv>
#include <cmath>
#include <cstdint>

#ifdef __SSE__
#  include <xmmintrin.h>
#endif

#include <gtest/gtest.h>

#include "tests/unit/lane_run.h"

namespace jit::emulator::testing {
namespace {

using U32 = std::uint32_t;
using U64 = std::uint64_t;

const TargetArch blackwell = {10, 0, 0};

float of_bits(U32 bits) { return std::bit_cast<float>(bits); }
float nan32() { return of_bits(0x7fffffff); }
float canonical(float x) { return std::isnan(x) ? nan32() : x; }
float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }
float saturated(float x) { return std::isnan(x) || x <= 0 ? 0.0f : std::min(x, 1.0f); }

// The neighbor of x above or below it.
template <class T>
T next(T x, bool up) {
  return std::nextafter(x, up ? std::numeric_limits<T>::infinity() : -std::numeric_limits<T>::infinity());
}

// Directed rounding of an exact value, given its nearest neighbor and on which side of that it
// lies.
template <class T>
T directed(T nearest, int side, const std::string& rounding) {
  if (side == 0 || std::isnan(nearest)) return nearest;
  const bool up = rounding == "rp" || (rounding == "rz" && (side > 0 ? nearest < 0 : nearest <= 0));
  if (rounding == "rz" && side > 0 && nearest == 0) return nearest;
  return up ? (side > 0 ? next(nearest, true) : nearest) : (side < 0 ? next(nearest, false) : nearest);
}

// The exact value of a + b, a × b and a × b + c is known as a sum of two long doubles only for moderate
// exponents; these are such.
std::vector<float> moderate_values(unsigned seed, std::size_t count) {
  std::mt19937 random(seed);
  std::vector<float> values;
  for (std::size_t i = 0; i < count; ++i) {
    const U32 bits = random();
    const float mantissa = 1.0f + static_cast<float>(bits >> 9) * 0x1p-23f;
    const float value = std::ldexp(mantissa, static_cast<int>(random() % 9) - 4);
    values.push_back((bits & 1) != 0 ? -value : value);
  }
  return values;
}

// As threads of XLA have it, which flush subnormals, and as a program has it that rounds upwards.
TEST(Floating, IsThatOfTheDeviceWhateverTheCallersIs) {
  const std::vector<float> a = {1.0f, 0x1p-140f, -0x1p-130f}, b = {0x1p-30f, 0x1p-141f, 0x1p-149f};
  const std::vector<float> expected = {1.0f, 0x1.8p-140f, -0x1p-130f + 0x1p-149f};
  std::fenv_t before;
  std::fegetenv(&before);
  std::fesetround(FE_UPWARD);
#ifdef __SSE__
  _mm_setcsr(_mm_getcsr() | _MM_FLUSH_ZERO_ON | 0x40);  // subnormal operands are zeros, too
#endif
  const std::vector<float> sums = run_lanes<float>("add.rn.f32 %d, %a, %b;", a, b);
  const bool rounds_up = std::fegetround() == FE_UPWARD;
  std::fesetenv(&before);
  EXPECT_EQ(sums, expected);
  EXPECT_TRUE(rounds_up) << "the caller has its own again";
}

class Roundings : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Floating, Roundings, ::testing::Values("rn", "rz", "rm", "rp"),
                         [](const auto& test) { return test.param; });

// The double that is given is exact: for these operands 53 bits hold sums and products.
float rounded(double exact, const std::string& rounding) {
  const auto nearest = static_cast<float>(exact);
  if (rounding == "rn") return nearest;
  return directed(nearest, exact > nearest ? 1 : exact < nearest ? -1 : 0, rounding);
}

TEST_P(Roundings, OfSingles) {
  const std::string rounding = GetParam();
  const auto a = moderate_values(1, 5000), b = moderate_values(2, 5000), c = moderate_values(3, 5000);
  const auto of = [&](const char* name) { return fmt::format("{}.{}.f32 %d, %a, %b;", name, rounding); };
  using D = double;
  expect_lanes<float>(
      of("add"), [&](float x, float y) { return rounded(D{x} + y, rounding); }, a, b);
  expect_lanes<float>(
      of("sub"), [&](float x, float y) { return rounded(D{x} - y, rounding); }, a, b);
  expect_lanes<float>(
      of("mul"), [&](float x, float y) { return rounded(D{x} * y, rounding); }, a, b);
  __extension__ using Quad = __float128;
  const auto fused = [&](float x, float y, float z) {
    const Quad exact = Quad{x} * y + z;
    const auto nearest = std::fma(x, y, z);
    return rounding == "rn" ? nearest
                            : directed(nearest,
                                       exact > nearest   ? 1
                                       : exact < nearest ? -1
                                                         : 0,
                                       rounding);
  };
  expect_lanes<float>(fmt::format("fma.{}.f32 %d, %a, %b, %c;", rounding), fused, a, b, c);
  expect_lanes<float>(fmt::format("mad.{}.f32 %d, %a, %b, %c;", rounding), fused, a, b, c);
  const auto quotient = [&](float x, float y) {
    const float nearest = x / y;
    const double rest = D{x} - D{nearest} * y;  // exact
    const int side = rest == 0 ? 0 : (rest > 0) == (y > 0) ? 1 : -1;
    return rounding == "rn" ? nearest : directed(nearest, side, rounding);
  };
  expect_lanes<float>(of("div"), quotient, a, b);
  expect_lanes<float>(
      fmt::format("rcp.{}.f32 %d, %a;", rounding), [&](float x) { return quotient(1.0f, x); }, a);
  expect_lanes<float>(
      fmt::format("abs.f32 %f1, %a;\n  sqrt.{}.f32 %d, %f1;", rounding),
      [&](float x) {
        x = std::fabs(x);
        const float nearest = std::sqrt(x);
        const double rest = D{x} - D{nearest} * nearest;  // exact
        return rounding == "rn" ? nearest : directed(nearest, rest > 0 ? 1 : rest < 0 ? -1 : 0, rounding);
      },
      a);
}

TEST_P(Roundings, OfDoubles) {
  const std::string rounding = GetParam();
  std::vector<double> a, b;
  for (const float x : moderate_values(4, 5000)) a.push_back(x / 3.0);
  for (const float x : moderate_values(5, 5000)) b.push_back(x / 7.0);
  __extension__ using Quad = __float128;
  const auto exactly = [&](Quad exact) {
    const auto nearest = static_cast<double>(exact);
    return rounding == "rn" ? nearest
                            : directed(nearest,
                                       exact > nearest   ? 1
                                       : exact < nearest ? -1
                                                         : 0,
                                       rounding);
  };
  const auto of = [&](const char* name) { return fmt::format("{}.{}.f64 %d, %a, %b;", name, rounding); };
  expect_lanes<double>(
      of("add"), [&](double x, double y) { return exactly(Quad{x} + y); }, a, b);
  expect_lanes<double>(
      of("sub"), [&](double x, double y) { return exactly(Quad{x} - y); }, a, b);
  expect_lanes<double>(
      of("mul"), [&](double x, double y) { return exactly(Quad{x} * y); }, a, b);
  expect_lanes<double>(
      of("div"),
      [&](double x, double y) {
        const double nearest = x / y;
        const double rest = std::fma(-nearest, y, x);
        const int side = rest == 0 ? 0 : (rest > 0) == (y > 0) ? 1 : -1;
        return rounding == "rn" ? nearest : directed(nearest, side, rounding);
      },
      a, b);
  expect_lanes<double>(
      fmt::format("fma.{}.f64 %d, %a, %b, 0dBFF0000000000000;", rounding),
      [&](double x, double y) { return exactly(Quad{x} * y - 1); }, a, b);
}

// Special values and subnormals, with the roundings of the host.
TEST(Floating, SinglesOfAllKinds) {
  expect_pairs<float, float>("add.f32 %d, %a, %b;", [](float a, float b) { return canonical(a + b); });
  expect_pairs<float, float>("sub.f32 %d, %a, %b;", [](float a, float b) { return canonical(a - b); });
  expect_pairs<float, float>("mul.f32 %d, %a, %b;", [](float a, float b) { return canonical(a * b); });
  expect_pairs<float, float>("div.rn.f32 %d, %a, %b;", [](float a, float b) { return canonical(a / b); });
  expect_triples<float, float>("fma.rn.f32 %d, %a, %b, %c;",
                               [](float a, float b, float c) { return canonical(std::fma(a, b, c)); });
  expect_values<float, float>("sqrt.rn.f32 %d, %a;", [](float a) { return canonical(std::sqrt(a)); });
  expect_values<float, float>("rcp.rn.f32 %d, %a;", [](float a) { return canonical(1 / a); });
}

TEST(Floating, SubnormalsAreFlushedWithTheirSign) {
  const auto f = flushed;
  expect_pairs<float, float>("add.ftz.f32 %d, %a, %b;",
                             [f](float a, float b) { return f(canonical(f(a) + f(b))); });
  expect_pairs<float, float>("sub.rn.ftz.f32 %d, %a, %b;",
                             [f](float a, float b) { return f(canonical(f(a) - f(b))); });
  expect_pairs<float, float>("mul.ftz.f32 %d, %a, %b;",
                             [f](float a, float b) { return f(canonical(f(a) * f(b))); });
  expect_triples<float, float>("fma.rn.ftz.f32 %d, %a, %b, %c;", [f](float a, float b, float c) {
    return f(canonical(std::fma(f(a), f(b), f(c))));
  });
  expect_pairs<float, float>("max.ftz.f32 %d, %a, %b;", [f](float a, float b) {
    return f(a) == 0 && f(b) == 0 ? f(a) + f(b) : canonical(std::fmax(f(a), f(b)));
  });
  expect_values<float, float>("neg.ftz.f32 %d, %a;", [f](float a) { return canonical(-f(a)); });
  expect_values<float, float>("abs.ftz.f32 %d, %a;", [f](float a) { return canonical(std::fabs(f(a))); });
}

TEST(Floating, Saturation) {
  expect_pairs<float, float>("add.sat.f32 %d, %a, %b;", [](float a, float b) { return saturated(a + b); });
  expect_pairs<float, float>("mul.ftz.sat.f32 %d, %a, %b;",
                             [](float a, float b) { return saturated(flushed(flushed(a) * flushed(b))); });
  expect_triples<float, float>("fma.rn.sat.f32 %d, %a, %b, %c;",
                               [](float a, float b, float c) { return saturated(std::fma(a, b, c)); });
}

TEST(Floating, PairsOfSingles) {
  const auto on_both = [](auto f) {
    return [f](auto... packed) {
      const auto half = [](U64 x, int i) { return of_bits(static_cast<U32>(x >> (32 * i))); };
      return U64{std::bit_cast<U32>(f(half(packed, 0)...))} | U64{std::bit_cast<U32>(f(half(packed, 1)...))}
                                                                  << 32;
    };
  };
  std::vector<U64> a, b, c;
  const auto [x, y, z] = interesting_triples<float>(8000);
  for (std::size_t i = 1; i < x.size(); ++i) {
    const auto pack = [i](const std::vector<float>& v) {
      return U64{std::bit_cast<U32>(v[i])} << 32 | std::bit_cast<U32>(v[i - 1]);
    };
    a.push_back(pack(x));
    b.push_back(pack(y));
    c.push_back(pack(z));
  }
  expect_lanes<U64>("add.f32x2 %d, %a, %b;", blackwell,
                    on_both([](float p, float q) { return canonical(p + q); }), a, b);
  expect_lanes<U64>("mul.rn.ftz.f32x2 %d, %a, %b;", blackwell,
                    on_both([](float p, float q) { return flushed(canonical(flushed(p) * flushed(q))); }), a,
                    b);
  expect_lanes<U64>("fma.rn.f32x2 %d, %a, %b, %c;", blackwell,
                    on_both([](float p, float q, float r) { return canonical(std::fma(p, q, r)); }), a, b, c);
  EXPECT_THROW(Module(kernel_of("  add.f32x2 %rd1, %rd2, %rd3;"), {9, 0, 'a'}), PtxError);
}

// The smaller of two numbers, with −0 below +0.
float smaller(float a, float b) { return a < b || (a == b && std::signbit(a)) ? a : b; }
float larger(float a, float b) { return smaller(a, b) == a && !(a == b && !std::signbit(a)) ? b : a; }

float least(float a, float b) { return std::isnan(a) ? canonical(b) : std::isnan(b) ? a : smaller(a, b); }
float greatest(float a, float b) { return std::isnan(a) ? canonical(b) : std::isnan(b) ? a : larger(a, b); }

TEST(Floating, Extrema) {
  expect_pairs<float, float>("min.f32 %d, %a, %b;", least);
  expect_pairs<float, float>("max.f32 %d, %a, %b;", greatest);
  expect_pairs<float, float>("min.NaN.f32 %d, %a, %b;", [](float a, float b) {
    return std::isnan(a) || std::isnan(b) ? nan32() : smaller(a, b);
  });
  expect_pairs<float, float>("max.NaN.f32 %d, %a, %b;", [](float a, float b) {
    return std::isnan(a) || std::isnan(b) ? nan32() : larger(a, b);
  });
  expect_pairs<float, float>("max.xorsign.abs.f32 %d, %a, %b;", [](float a, float b) {
    const float x = greatest(std::fabs(a), std::fabs(b));
    return std::isnan(x) ? x : std::copysign(x, std::signbit(a) != std::signbit(b) ? -1.0f : 1.0f);
  });
  expect_triples<float, float>(
      "min.f32 %d, %a, %b, %c;", [](float a, float b, float c) { return least(least(a, b), c); }, blackwell);
  expect_triples<float, float>(
      "max.NaN.abs.f32 %d, %a, %b, %c;",
      [](float a, float b, float c) {
        return std::isnan(a + b + c) && (std::isnan(a) || std::isnan(b) || std::isnan(c))
                   ? nan32()
                   : greatest(greatest(std::fabs(a), std::fabs(b)), std::fabs(c));
      },
      blackwell);
  // Equality of doubles; the payload of two NaNs is left open.
  const auto same = [](double x, double y) { return std::bit_cast<U64>(x) == std::bit_cast<U64>(y); };
  const auto [a, b] = interesting_pairs<double>();
  const auto results = run_lanes<double>("min.f64 %d, %a, %b;", a, b);
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) {
      EXPECT_TRUE(std::isnan(results[i]));
    } else if (a[i] == 0 && b[i] == 0) {
      EXPECT_EQ(std::signbit(results[i]), std::signbit(a[i]) || std::signbit(b[i]));
    } else {
      EXPECT_TRUE(same(results[i], std::fmin(a[i], b[i]))) << a[i] << " " << b[i];
    }
  }
}

TEST(Floating, Signs) {
  expect_values<float, float>("neg.f32 %d, %a;", [](float a) { return canonical(-a); });
  expect_values<float, float>("abs.f32 %d, %a;", [](float a) { return canonical(std::fabs(a)); });
  // A NaN keeps its sign and is quieted.
  const auto number_or_nan = [](U64 a, U64 changed) {
    return std::isnan(std::bit_cast<double>(a)) ? a | 0x0008000000000000 : changed;
  };
  constexpr U64 sign = U64{1} << 63;
  expect_values<U64, U64>("neg.f64 %d, %a;", [=](U64 a) { return number_or_nan(a, a ^ sign); });
  expect_values<U64, U64>("abs.f64 %d, %a;", [=](U64 a) { return number_or_nan(a, a & ~sign); });
  expect_pairs<U32, U32>("copysign.f32 %d, %a, %b;",
                         [](U32 a, U32 b) { return (a & 0x80000000) | (b & 0x7fffffff); });
  expect_pairs<U64, U64>("copysign.f64 %d, %a, %b;",
                         [](U64 a, U64 b) { return (a & U64{1} << 63) | (b & ~(U64{1} << 63)); });
}

TEST(Floating, DoublesHandOnNans) {
  const auto check = [](const char* body, double a, double b, U64 expected) {
    const auto result = run_lanes<U64>(body, std::vector{a}, std::vector{b});
    EXPECT_EQ(result[0], expected) << body;
  };
  const double infinity = std::numeric_limits<double>::infinity();
  const auto signaling = std::bit_cast<double>(U64{0x7ff0000000001234});
  check("add.f64 %d, %a, %b;", signaling, 1, 0x7ff8000000001234);
  check("mul.f64 %d, %a, %b;", 2, signaling, 0x7ff8000000001234);
  check("sub.f64 %d, %a, %b;", infinity, infinity, 0xfff8000000000000);
  // The NaN of two, as recorded: the first one of a quotient, else the second one, also when the third one is
  // a NaN.
  const auto other = std::bit_cast<double>(U64{0xfff8000000005678});
  check("div.rn.f64 %d, %a, %b;", signaling, other, 0x7ff8000000001234);
  check("add.f64 %d, %a, %b;", signaling, other, 0xfff8000000005678);
  check("fma.rn.f64 %d, 0d3FF0000000000000, %a, %b;", signaling, other, 0x7ff8000000001234);
  check("fma.rn.f64 %d, %a, 0d3FF0000000000000, %b;", signaling, other, 0xfff8000000005678);
}

TEST(Floating, AQuotientIsFlushedBeforeItIsRounded) {
  const auto result = run_lanes<U32>("div.rp.ftz.f32 %d, %a, %b;", std::vector<U32>{0x00800000, 0x00800000},
                                     std::vector<U32>{0x3f800001, 0x3f800000});
  EXPECT_EQ(result, (std::vector<U32>{0, 0x00800000}));
}

TEST(Floating, MixedPrecision) {
  std::vector<std::uint16_t> a;
  for (U32 i = 0; i < 0x10000; i += 7) a.push_back(static_cast<std::uint16_t>(i));
  const auto c = moderate_values(8, a.size());
  expect_lanes<float>(
      "add.f32.bf16 %d, %a, %b;", blackwell,
      [](std::uint16_t x, float y) { return canonical(of_bits(U32{x} << 16) + y); }, a, c);
  expect_lanes<float>(
      "fma.rn.sat.f32.bf16 %d, %a, %a, %b;", blackwell,
      [](std::uint16_t x, float y) {
        const float wide = of_bits(U32{x} << 16);
        return saturated(std::fma(wide, wide, y));
      },
      a, c);
}

TEST(Floating, RoundingOfTheHostIsLeftAsItWas) {
  ASSERT_EQ(std::fegetround(), FE_TONEAREST);
  const auto a = moderate_values(9, 100);
  expect_lanes<float>(
      "add.rp.f32 %f1, %a, %a;\n  add.f32 %d, %f1, 0f33800000;",
      [](float x) { return (x + x) + of_bits(0x33800000); }, a);
  EXPECT_EQ(std::fegetround(), FE_TONEAREST);
}

TEST(Floating, WrongFormsAreRefused) {
  for (const char* instruction :
       {"fma.f32 %f1, %f2, %f3, %f4;", "add.ftz.f64 %fd1, %fd2, %fd3;", "max.sat.f32 %f1, %f2, %f3;",
        "max.xorsign.f32 %f1, %f2, %f3;", "min.f32 %f1, %f2, %f3, %f4;", "div.f32 %f1, %f2, %f3;",
        "sqrt.approx.f64 %fd1, %fd2;", "add.rna.f32 %f1, %f2, %f3;"}) {
    EXPECT_THROW(Module(kernel_of(std::string("  ") + instruction), {9, 0, 'a'}), PtxError) << instruction;
  }
}

}  // namespace
}  // namespace jit::emulator::testing
