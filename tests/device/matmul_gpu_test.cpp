// The steps of the matrix product on a device against double precision.
#include <jit/matmul.h>

#include <array>
#include <functional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <jit/device.h>
#include <jit/time_work.h>

#include "tests/device/gpu_fixture.h"
#include "tests/support/error_of.h"
#include "tests/support/matmul_run.h"
#include "tests/support/seed.h"
#include "tests/support/shared_cache.h"

namespace jit::testing {
namespace {

using ::testing::HasSubstr;

class MatmulTest : public GpuTest {};

Matmul kernel_of(const std::string& step) { return matmul_kernel(step, Context(shared_cache_settings())); }

TEST_F(MatmulTest, EveryStepMultipliesMatricesOfAnySize) {
  // Whole tiles, tails of all three sizes, less than a tile, and nothing to add.
  const std::vector<std::array<int, 3>> sizes = {{128, 128, 192}, {150, 257, 333}, {33, 131, 71},
                                                 {1, 1, 1},       {5, 7, 0},       {129, 1, 640}};
  for (const MatmulStep& step : matmul_ladder()) {
    const Matmul kernel = kernel_of(step.name);
    for (const auto& [m, n, k] : sizes) {
      const MatmulCase problem{.step = step.name, .m = m, .n = n, .k = k};
      MatmulRun run(problem, reference::test_seed());
      kernel(run.arguments());
      EXPECT_EQ(run.check(), "") << problem;
    }
  }
}

TEST_F(MatmulTest, EqualInputsGiveEqualBitsAndNothingBesideCIsWritten) {
  for (const MatmulStep& step : matmul_ladder()) {
    const Matmul kernel = kernel_of(step.name);
    MatmulRun run({.step = step.name}, reference::test_seed());
    const auto bytes_of_a_run = [&] {
      run.poison();
      kernel(run.arguments());
      EXPECT_EQ(run.check(), "") << step.name;
      return run.bytes();
    };
    const std::vector<std::uint8_t> first = bytes_of_a_run();
    EXPECT_EQ(bytes_of_a_run(), first) << step.name;
    const int columns = MatmulCase{}.n, row_bytes = static_cast<int>(first.size()) / MatmulCase{}.m;
    EXPECT_EQ(first[static_cast<std::size_t>(2 * columns)], 0xff) << step.name;
    EXPECT_GT(row_bytes, 2 * columns);
  }
}

TEST_F(MatmulTest, KIsSplitInAnyNumberOfShares) {
  const Matmul kernel = kernel_of("split_k");
  for (const int splits : {1, 2, 5, 16}) {  // six tiles along k: some shares have none
    MatmulRun run({.step = "split_k", .m = 70, .n = 60, .k = 381, .splits = splits}, reference::test_seed());
    kernel(run.arguments());
    EXPECT_EQ(run.check(), "") << splits;
  }
}

TEST_F(MatmulTest, SharesFillTheDeviceWhereCAloneDoesNot) {
  EXPECT_EQ(matmul_splits(4096, 4096, 4096, 132), 1);
  EXPECT_EQ(matmul_splits(128, 128, 65536, 132), 256);
  EXPECT_EQ(matmul_splits(64, 3072, 3072, 108), 9);  // of 24 tiles
  EXPECT_EQ(matmul_splits(128, 128, 64, 132), 1) << "a share has four tiles along k, or all";
  EXPECT_EQ(matmul_splits(0, 0, 0, 132), 1);
}

TEST_F(MatmulTest, WrongArgumentsAreNamed) {
  EXPECT_THAT(error_of([] { kernel_of("fast"); }).what(),
              HasSubstr("'fast' is no step of the matrix product; steps are smem_tiles, tensor_cores"));
  const Matmul kernel = kernel_of("ldmatrix"), split = kernel_of("split_k");
  MatmulRun run({.step = "ldmatrix"}, 1), other({.step = "split_k", .k = 40}, 1);
  MatmulArguments arguments = run.arguments();
  arguments.b = other.arguments().b;
  EXPECT_EQ(error_of([&] { kernel(arguments); }).field(), "b");
  arguments = run.arguments();
  arguments.a.strides[0] = 333;
  EXPECT_EQ(error_of([&] { kernel(arguments); }).field(), "a");
  arguments = run.arguments();
  arguments.c = arguments.a;
  arguments.c.shape[1] = MatmulCase{}.n;
  EXPECT_THAT(error_of([&] { kernel(arguments); }).what(), HasSubstr("c"));
  arguments = other.arguments();
  EXPECT_THAT(error_of([&] { kernel(arguments); }).what(), HasSubstr("is of the step split_k only"));
  arguments.partial_sums = {};
  EXPECT_EQ(error_of([&] { split(arguments); }).field(), "partial_sums");
}

TEST_F(MatmulTest, IsTimedOnAGpu) {
  const Matmul kernel = kernel_of("ldmatrix");
  MatmulRun run({.step = "ldmatrix"}, reference::test_seed());
  const std::vector<std::function<void(Stream)>> work(
      2, [&](Stream stream) { kernel(run.arguments(), stream); });
  if (device_info(0).emulated) {
    EXPECT_EQ(error_of([&] { time_work(work, 3, 0); }).code(), ErrorCode::unsupported_device);
    return;
  }
  const std::vector<Timing> timings = time_work(work, 3, 0);
  ASSERT_EQ(timings.size(), 2u);
  for (const Timing& timing : timings) {
    EXPECT_EQ(timing.samples_us.size(), 3u);
    EXPECT_GT(timing.median_us, 0);
  }
  EXPECT_EQ(run.check(), "");
}

}  // namespace
}  // namespace jit::testing
