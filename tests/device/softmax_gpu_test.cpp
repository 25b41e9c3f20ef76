// The arithmetic of softmax, on a device.
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>
#include <jit/device.h>
#include <jit/device_buffer.h>

#include "generator/program/templates.h"
#include "runtime/compiler.h"
#include "runtime/launch.h"
#include "runtime/module.h"
#include "tests/device/gpu_fixture.h"
#include "tests/support/seed.h"

namespace jit::testing {
namespace {

class SoftmaxTest : public GpuTest {
 protected:
  /// ex2_polynomial of each value.
  std::vector<float> polynomials_of(const std::vector<float>& values) const {
    const CompileResult compiled =
        compile(find_nvrtc(""), {.name = "/jit-attention/kernel.cu",
                                 .source = "#include \"steps/softmax.cuh\"\n"
                                           "extern \"C\" __global__ void k(float* p, int n) {\n"
                                           "  for (int i = threadIdx.x; i < n; i += 32)\n"
                                           "    p[i] = jit::ex2_polynomial(p[i]);\n"
                                           "}\n",
                                 .headers = embedded_templates(),
                                 .arch = native_arch(device_),
                                 .options = {},
                                 .kernel = "k"});
    const Module module = device_.emulated ? Module(compiled.ptx) : Module(compiled.cubin);
    const CurrentDevice current(0);
    const DeviceBuffer buffer(0, values.size() * sizeof(float));
    buffer.upload(values.data(), buffer.size());
    CUdeviceptr p = buffer.address();
    int n = static_cast<int>(values.size());
    void* params[] = {&p, &n};
    launch(module.kernel("k").handle(), {.grid = {1, 1, 1}, .block = {32, 1, 1}}, params, nullptr);
    std::vector<float> results(values.size());
    buffer.download(results.data(), buffer.size());
    return results;
  }
};

TEST_F(SoftmaxTest, PolynomialIsNearThePowerOfTwo) {
  std::mt19937_64 random(reference::test_seed());
  std::uniform_real_distribution<float> far(-126, 127), near(-9, 9);
  std::vector<float> values = {-126, 127, 0.5f, -0.5f, 126.5f, std::nextafter(0.5f, 1.0f)};
  for (int i = 0; i < sized(100'000, 2'000); ++i) values.push_back(i % 2 == 0 ? far(random) : near(random));
  const std::vector<float> results = polynomials_of(values);
  double worst = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double exact = std::exp2(static_cast<double>(values[i]));
    // Halves of a float below 2^−126 are rounded away.
    const double error = std::max(0.0, std::abs(results[i] - exact) - 0x1p-149) / exact;
    EXPECT_LE(error, 3e-6) << values[i];
    worst = std::max(worst, error);
  }
  EXPECT_GT(worst, 2e-6);  // or it is something else
  RecordProperty("worst_relative_error", std::to_string(worst * 1e6) + "e-6");
}

TEST_F(SoftmaxTest, PolynomialIsExactWhereItMatters) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> results =
      polynomials_of({-infinity, -1e30f, -127, -126.5f - 1e-4f, 0, 1, 7, -30, -std::nanf("")});
  for (int i = 0; i < 4; ++i) EXPECT_EQ(results[i], 0) << i;
  EXPECT_FALSE(std::signbit(results[0]));
  EXPECT_EQ(results[4], 1);
  EXPECT_EQ(results[5], 2);
  EXPECT_EQ(results[6], 128);
  EXPECT_EQ(results[7], 0x1p-30f);
  EXPECT_TRUE(std::isnan(results[8]));
}

}  // namespace
}  // namespace jit::testing
