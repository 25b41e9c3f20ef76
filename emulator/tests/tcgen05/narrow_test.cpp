// tcgen05.mma of elements of 4 and 6 bits, which lie in bytes, and tcgen05.cp that spreads them.
#include <gtest/gtest.h>

#include "tests/tcgen05/tcgen05_run.h"

namespace jit::emulator::testing {
namespace {

constexpr NumberFormat formats[] = {e2m3_numbers, e3m2_numbers, e2m1_numbers, e4m3_numbers, e5m2_numbers};

void check(const Tcgen05Problem& problem) {
  // All codes of the narrow formats are numbers.
  const bool wild = problem.a_format.has_numbers && problem.b_format.has_numbers;
  const Tcgen05Data data(problem, 11, wild);
  expect_reference(problem, data, {problem, data});
}

TEST(Tcgen05Narrow, MultiplyFromSharedMemory) {
  for (const NumberFormat& a : formats) {
    for (const NumberFormat& b : formats) {
      if (a.bits < 8 || b.bits < 8) check({.n = 32, .steps = 2, .a_format = a, .b_format = b});
    }
  }
}

TEST(Tcgen05Narrow, TakeEverySwizzle) {
  for (const int swizzle : {0, 32, 64, 128}) {
    check({.n = 16,
           .steps = swizzle == 32 ? 1 : 2,
           .a_format = e3m2_numbers,
           .b_format = e2m1_numbers,
           .a_swizzle = swizzle,
           .b_swizzle = swizzle});
  }
}

TEST(Tcgen05Narrow, MultiplyFromTensorMemory) {
  for (const NumberFormat& a : formats) {
    check({.n = 32, .steps = 2, .a_format = a, .b_format = e2m3_numbers, .a_in_tensor_memory = true});
  }
}

TEST(Tcgen05Narrow, SumInHalvesAndNegate) {
  check({.n = 16, .a_format = e2m1_numbers, .b_format = e2m3_numbers, .to_f16 = true, .negate_a = true});
}

TEST(Tcgen05Narrow, LieAlongK) {
  for (const bool of_a : {true, false}) {
    const Tcgen05Problem problem{.n = 64,
                                 .a_format = of_a ? e2m1_numbers : e4m3_numbers,
                                 .b_format = of_a ? e4m3_numbers : e3m2_numbers,
                                 .a_along_k = !of_a,
                                 .b_along_k = of_a};
    const Tcgen05Data data(problem, 11);
    EXPECT_NE(findings_of(Tcgen05Run(problem, data).result).find("of 4 and 6 bits lie along k"),
              std::string::npos);
  }
}

// One row of a word of each lane: 16 bytes of shared memory as 4 columns.
std::vector<std::uint32_t> spread(const std::string& format, const std::vector<std::uint32_t>& words) {
  const std::string body =
      "mov.u32 %r1, tile;\nmul.wide.u32 %rd1, %r60, 16;\nadd.s64 %rd2, %rd60, %rd1;\nshl.b32 %r2, %r60, 4;\n"
      "add.u32 %r3, %r1, %r2;\nld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%rd2];\n"
      "st.shared.v4.b32 [%r3], {%r4, %r5, %r6, %r7};\nmov.u32 %r14, done;\nsetp.lt.u32 %p4, %r60, 32;\n"
      "setp.eq.u32 %p5, %r60, 0;\n@%p5 mbarrier.init.shared::cta.b64 [%r14], 1;\n"
      "@%p4 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [place], 32;\n"
      "fence.proxy.async;\nbar.sync 0;\nld.shared.b32 %r16, [place];\n"
      "and.b32 %r10, %r60, 96;\nshl.b32 %r10, %r10, 16;\nadd.u32 %r11, %r16, %r10;\n"
      "shr.u32 %r6, %r1, 4;\ncvt.u64.u32 %rd4, %r6;\nor.b64 %rd50, %rd4, " +
      std::to_string(std::uint64_t{1} << 46 | std::uint64_t{8} << 32 | std::uint64_t{128} << 16) +
      ";\n@%p5 tcgen05.cp.cta_group::1.128x128b.b8x16." + format + " [%r16], %rd50;\n" + commit_line +
      wait_for("%r14", "0", "wait") + after +
      "tcgen05.ld.sync.aligned.32x32b.x4.b32 {%r4, %r5, %r6, %r7}, [%r11];\ntcgen05.wait::ld.sync.aligned;\n"
      "add.s64 %rd3, %rd61, %rd1;\nst.global.v4.b32 [%rd3], {%r4, %r5, %r6, %r7};\n" +
      before + "bar.sync 0;\n@%p4 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r16, 32;\n";
  const std::string ptx = kernel_of(
      body,
      ".shared .align 1024 .b8 tile[2048];\n.shared .align 8 .b64 done;\n.shared .align 4 .b32 place;\n",
      "sm_100a");
  TestDevice device({10, 0, 'a'});
  const std::uint64_t in = device.upload(words), out = device.upload(std::vector<std::uint32_t>(512, 0));
  const LaunchResult result = device.run(ptx, {.block = {128, 1, 1}}, {}, in, out);
  EXPECT_EQ(findings_of(result), "");
  return device.download<std::uint32_t>(out, 512);
}

TEST(Tcgen05Narrow, CopiesSpreadElements) {
  std::mt19937 random(5);
  std::vector<std::uint32_t> words(512);
  for (std::uint32_t& word : words) word = random();
  for (const unsigned width : {4u, 6u}) {
    const auto got = spread(width == 4 ? "b4x16_p64" : "b6x16_p32", words);
    for (unsigned lane = 0; lane < 128; ++lane) {
      for (unsigned i = 0; i < 16; ++i) {
        std::uint32_t code = 0;
        for (unsigned bit = 0; bit < width; ++bit) {
          const unsigned at = i * width + bit;
          code |= (words[4 * lane + at / 32] >> at % 32 & 1) << bit;
        }
        ASSERT_EQ(got[4 * lane + i / 4] >> 8 * (i % 4) & 255, width == 4 ? code << 2 : code)
            << width << " bits, lane " << lane << " element " << i;
      }
    }
  }
}

}  // namespace
}  // namespace jit::emulator::testing
