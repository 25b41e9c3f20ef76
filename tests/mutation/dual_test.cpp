// Functions that texts may call on numbers with a derivative, compiled and run on the emulator: values are those of floats, bit by
// bit, and derivatives are difference quotients of the same function in double precision.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "emulator/tests/support/ptx_run.h"
#include "tests/mutation/interval_program.h"

namespace jit::testing::duals {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

struct Function {
  std::vector<const char*> texts;  ///< its names
  double (*meaning)(double);
};

const std::vector<Function> functions = {
    {{"fabsf(x)", "fabs(x)", "abs(x)"}, [](double x) { return std::fabs(x); }},
    {{"fmaxf(x, 0.5f)", "fmax(x, 0.5f)", "max(x, 0.5f)"}, [](double x) { return std::fmax(x, 0.5); }},
    {{"fminf(x, x * x)", "fmin(x, x * x)", "min(x, x * x)"}, [](double x) { return std::fmin(x, x * x); }},
    {{"fmaf(x, x, 1.0f)", "fma(x, x, 1.0f)"}, [](double x) { return x * x + 1; }},
    {{"expf(x)", "exp(x)", "__expf(x)"}, [](double x) { return std::exp(x); }},
    {{"exp2f(x)", "exp2(x)", "ex2(x)"}, [](double x) { return std::exp2(x); }},
    {{"exp10f(x)", "exp10(x)", "__exp10f(x)"}, [](double x) { return std::pow(10, x); }},
    {{"expm1f(x)", "expm1(x)"}, [](double x) { return std::expm1(x); }},
    {{"logf(x)", "log(x)", "__logf(x)"}, [](double x) { return std::log(x); }},
    {{"log2f(x)", "log2(x)", "__log2f(x)", "lg2(x)"}, [](double x) { return std::log2(x); }},
    {{"log10f(x)", "log10(x)", "__log10f(x)"}, [](double x) { return std::log10(x); }},
    {{"log1pf(x)", "log1p(x)"}, [](double x) { return std::log1p(x); }},
    {{"sqrtf(x)", "sqrt(x)", "__fsqrt_rn(x)"}, [](double x) { return std::sqrt(x); }},
    {{"rsqrtf(x)", "rsqrt(x)"}, [](double x) { return 1 / std::sqrt(x); }},
    {{"cbrtf(x)", "cbrt(x)"}, [](double x) { return std::cbrt(x); }},
    {{"hypotf(x, 0.75f)", "hypot(x, 0.75f)", "hypotf(0.75f, x)"},
     [](double x) { return std::hypot(x, 0.75); }},
    {{"hypotf(x, x + 1)"}, [](double x) { return std::hypot(x, x + 1); }},
    {{"sinf(x)", "sin(x)", "__sinf(x)"}, [](double x) { return std::sin(x); }},
    {{"cosf(x)", "cos(x)", "__cosf(x)"}, [](double x) { return std::cos(x); }},
    {{"tanf(x)", "tan(x)", "__tanf(x)"}, [](double x) { return std::tan(x); }},
    {{"asinf(x)", "asin(x)"}, [](double x) { return std::asin(x); }},
    {{"acosf(x)", "acos(x)"}, [](double x) { return std::acos(x); }},
    {{"atanf(x)", "atan(x)"}, [](double x) { return std::atan(x); }},
    {{"sinhf(x)", "sinh(x)"}, [](double x) { return std::sinh(x); }},
    {{"coshf(x)", "cosh(x)"}, [](double x) { return std::cosh(x); }},
    {{"tanhf(x)", "tanh(x)"}, [](double x) { return std::tanh(x); }},
    {{"asinhf(x)", "asinh(x)"}, [](double x) { return std::asinh(x); }},
    {{"acoshf(x)", "acosh(x)"}, [](double x) { return std::acosh(x); }},
    {{"atanhf(x)", "atanh(x)"}, [](double x) { return std::atanh(x); }},
    {{"erff(x)", "erf(x)"}, [](double x) { return std::erf(x); }},
    {{"erfcf(x)", "erfc(x)"}, [](double x) { return std::erfc(x); }},
    {{"normcdff(x)", "normcdf(x)"}, [](double x) { return std::erfc(-x / std::sqrt(2)) / 2; }},
    {{"powf(x, 1.5f)", "pow(x, 1.5f)", "__powf(x, 1.5f)"}, [](double x) { return std::pow(x, 1.5); }},
    {{"powf(x, 3)", "pow(x, 3.0f)"}, [](double x) { return x * x * x; }},
    {{"powf(1.5f, x)", "pow(1.5f, x)"}, [](double x) { return std::pow(1.5, x); }},
    {{"powf(x, x)", "pow(x, x)"}, [](double x) { return std::pow(x, x); }},
    {{"fmodf(x, 0.625f)", "fmod(x, 0.625f)"}, [](double x) { return std::fmod(x, 0.625); }},
    {{"fmodf(6.875f, x)", "fmod(6.875f, x)"}, [](double x) { return std::fmod(6.875, x); }},
    {{"remainderf(x, 0.625f)", "remainder(x, 0.625f)"}, [](double x) { return std::remainder(x, 0.625); }},
    {{"remainderf(6.875f, x)", "remainder(6.875f, x)"}, [](double x) { return std::remainder(6.875, x); }},
    {{"copysignf(x, -1.0f)", "copysign(x, -1.0f)"}, [](double x) { return -std::fabs(x); }},
    {{"copysignf(2.0f, x)", "copysign(2.0f, x)"}, [](double x) { return std::copysign(2, x); }},
    {{"floorf(x)", "floor(x)"}, [](double x) { return std::floor(x); }},
    {{"ceilf(x)", "ceil(x)"}, [](double x) { return std::ceil(x); }},
    {{"roundf(x)", "round(x)"}, [](double x) { return std::round(x); }},
    {{"rintf(x)", "rint(x)", "nearbyintf(x)", "nearbyint(x)"}, [](double x) { return std::rint(x); }},
    {{"truncf(x)", "trunc(x)"}, [](double x) { return std::trunc(x); }},
    {{"fdividef(x, 3.0f)", "__fdividef(x, 3.0f)"}, [](double x) { return x / 3; }},
    {{"fdividef(3.0f, x)", "__fdividef(3.0f, x)", "3 * __frcp_rn(x)", "3 * rcp(x)"},
     [](double x) { return 3 / x; }},
    {{"fdividef(x, x + 4)", "__fdividef(x, x + 4)"}, [](double x) { return x / (x + 4); }},
    {{"__saturatef(x)"}, [](double x) { return std::clamp(x, 0.0, 1.0); }},
};
const std::vector<float> places = {-2.3f, -0.71f, -0.2f, 0.35f, 0.8f, 1.6f, 3.3f};

/// Where there is no difference quotient: kinks, steps, and numbers that are not finite.
struct Special {
  const char* text;
  float place;
  float derivative;
};

const std::vector<Special> specials = {
    {"floorf(x)", 2, 0},
    {"ceilf(x)", -1, 0},
    {"roundf(x)", 0.5f, 0},
    {"rintf(x)", 0.5f, 0},
    {"truncf(x)", 1, 0},
    {"auto y = floorf(x); y += x; return y", 2, 1},
    {"fmodf(x, 2.0f)", 4, 1},
    {"__saturatef(x)", 0, 1},
    {"__saturatef(x)", 1, 1},
    {"__saturatef(x)", nan, 0},
    {"hypotf(x, 0.0f)", 0, 0},
    {"powf(x, 0.0f)", 0, 0},
    {"powf(x, 1.0f)", 0, 1},
    {"powf(x, 2.0f)", -3, -6},
    {"powf(0.0f, x)", 0, 0},
    {"powf(0.0f, x)", 2, 0},
    {"powf(x, decltype(x)(2.0f))", -3, -6},
    {"powf(decltype(x)(0.0f), x + 0.5f)", 0, 0},
    {"isnan(x) ? x : 3 * x", nan, 1},
    {"isnan(x) ? x : 3 * x", 1, 3},
    {"isinf(x) ? x : 3 * x", -infinity, 1},
    {"isinf(x) ? x : 3 * x", nan, 3},
    {"isfinite(x) ? x : 3 * x", 1, 1},
    {"isfinite(x) ? x : 3 * x", infinity, 3},
    {"signbit(x) ? x : 3 * x", -0.0f, 1},
    {"signbit(x) ? x : 3 * x", 0, 3},
    {"expm1f(x)", -infinity, 0},
    {"atanf(x)", -infinity, 0},
    {"asinhf(x)", -infinity, 0},
    {"erfcf(x)", -infinity, 0},
    {"normcdff(x)", -infinity, 0},
    {"fdividef(x, 4.0f)", -infinity, 0.25f},
    {"__fdividef(x, 4.0f)", -infinity, 0.25f},
};

struct Answer {
  float as_float, value, derivative;
};

/// The answers of each text at each place, in the order of the texts.
std::vector<Answer> ask(const std::vector<std::string>& texts, const std::vector<float>& at,
                        const ProgramMutation* mutation) {
  std::string source = R"(
#include "problem/dual.cuh"
using namespace jit;
struct Answer { float as_float, value, derivative; };
)";
  std::string calls;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const bool is_body = texts[i].find("return") != std::string::npos;
    source += fmt::format("template <class Number> __device__ Number text_{}(Number x) {{ {}{}; }}\n", i,
                          is_body ? "" : "return ", texts[i]);
    calls += fmt::format(
        "  y = text_{0}(Dual(x, 1.0f)), answers[{0} * blockDim.x + threadIdx.x] = {{text_{0}(x), y.value, "
        "y.derivative}};\n",
        i);
  }
  source += fmt::format(
      "extern \"C\" __global__ void ask(const float* places, Answer* answers) {{\n"
      "  const float x = places[threadIdx.x];\n  Dual y;\n{}}}\n",
      calls);
  const std::string ptx = interval_ptx(source, mutation);
  emulator::testing::TestDevice device;
  const std::uint64_t answers = device.room<Answer>(texts.size() * at.size());
  const emulator::LaunchResult result =
      device.run(ptx, {.grid = {1, 1, 1}, .block = {static_cast<unsigned>(at.size()), 1, 1}}, {},
                 device.upload(at), answers);
  for (const emulator::Finding& finding : result.findings) ADD_FAILURE() << to_string(finding);
  return device.download<Answer>(answers, texts.size() * at.size());
}

bool is_same(float x, float y) {
  return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y) ||
         (std::isnan(x) && std::isnan(y));
}

// Errors, a line each; empty: none.
std::string wrong_functions(const ProgramMutation* mutation = nullptr) {
  std::vector<std::string> texts;
  for (const Function& function : functions)
    texts.insert(texts.end(), function.texts.begin(), function.texts.end());
  const std::vector<Answer> answers = ask(texts, places, mutation);
  std::string wrong;
  auto answer = answers.begin();
  for (const Function& function : functions) {
    for (const std::string text : function.texts) {
      int asked = 0;
      for (const float place : places) {
        const double x = place, step = 1e-6;
        const double value = function.meaning(x);
        const double slope = (function.meaning(x + step) - function.meaning(x - step)) / (2 * step);
        const auto is_near = [](double got, double expected) {
          return std::fabs(got - expected) <= 5e-5 * std::max(1.0, std::fabs(expected));
        };
        const bool is_right =
            !std::isfinite(value) || (is_near(answer->value, value) && is_near(answer->derivative, slope));
        if (!is_right || !is_same(answer->value, answer->as_float))
          wrong += fmt::format("{} at {}: {} ({} of floats), derivative {}; expected {}, {}\n", text, place,
                               answer->value, answer->as_float, answer->derivative, value, slope);
        asked += std::isfinite(value);
        ++answer;
      }
      if (asked < 2) wrong += fmt::format("{} is asked at {} places\n", text, asked);
    }
  }
  return wrong;
}

std::string wrong_specials(const ProgramMutation* mutation = nullptr) {
  std::vector<std::string> texts;
  std::vector<float> at;
  for (const Special& special : specials) texts.push_back(special.text), at.push_back(special.place);
  const std::vector<Answer> answers = ask(texts, at, mutation);
  std::string wrong;
  for (std::size_t i = 0; i < specials.size(); ++i) {
    const Answer& answer = answers[i * specials.size() + i];
    if (!is_same(answer.value, answer.as_float) || answer.derivative != specials[i].derivative)
      wrong += fmt::format("{} at {}: {} ({} of floats), derivative {}; expected {}\n", texts[i], at[i],
                           answer.value, answer.as_float, answer.derivative, specials[i].derivative);
  }
  return wrong;
}

TEST(Dual, DerivativesAreDifferenceQuotients) { EXPECT_EQ(wrong_functions(), ""); }

TEST(Dual, DerivativesAtKinksAndOfNumbersThatAreNotFinite) { EXPECT_EQ(wrong_specials(), ""); }

TEST(Dual, WrongDerivativesAreNoticed) {
  const ProgramMutation slope{"SlopeOfRsqrt", {"+ 1", "+ 2"}}, powers{"PowersOfZero", {"y, $ ::", "y, ::"}};
  EXPECT_NE(wrong_functions(&slope), "");
  EXPECT_NE(wrong_specials(&powers), "");
}

}  // namespace
}  // namespace jit::testing::duals
