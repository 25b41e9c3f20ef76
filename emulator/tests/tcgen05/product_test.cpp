// tcgen05.mma: every kind, shape and layout beside sums that are computed one by one.
#include <bit>
#include <cmath>

#include <gtest/gtest.h>

#include "tests/tcgen05/tcgen05_run.h"

namespace jit::emulator::testing {
namespace {

void check(const Tcgen05Problem& problem, bool wild = false) {
  const Tcgen05Data data(problem, 7, wild);
  // Where M is 64 half of the lanes are never written: the others are.
  expect_reference(problem, data, {problem, data});
}

TEST(Tcgen05, MultipliesFromSharedMemory) {
  check({});
  check({.n = 64, .steps = 4});
  check({.n = 256, .steps = 2, .accumulate = false});
  check({.n = 32, .steps = 2, .a_format = f16_numbers, .b_format = f16_numbers});
  check({.n = 16, .a_format = bf16_numbers, .b_format = f16_numbers});
  check({.n = 16, .steps = 2}, true);
}

TEST(Tcgen05, MultipliesRowsOfSixtyFour) {
  for (const int lane : {0, 16}) {
    check({.m = 64, .n = 24, .steps = 2, .d_lane = lane});
    check({.m = 64, .n = 8, .steps = 2, .a_in_tensor_memory = true, .d_lane = lane});
  }
}

TEST(Tcgen05, TakesEveryLayout) {
  for (const int swizzle : {0, 32, 64, 128}) {
    for (const bool along_k : {true, false}) {
      const int steps = swizzle == 32 ? 1 : 2;
      check({.n = 64, .steps = steps, .a_along_k = along_k, .a_swizzle = swizzle});
      check({.n = 64, .steps = steps, .b_along_k = along_k, .b_swizzle = swizzle});
      check({.n = 128,
             .steps = steps,
             .a_format = e4m3_numbers,
             .b_format = e5m2_numbers,
             .a_along_k = along_k,
             .b_along_k = along_k,
             .a_swizzle = swizzle,
             .b_swizzle = swizzle});
    }
  }
}

TEST(Tcgen05, ReadsAFromTensorMemory) {
  check({.n = 32, .steps = 4, .a_in_tensor_memory = true});
  check({.n = 32,
         .steps = 2,
         .a_format = f16_numbers,
         .b_format = f16_numbers,
         .a_in_tensor_memory = true,
         .accumulate = false});
  check(
      {.n = 32, .steps = 2, .a_format = e4m3_numbers, .b_format = e4m3_numbers, .a_in_tensor_memory = true});
}

TEST(Tcgen05, MultipliesBytesAndWords) {
  check({.n = 64, .steps = 2, .a_format = e4m3_numbers, .b_format = e4m3_numbers});
  check({.n = 64, .steps = 2, .a_format = e5m2_numbers, .b_format = e4m3_numbers}, true);
  check({.n = 32, .steps = 2, .a_format = tf32_numbers, .b_format = tf32_numbers});
}

TEST(Tcgen05, SumsInHalves) {
  check({.n = 32, .steps = 2, .a_format = f16_numbers, .b_format = f16_numbers, .to_f16 = true});
  check({.n = 32, .steps = 2, .a_format = e4m3_numbers, .b_format = e5m2_numbers, .to_f16 = true});
}

TEST(Tcgen05, NegatesAndScales) {
  check({.negate_a = true});
  check({.negate_b = true});
  check({.negate_a = true, .negate_b = true});
  check({.n = 32, .steps = 2, .scale = 3});
}

TEST(Tcgen05, IsTheSameForAllSeedsAndLevels) {
  const Tcgen05Problem problem{.n = 32, .steps = 4, .a_in_tensor_memory = true};
  const Tcgen05Data data(problem, 3);
  for (const Level order : {Level::strict, Level::silicon}) {
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      LaunchOptions options;
      options.seed = seed;
      options.level = order;
      expect_reference(problem, data, {problem, data, tcgen05_kernel(problem), options});
    }
  }
}

TEST(Tcgen05, RunsOnItsFamily) {
  const Tcgen05Problem problem;
  const Tcgen05Data data(problem, 3);
  expect_reference(problem, data, {problem, data, tcgen05_kernel(problem, "sm_103a"), {}, {10, 3, 'a'}});
  expect_reference(problem, data, {problem, data, tcgen05_kernel(problem, "sm_100f"), {}, {10, 3, 'a'}});
  for (const char* const target : {"sm_90a", "sm_100", "sm_120a"}) {
    EXPECT_THROW((Tcgen05Run{problem, data, tcgen05_kernel(problem, target), {}, {12, 0, 'a'}}), PtxError)
        << target;
  }
}

}  // namespace
}  // namespace jit::emulator::testing
