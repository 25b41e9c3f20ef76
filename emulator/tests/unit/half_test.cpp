#include <algorithm>
#include <cmath>
#include <cstdint>

#include <gtest/gtest.h>

#include "tests/support/small_floats.h"
#include "tests/unit/lane_run.h"

namespace jit::emulator::testing {
namespace {

using Half = std::uint16_t;
using U32 = std::uint32_t;

struct Operands3 {
  std::vector<Half> a, b, c;
};

// All kinds of codes; most with exponents close to each other, so that sums round.
Operands3 halves(const SmallFormat& format, std::size_t count) {
  std::mt19937 random(11);
  const auto draw = [&]() -> Half {
    const std::vector<U32> special = {0,
                                      1,
                                      2,
                                      format.largest,
                                      format.largest + 1,
                                      format.nan,
                                      format.largest + 2,
                                      1u << format.fraction_bits,
                                      (1u << format.fraction_bits) - 1,
                                      format.nearest(1),
                                      format.nearest(0.5)};
    U32 code = random() & 0xffff;
    if (random() % 3 == 0) {
      const auto one = format.nearest(1);
      code = (one & ~((1u << format.fraction_bits) - 1)) + (random() % (8u << format.fraction_bits)) -
             (4u << format.fraction_bits);
    } else if (random() % 8 == 0) {
      code = special[random() % special.size()];
    }
    return static_cast<Half>(code ^ (random() % 2 != 0 ? format.sign_bit() : 0));
  };
  Operands3 operands;
  for (std::size_t i = 0; i < count; ++i) {
    operands.a.push_back(draw());
    operands.b.push_back(draw());
    operands.c.push_back(draw());
  }
  return operands;
}

// a × b + c rounded once.
Half fused(const SmallFormat& format, Half a, Half b, Half c) {
  const double x = format.value(a), y = format.value(b), z = format.value(c);
  const double sum = x * y + z;  // decides what is not finite, and the sign of zero
  if (!std::isfinite(x) || !std::isfinite(y) || !std::isfinite(z)) {
    return static_cast<Half>(format.nearest(sum));
  }
  const Quad product = Quad{x} * y;
  Quad exact = product + z;
  // An addend too small for a Quad decides ties all the same.
  if (exact == product && z != 0) exact += (z > 0 ? 0x1p-60 : -0x1p-60) * (product < 0 ? -product : product);
  return static_cast<Half>(format.nearest(exact, std::signbit(sum)));
}

Half negated(Half x) { return x ^ 0x8000; }
Half flushed(const SmallFormat& format, Half x) {
  return format.is_subnormal(x) ? static_cast<Half>(x & 0x8000) : x;
}
Half rectified(const SmallFormat& format, Half x) {
  return !format.is_nan(x) && (x & 0x8000) != 0 ? Half{0} : x;
}
Half saturated(const SmallFormat& format, Half x) {
  const double value = format.value(x);
  return !(value > 0) ? Half{0} : value >= 1 ? static_cast<Half>(format.nearest(1)) : x;
}

U32 pack(Half low, Half high) { return low | U32{high} << 16; }

// The instruction on one number, and on pairs of them.
template <class Reference>
void expect_half(const SmallFormat& format, const std::string& instruction, const std::string& operands,
                 Reference reference) {
  const auto [a, b, c] = halves(format, 30000);
  const auto name = std::string(format.name);
  expect_lanes<Half>(instruction + "." + name + " " + operands, reference, a, b, c);
  const auto paired = [](const std::vector<Half>& values) {
    std::vector<U32> pairs;
    for (std::size_t i = 0; i + 1 < values.size(); i += 2) pairs.push_back(pack(values[i], values[i + 1]));
    return pairs;
  };
  expect_lanes<U32>(
      instruction + "." + name + "x2 " + operands,
      [reference](U32 x, U32 y, U32 z) {
        return pack(reference(Half(x), Half(y), Half(z)),
                    reference(Half(x >> 16), Half(y >> 16), Half(z >> 16)));
      },
      paired(a), paired(b), paired(c));
}

class Halves : public ::testing::TestWithParam<SmallFormat> {
 protected:
  const SmallFormat& format() const { return GetParam(); }
  Half one() const { return static_cast<Half>(format().nearest(1)); }
};
INSTANTIATE_TEST_SUITE_P(Half, Halves, ::testing::Values(f16, bf16),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(Halves, ArithmeticRoundsOnce) {
  const auto& f = format();
  expect_half(f, "add", "%d, %a, %b;", [&](Half a, Half b, Half) { return fused(f, a, one(), b); });
  expect_half(f, "sub.rn", "%d, %a, %b;",
              [&](Half a, Half b, Half) { return fused(f, a, one(), negated(b)); });
  expect_half(f, "mul", "%d, %a, %b;", [&](Half a, Half b, Half) {
    const double x = f.value(a), y = f.value(b);
    return static_cast<Half>(f.nearest(x * y, std::signbit(x * y)));  // exact in a double
  });
  expect_half(f, "fma.rn", "%d, %a, %b, %c;", [&](Half a, Half b, Half c) { return fused(f, a, b, c); });
  expect_half(f, "fma.rn.relu", "%d, %a, %b, %c;",
              [&](Half a, Half b, Half c) { return rectified(f, fused(f, a, b, c)); });
}

// A sum that lies half way between two numbers but for an addend far below the last bit of a double.
TEST(Half, ATinyAddendDecidesATie) {
  const auto code = [](double x) { return static_cast<Half>(bf16.nearest(x)); };
  // (1 + 2^-7) × 1.5 = 1.5 + 2^-7 + 2^-8: half way.
  const Half a = code(1 + 0x1p-7), b = code(1.5);
  const Half below = code(1.5 + 0x1p-7), above = code(1.5 + 0x1p-6);
  const std::vector<Half> c = {code(0x1p-120), code(-0x1p-120), code(0)};
  const auto results =
      run_lanes<Half>("fma.rn.bf16 %d, %a, %b, %c;", std::vector<Half>(3, a), std::vector<Half>(3, b), c);
  EXPECT_EQ(results, (std::vector<Half>{above, below, (below & 1) == 0 ? below : above}));
}

TEST(Half, FlushAndSaturation) {
  const auto f = [](Half x) { return flushed(f16, x); };
  expect_half(f16, "add.ftz", "%d, %a, %b;",
              [f](Half a, Half b, Half) { return f(fused(f16, f(a), 0x3c00, f(b))); });
  expect_half(f16, "add.sat", "%d, %a, %b;",
              [](Half a, Half b, Half) { return saturated(f16, fused(f16, a, 0x3c00, b)); });
  expect_half(f16, "fma.rn.ftz.sat", "%d, %a, %b, %c;",
              [f](Half a, Half b, Half c) { return saturated(f16, f(fused(f16, f(a), f(b), f(c)))); });
  expect_half(f16, "fma.rn.ftz.relu", "%d, %a, %b, %c;",
              [f](Half a, Half b, Half c) { return rectified(f16, f(fused(f16, f(a), f(b), f(c)))); });
  expect_half(f16, "max.ftz", "%d, %a, %a;",
              [f](Half a, Half, Half) { return f16.is_nan(a) ? Half{0x7fff} : f(a); });
}

TEST(Half, NansOfOutOfBoundsElementsGiveZero) {
  const std::vector<Half> a = {0x7ff7, 0x3c00, 0xfff7, 0x7fff, 0x3c00},
                          b = {0x3c00, 0x7ff7, 0x3c00, 0x3c00, 0x3c00};
  EXPECT_EQ(run_lanes<Half>("fma.rn.oob.f16 %d, %a, %b, %a;", a, b),
            (std::vector<Half>{0, 0, 0, 0x7fff, 0x4000}));
}

TEST_P(Halves, Extrema) {
  const auto& f = format();
  const auto smaller = [&](Half a, Half b) {
    const double x = f.value(a), y = f.value(b);
    return x < y || (x == y && (a & 0x8000) != 0) ? a : b;
  };
  const auto larger = [&](Half a, Half b) { return smaller(a, b) == a && a != b ? b : a; };
  const auto with_nan = [&](auto choose, bool strict) {
    return [=, &f](Half a, Half b, Half) -> Half {
      const bool either = f.is_nan(a) || f.is_nan(b), both = f.is_nan(a) && f.is_nan(b);
      if (strict ? either : both) return 0x7fff;
      return f.is_nan(a) ? b : f.is_nan(b) ? a : choose(a, b);
    };
  };
  expect_half(f, "min", "%d, %a, %b;", with_nan(smaller, false));
  expect_half(f, "max", "%d, %a, %b;", with_nan(larger, false));
  expect_half(f, "max.NaN", "%d, %a, %b;", with_nan(larger, true));
  expect_half(f, "min.xorsign.abs", "%d, %a, %b;", [&](Half a, Half b, Half c) -> Half {
    const Half x = with_nan(smaller, false)(a & 0x7fff, b & 0x7fff, c);
    return f.is_nan(x) ? x : static_cast<Half>(x | ((a ^ b) & 0x8000));
  });
}

TEST_P(Halves, Signs) {
  const auto& f = format();
  expect_half(f, "neg", "%d, %a;",
              [&](Half a, Half, Half) { return f.is_nan(a) ? Half{0x7fff} : negated(a); });
  expect_half(f, "abs", "%d, %a;",
              [&](Half a, Half, Half) { return f.is_nan(a) ? Half{0x7fff} : static_cast<Half>(a & 0x7fff); });
}

TEST(Half, Functions) {
  std::vector<Half> all(0x10000);
  for (U32 i = 0; i < all.size(); ++i) all[i] = static_cast<Half>(i);
  const auto function = [](const SmallFormat& format, auto f) {
    return [&format, f](Half x) {
      const long double y = f(static_cast<long double>(format.value(x)));
      return static_cast<Half>(format.nearest(Quad{y}, std::signbit(y)));
    };
  };
  const auto power = [](long double x) { return std::exp2(x); };
  const auto tangent = [](long double x) { return std::tanh(x); };
  expect_lanes<Half>("ex2.approx.f16 %d, %a;", function(f16, power), all);
  expect_lanes<Half>("tanh.approx.f16 %d, %a;", function(f16, tangent), all);
  expect_lanes<Half>("tanh.approx.bf16 %d, %a;", function(bf16, tangent), all);
  expect_lanes<Half>(
      "ex2.approx.ftz.bf16 %d, %a;",
      [&](Half x) { return flushed(bf16, function(bf16, power)(flushed(bf16, x))); }, all);
}

TEST(Half, WrongFormsAreRefused) {
  for (const char* instruction :
       {"add.ftz.bf16 %h1, %h2, %h3;", "add.relu.f16 %h1, %h2, %h3;", "ex2.approx.bf16 %h1, %h2;",
        "fma.rn.sat.relu.f16 %h1, %h2, %h3, %h4;", "max.xorsign.f16 %h1, %h2, %h3;", "tanh.f16 %h1, %h2;"}) {
    EXPECT_THROW(Module(kernel_of(std::string("  ") + instruction), {9, 0, 'a'}), PtxError) << instruction;
  }
  EXPECT_THROW(Module(kernel_of("  add.bf16 %h1, %h2, %h3;", "", "sm_80"), {8, 0, 0}), PtxError);
}

}  // namespace
}  // namespace jit::emulator::testing
