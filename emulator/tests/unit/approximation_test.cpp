// Approximations: the special values of PTX's tables exactly, everything else within the error that PTX
// allows and much closer, since these are rounded from double precision.
#include <cmath>
#include <cstdint>

#include <gtest/gtest.h>

#include "tests/unit/lane_run.h"

namespace jit::emulator::testing {
namespace {

using U32 = std::uint32_t;
using U64 = std::uint64_t;

constexpr float infinity = std::numeric_limits<float>::infinity();
float nan32() { return std::bit_cast<float>(0x7fffffffu); }
float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }

std::vector<float> range(float low, float high, std::size_t count) {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> distribution(low, high);
  std::vector<float> values;
  for (std::size_t i = 0; i < count; ++i) values.push_back(distribution(random));
  return values;
}

// Units in the last place between x and the exact value; 0.5 at most when it is rounded correctly.
double error_in_units(float x, long double exact) {
  const float near = static_cast<float>(exact);
  const long double unit =
      std::max(std::abs(static_cast<long double>(std::nextafter(near, infinity)) - near), 0x1p-149L);
  return static_cast<double>(std::abs(x - exact) / unit);
}

// Expects an error below `units`, and how often it may exceed half a unit.
template <class Exact>
void expect_close(const std::string& body, const std::vector<float>& values, Exact exact, double units,
                  double seldom, bool ftz) {
  const auto results = run_lanes<float>(body, values);
  std::size_t misrounded = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const long double truth = exact(static_cast<long double>(ftz ? flushed(values[i]) : values[i]));
    if (ftz && std::abs(truth) < 0x1p-126L) {
      EXPECT_EQ(std::fabs(results[i]), 0.0f) << body << " " << values[i];
      continue;
    }
    const double error = error_in_units(results[i], truth);
    if (error > 0.5000001) ++misrounded;
    EXPECT_LE(error, units) << body << " " << values[i] << " gives " << results[i];
    if (error > units) return;
  }
  EXPECT_LE(static_cast<double>(misrounded), seldom * static_cast<double>(values.size())) << body;
}

struct Special {
  float from, to;
};

void expect_special(const std::string& body, const std::vector<Special>& table) {
  std::vector<float> values;
  for (const Special& row : table) values.push_back(row.from);
  const auto results = run_lanes<float>(body, values);
  for (std::size_t i = 0; i < table.size(); ++i) {
    EXPECT_EQ(std::bit_cast<U32>(results[i]), std::bit_cast<U32>(table[i].to))
        << body << " " << table[i].from << " gives " << results[i];
  }
}

constexpr float subnormal = 0x1p-130f;

TEST(Approximation, PowersOfTwo) {
  const auto exact = [](long double x) { return std::exp2(x); };
  expect_close("ex2.approx.ftz.f32 %d, %a;", range(-130, 128, 50000), exact, 0.501, 1e-3, true);
  expect_close("ex2.approx.f32 %d, %a;", range(-152, 128, 50000), exact, 0.501, 1e-3, false);
  expect_close("ex2.approx.f32 %d, %a;", range(-0.01f, 0.01f, 5000), exact, 0.501, 1e-3, false);
  expect_special("ex2.approx.ftz.f32 %d, %a;", {{-infinity, 0},
                                                {-subnormal, 1},
                                                {-0.0f, 1},
                                                {0, 1},
                                                {subnormal, 1},
                                                {infinity, infinity},
                                                {std::nanf(""), nan32()},
                                                {-127, 0},
                                                {-126, 0x1p-126f},
                                                {128, infinity},
                                                {1e30f, infinity},
                                                {-1e30f, 0},
                                                {127, 0x1p127f},
                                                {3, 8}});
  expect_special("ex2.approx.f32 %d, %a;",
                 {{-127, 0x1p-127f}, {-149, 0x1p-149f}, {-150.5f, 0}, {subnormal, 1}, {-infinity, 0}});
}

TEST(Approximation, Logarithms) {
  const auto exact = [](long double x) { return std::log2(x); };
  expect_close("lg2.approx.f32 %d, %a;", range(0, 10, 5000), exact, 0.501, 1e-3, false);
  expect_special("lg2.approx.ftz.f32 %d, %a;", {{-infinity, nan32()},
                                                {-1, nan32()},
                                                {-subnormal, -infinity},
                                                {-0.0f, -infinity},
                                                {0, -infinity},
                                                {subnormal, -infinity},
                                                {infinity, infinity},
                                                {nan32(), nan32()},
                                                {1, 0}});
  expect_special("lg2.approx.f32 %d, %a;", {{subnormal, -130}, {0x1p127f, 127}});
}

TEST(Approximation, Reciprocals) {
  expect_close(
      "rcp.approx.ftz.f32 %d, %a;", range(-3, 3, 5000), [](long double x) { return 1 / x; }, 0.501, 0, true);
  expect_special("rcp.approx.ftz.f32 %d, %a;", {{-infinity, -0.0f},
                                                {-subnormal, -infinity},
                                                {-0.0f, -infinity},
                                                {0, infinity},
                                                {subnormal, infinity},
                                                {infinity, 0},
                                                {nan32(), nan32()},
                                                {0x1p127f, 0},
                                                {4, 0.25f}});
  expect_special("rcp.approx.f32 %d, %a;",
                 {{0x1p127f, 0x1p-127f}, {-0x1p-127f, -0x1p127f}, {0x1p-149f, infinity}});
}

TEST(Approximation, Roots) {
  expect_close(
      "sqrt.approx.f32 %d, %a;", range(0, 100, 5000), [](long double x) { return std::sqrt(x); }, 0.501, 0,
      false);
  expect_close(
      "rsqrt.approx.f32 %d, %a;", range(1e-3f, 100, 5000), [](long double x) { return 1 / std::sqrt(x); },
      0.501, 1e-3, false);
  expect_special("sqrt.approx.ftz.f32 %d, %a;", {{-infinity, nan32()},
                                                 {-1, nan32()},
                                                 {-subnormal, -0.0f},
                                                 {-0.0f, -0.0f},
                                                 {0, 0},
                                                 {subnormal, 0},
                                                 {infinity, infinity},
                                                 {nan32(), nan32()},
                                                 {9, 3}});
  expect_special("rsqrt.approx.ftz.f32 %d, %a;", {{-infinity, nan32()},
                                                  {-1, nan32()},
                                                  {-subnormal, -infinity},
                                                  {-0.0f, -infinity},
                                                  {0, infinity},
                                                  {subnormal, infinity},
                                                  {infinity, 0},
                                                  {nan32(), nan32()},
                                                  {16, 0.25f}});
}

TEST(Approximation, Waves) {
  // As far off as PTX allows; large arguments, for which it promises nothing, as recorded.
  const auto values = range(-3.14f, 3.14f, 5000);
  const auto sines = run_lanes<float>("sin.approx.f32 %d, %a;", values);
  const auto cosines = run_lanes<float>("cos.approx.f32 %d, %a;", values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(sines[i], std::sin(double{values[i]}), 0x1p-20) << values[i];
    EXPECT_NEAR(cosines[i], std::cos(double{values[i]}), 0x1p-20) << values[i];
  }
  const std::vector<float> large = {-15.5f, std::bit_cast<float>(0xc5000003u), 0x1.fffffep127f};
  const auto sines_of_large = run_lanes<float>("sin.approx.f32 %d, %a;", large);
  EXPECT_NEAR(sines_of_large[0], -0.206469253, 1e-6);
  EXPECT_NEAR(sines_of_large[1], 0.31258896, 1e-6);
  EXPECT_EQ(sines_of_large[2], 0.0f);
  expect_special("sin.approx.ftz.f32 %d, %a;", {{-infinity, nan32()},
                                                {-subnormal, -0.0f},
                                                {-0.0f, -0.0f},
                                                {0, 0},
                                                {subnormal, 0},
                                                {infinity, nan32()},
                                                {nan32(), nan32()}});
  expect_special("cos.approx.ftz.f32 %d, %a;", {{-infinity, nan32()},
                                                {-subnormal, 1},
                                                {-0.0f, 1},
                                                {0, 1},
                                                {subnormal, 1},
                                                {infinity, nan32()},
                                                {nan32(), nan32()}});
}

TEST(Approximation, HyperbolicTangents) {
  const auto exact = [](long double x) { return std::tanh(x); };
  expect_close("tanh.approx.f32 %d, %a;", range(-10, 10, 20000), exact, 130, 1, false);
  expect_close("tanh.approx.f32 %d, %a;", range(-0.1f, 0.1f, 20000), exact, 130, 1, false);
  expect_close("tanh.approx.f32 %d, %a;", range(-1e-5f, 1e-5f, 5000), exact, 0.501, 1e-2, false);
  expect_special("tanh.approx.f32 %d, %a;", {{-infinity, -1},
                                             {-0.0f, -0.0f},
                                             {0, 0},
                                             {infinity, 1},
                                             {nan32(), nan32()},
                                             {100, 1},
                                             {-1e30f, -1},
                                             {subnormal, subnormal}});
}

TEST(Approximation, Quotients) {
  const auto a = range(-5, 5, 5000);
  auto b = range(-300, 300, 10000);
  b.erase(b.begin(), b.begin() + 5000);
  for (const char* kind : {"approx", "full", "approx.ftz", "full.ftz"}) {
    const auto results = run_lanes<float>(fmt::format("div.{}.f32 %d, %a, %b;", kind), a, b);
    for (std::size_t i = 0; i < a.size(); ++i) {
      EXPECT_LE(error_in_units(results[i], static_cast<long double>(a[i]) / b[i]), 2.0)
          << a[i] << "/" << b[i];
    }
  }
  // Divisors above 2^126: .approx gives zero, and NaN for infinite dividends.
  const std::vector<float> dividends = {1, -1, infinity, 0x1p127f}, divisors(4, 0x1.8p126f);
  const auto vanished = run_lanes<float>("div.approx.f32 %d, %a, %b;", dividends, divisors);
  EXPECT_EQ(std::fabs(vanished[0]), 0.0f);
  EXPECT_EQ(std::fabs(vanished[1]), 0.0f);
  EXPECT_EQ(std::bit_cast<U32>(vanished[2]), 0x7fffffffu);
  EXPECT_EQ(std::fabs(vanished[3]), 0.0f);
  const auto full = run_lanes<float>("div.full.f32 %d, %a, %b;", dividends, divisors);
  EXPECT_EQ(full[2], infinity);
  EXPECT_NEAR(full[3], 4.0 / 3, 1e-6);
}

TEST(Approximation, DoublesByTheirUpperHalves) {
  std::vector<double> values;
  for (const float x : range(0.01f, 100, 2000)) values.push_back(x / 3.0);
  const auto reciprocals = run_lanes<double>("rcp.approx.ftz.f64 %d, %a;", values);
  const auto roots = run_lanes<double>("rsqrt.approx.ftz.f64 %d, %a;", values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(std::bit_cast<U64>(reciprocals[i]) & 0xffffffff, 0u);
    EXPECT_NEAR(reciprocals[i] * values[i], 1.0, 0x1p-19);
    EXPECT_NEAR(roots[i] * std::sqrt(values[i]), 1.0, 0x1p-19);
  }
  const auto special =
      run_lanes<U64>("rcp.approx.ftz.f64 %d, %a;",
                     std::vector<U64>{0x8000000000000000, 0x0000000100000000, 0x7ff0000000000000,
                                      0xfff8000000000001, 0x7fefffffffffffff});
  EXPECT_EQ(special, (std::vector<U64>{0xfff0000000000000, 0x7ff0000000000000, 0, 0x7fffffff00000000, 0}));
}

}  // namespace
}  // namespace jit::emulator::testing
