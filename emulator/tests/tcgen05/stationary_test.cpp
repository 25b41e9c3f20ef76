// tcgen05.mma.ws: where D lies, and which columns of B are zeros.
#include <gtest/gtest.h>

#include "operations/tcgen05/descriptors.h"
#include "tests/tcgen05/tcgen05_run.h"

namespace jit::emulator::testing {
namespace {

// The columns of B that a mask takes away are taken out of the data as well.
void check(const Tcgen05Problem& problem) {
  const Tcgen05Data data(problem, 17);
  Tcgen05Data expected = data;
  ProductShape shape;
  shape.m = problem.m;
  shape.n = problem.n;
  for (int column = 0; column < problem.n; ++column) {
    if (!is_zero_column(problem.zeros, shape, column)) continue;
    for (int i = 0; i < problem.k(); ++i) expected.b[static_cast<std::size_t>(column * problem.k() + i)] = 0;
  }
  expect_reference(problem, expected, {problem, data});
}

// From the lowest column on.
std::string mask_of(std::uint64_t bits, int m, int n) {
  ProductShape shape;
  shape.m = m;
  shape.n = n;
  std::string mask;
  for (int column = 0; column < n; ++column) mask += is_zero_column(bits, shape, column) ? '1' : '0';
  return mask;
}

// Start counts and first spans from the lowest part on.
std::uint64_t descriptor(const std::vector<unsigned>& starts, const std::vector<unsigned>& firsts,
                         unsigned skip, unsigned use) {
  std::uint64_t bits = std::uint64_t{1} << 39 | std::uint64_t{skip} << 40 | std::uint64_t{use} << 48;
  for (std::size_t i = 0; i < starts.size(); ++i)
    bits |= std::uint64_t{starts[i]} << 8 * i | std::uint64_t{firsts[i]} << (32 + i);
  return bits;
}

TEST(Tcgen05Stationary, PutsColumnsInPartsOfTheLanes) {
  for (const int m : {32, 64, 128}) {
    for (const int n : {64, 128}) check({.m = m, .n = n, .steps = 2, .is_stationary = true});
    check({.m = m, .n = 256, .accumulate = false, .is_stationary = true});
  }
  check({.m = 128, .n = 64, .steps = 2, .a_in_tensor_memory = true, .is_stationary = true});
  check({.m = 32, .n = 64, .a_format = e4m3_numbers, .b_format = e2m1_numbers, .is_stationary = true});
  check({.m = 64,
         .n = 64,
         .a_format = f16_numbers,
         .b_format = f16_numbers,
         .to_f16 = true,
         .is_stationary = true});
}

// PTX ISA, "Zero-Column Mask Descriptor", its examples.
TEST(Tcgen05Stationary, MasksAreThoseOfTheExamples) {
  EXPECT_EQ(mask_of(descriptor({0}, {0}, 2, 3) & ~(std::uint64_t{1} << 39), 128, 64), std::string(64, '0'));
  EXPECT_EQ(mask_of(descriptor({0}, {0}, 2, 3), 128, 64).substr(0, 14), "00001110000111");
  const std::string halves = mask_of(descriptor({0, 0}, {1, 0}, 2, 3), 64, 64);
  EXPECT_EQ(halves.substr(0, 14), "11100001110000");
  EXPECT_EQ(halves.substr(32, 14), "00001110000111");
  const std::string quarters = mask_of(descriptor({0, 1, 2, 1}, {1, 1, 0, 0}, 2, 3), 32, 128);
  EXPECT_EQ(quarters.substr(0, 10), "1110000111");
  EXPECT_EQ(quarters.substr(32, 10), "1100001110");
  EXPECT_EQ(quarters.substr(64, 10), "0011100001");
  EXPECT_EQ(quarters.substr(96, 10), "0001110000");
}

TEST(Tcgen05Stationary, TakesColumnsAsZeros) {
  check({.m = 128, .n = 64, .is_stationary = true, .zeros = descriptor({1}, {0}, 2, 3)});
  check({.m = 32,
         .n = 64,
         .steps = 2,
         .is_stationary = true,
         .zeros = descriptor({0, 1, 2, 1}, {1, 1, 0, 0}, 2, 3)});
  check({.m = 64,
         .n = 128,
         .a_format = e4m3_numbers,
         .b_format = e4m3_numbers,
         .is_stationary = true,
         .zeros = descriptor({0, 3}, {1, 0}, 0, 6)});
}

TEST(Tcgen05Stationary, WhatIsRefused) {
  const auto findings = [](const Tcgen05Problem& problem) {
    return findings_of(Tcgen05Run(problem, Tcgen05Data(problem, 3)).result);
  };
  const auto says = [&](const Tcgen05Problem& problem, const std::string& text) {
    EXPECT_NE(findings(problem).find(text), std::string::npos) << findings(problem);
  };
  says({.m = 128, .n = 32, .is_stationary = true}, "N 32 is none of .ws");
  says({.m = 32, .n = 64}, "M 32 is none of a product by 1 block");
  says({.m = 64, .n = 64, .a_in_tensor_memory = true, .is_stationary = true}, "with .ws and M 128, not 64");
  says({.m = 128, .n = 64, .is_stationary = true, .zeros = std::uint64_t{1} << 36}, "must be 0");
  says({.m = 128, .n = 64, .is_stationary = true, .zeros = std::uint64_t{1} << 56}, "column shifts");
  const Tcgen05Problem problem{.n = 64, .is_stationary = true};
  const std::string ptx = tcgen05_kernel(problem);
  const auto throws = [&](const std::string& from, const std::string& to) {
    std::string changed = ptx;
    changed.replace(changed.find(from), from.size(), to);
    EXPECT_THROW(Module(changed, {10, 0, 'a'}), PtxError) << to;
  };
  throws("mma.ws.cta_group::1", "mma.ws.cta_group::2");
  throws("kind::f16", "kind::mxf8f6f4.block_scale");
  throws("kind::f16", "kind::f16.collector::a::fill");
  std::string kept = ptx;
  kept.replace(kept.find("kind::f16"), 9, "kind::f16.collector::b2::lastuse");
  const Tcgen05Data data(problem, 3);
  expect_reference(problem, data, {problem, data, kept});
}

}  // namespace
}  // namespace jit::emulator::testing
