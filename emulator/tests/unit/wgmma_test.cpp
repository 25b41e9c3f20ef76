// wgmma: products for every shape, type and layout.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/wgmma_run.h"

namespace jit::emulator {
namespace {

using namespace testing;

void run_and_compare(const WgmmaProblem& problem, unsigned seed, bool wild = false) {
  SCOPED_TRACE(problem.type() + (problem.a_in_registers ? ", A in registers" : ", A in shared memory") +
               (problem.a_along_k ? "" : " transposed") + ", swizzle " + std::to_string(problem.a_swizzle) +
               (problem.b_along_k ? ", B" : ", B transposed") + ", swizzle " +
               std::to_string(problem.b_swizzle));
  const WgmmaData data(problem, seed, wild);
  expect_reference(problem, data, WgmmaRun(problem, data));
}

TEST(Wgmma, EveryWidth) {
  for (int n = 8; n <= 256; n += 8) run_and_compare({.n = n}, static_cast<unsigned>(n));
}

TEST(Wgmma, EveryLayoutAlongK) {
  for (const int swizzle : {0, 32, 64, 128}) {
    for (const NumberFormat& format : {bf16_numbers, tf32_numbers, e4m3_numbers}) {
      // As many steps as one row of the pattern holds.
      const int steps = swizzle == 0 ? 3 : swizzle / 32;
      run_and_compare({.n = 24,
                       .steps = steps,
                       .a_format = format,
                       .b_format = format,
                       .a_swizzle = swizzle,
                       .b_swizzle = swizzle},
                      static_cast<unsigned>(swizzle));
    }
  }
}

TEST(Wgmma, EveryTransposedLayout) {
  for (const int swizzle : {0, 32, 64, 128}) {
    for (const bool a_along_k : {false, true}) {
      for (const int n : {64, 128, 256}) {
        run_and_compare({.n = n,
                         .steps = 2,
                         .a_along_k = a_along_k,
                         .b_along_k = false,
                         .a_swizzle = a_along_k ? 64 : swizzle,
                         .b_swizzle = swizzle},
                        static_cast<unsigned>(n));
      }
    }
  }
  // Narrower than a row of the pattern.
  run_and_compare({.n = 16, .a_along_k = false, .b_along_k = false}, 5);
}

TEST(Wgmma, EveryTypeFromRegistersAndSharedMemory) {
  struct Types {
    NumberFormat a, b;
    bool to_f16;
  };
  const std::vector<Types> types = {
      {f16_numbers, f16_numbers, false},   {f16_numbers, f16_numbers, true},
      {bf16_numbers, bf16_numbers, false}, {tf32_numbers, tf32_numbers, false},
      {e4m3_numbers, e4m3_numbers, false}, {e4m3_numbers, e5m2_numbers, false},
      {e5m2_numbers, e4m3_numbers, true},  {e5m2_numbers, e5m2_numbers, true},
  };
  unsigned seed = 1;
  for (const auto& [a, b, to_f16] : types) {
    for (const bool a_in_registers : {false, true}) {
      for (const bool wild : {false, true}) {
        run_and_compare({.n = 40,
                         .steps = 2,
                         .a_format = a,
                         .b_format = b,
                         .to_f16 = to_f16,
                         .a_in_registers = a_in_registers},
                        ++seed, wild);
      }
    }
  }
}

TEST(Wgmma, ScalesAndWithoutAccumulation) {
  for (const int scale_a : {-1, 1}) {
    for (const int scale_b : {-1, 1}) {
      for (const bool accumulate : {false, true}) {
        run_and_compare({.n = 16,
                         .steps = 2,
                         .a_in_registers = scale_b < 0,
                         .accumulate = accumulate,
                         .scale_a = scale_a,
                         .scale_b = scale_b},
                        9);
      }
    }
  }
}

TEST(Wgmma, CountsFlopsOfTheWholeWarpgroup) {
  const WgmmaProblem problem{.n = 64, .steps = 4};
  const WgmmaRun run(problem, WgmmaData(problem, 1));
  std::uint64_t flops = 0, bytes = 0;
  for (const InstructionCounts& count : run.result.counts) {
    flops += count.tensor_flops;
    bytes += count.shared_read_bytes;
  }
  EXPECT_EQ(flops, 2u * 64 * 64 * 64);
  EXPECT_EQ(bytes, 4u * (64 + 64) * 32);
}

TEST(Wgmma, WaitLeavesYoungerGroupsInFlight) {
  // Two accumulators in groups of their own; the older one is read while the younger is in flight.
  const WgmmaProblem problem{.n = 8};
  std::string ptx = wgmma_kernel(problem);
  const auto replace = [&](const std::string& from, const std::string& to) {
    const std::size_t at = ptx.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    ptx.replace(at, from.size(), to);
  };
  replace(
      "wgmma.wait_group.sync.aligned 0;\n",
      ".reg .b32 %e<4>;\n"
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%e0, %e1, %e2, %e3}, %rd52, %rd53, 0, 1, 1, 0, "
      "0;\n"
      "wgmma.commit_group.sync.aligned;\n"
      "wgmma.wait_group.sync.aligned 1;\n");
  replace("st.global.b32 [%rd3+1536], %d3;\n",
          "st.global.b32 [%rd3+1536], %d3;\n"
          "wgmma.wait_group.sync.aligned 0;\n"
          "st.global.b32 [%rd3], %e0;\n");
  const WgmmaData data(problem, 3);
  const WgmmaRun run(problem, data, ptx);
  ASSERT_EQ(run.findings(), "");
  WgmmaProblem fresh = problem;
  fresh.accumulate = false;
  for (int thread = 0; thread < 128; ++thread) {
    for (int i = 0; i < 4; ++i) {
      const auto [row, column] = place_in_sums(thread, i);
      ASSERT_EQ(run.words[static_cast<std::size_t>(i * 128 + thread)],
                wgmma_reference(i == 0 ? fresh : problem, data, row, column));
    }
  }
}

TEST(Wgmma, TakesEffectAtTheWait) {
  // Without the race detector: what B holds at the wait counts, not what it held at the issue.
  const WgmmaProblem problem{.n = 8};
  std::string ptx = wgmma_kernel(problem);
  const std::string commit = "wgmma.commit_group.sync.aligned;\n";
  ptx.insert(ptx.find(commit) + commit.size(),
             "bar.sync 0;\nmov.u32 %r7, 0;\nadd.u32 %r8, %r1, %r2;\nst.shared.b32 [%r8+" +
                 std::to_string(problem.b_begin()) + "], %r7;\nst.shared.b32 [%r8+" +
                 std::to_string(problem.b_begin() + 512) + "], %r7;\nbar.sync 0;\n");
  const WgmmaData data(problem, 3);
  const WgmmaRun run(problem, data, ptx, {.check_races = false});
  ASSERT_EQ(run.findings(), "");
  for (int thread = 0; thread < 128; ++thread) {
    for (int i = 0; i < 4; ++i) {
      const auto [row, column] = place_in_sums(thread, i);
      const std::uint32_t before = data.c[static_cast<std::size_t>(row * problem.n + column)];
      ASSERT_EQ(f32_numbers.value(run.words[static_cast<std::size_t>(i * 128 + thread)]),
                f32_numbers.value(before));
    }
  }
}

TEST(Wgmma, RefusesWhatItDoesNotKnow) {
  const auto message = [](const std::string& instruction, const std::string& target = "sm_90a") {
    TestDevice device({9, 0, 'a'});
    try {
      device.run(kernel_of(instruction, "", target), {.block = {128, 1, 1}}, {}, std::uint64_t{0},
                 std::uint64_t{0});
    } catch (const PtxError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  const auto product = [&](const std::string& type, const std::string& rest, int sums = 4) {
    return message("wgmma.mma_async.sync.aligned." + type + " " + registers("%r", 0, sums) +
                   ", %rd0, %rd1, %p0, " + rest + ";");
  };
  EXPECT_NE(product("m64n12k16.f32.f16.f16", "1, 1, 0, 0").find("multiple of 8"), std::string::npos);
  EXPECT_NE(product("m64n264k16.f32.f16.f16", "1, 1, 0, 0").find("multiple of 8"), std::string::npos);
  EXPECT_NE(product("m64n8k8.f32.f16.f16", "1, 1, 0, 0").find("k 16"), std::string::npos);
  EXPECT_NE(product("m64n8k16.f16.bf16.bf16", "1, 1, 0, 0", 2).find("f16 ones"), std::string::npos);
  EXPECT_NE(product("m64n8k32.s32.s8.s8", "1, 1").find("the emulator knows"), std::string::npos);
  EXPECT_NE(product("m64n8k16.f32.f16.f16", "2, 1, 0, 0").find("1 or -1"), std::string::npos);
  EXPECT_NE(product("m64n8k16.f32.f16.f16", "1, 1, 0, 2").find("0 or 1"), std::string::npos);
  EXPECT_NE(product("m64n8k32.f32.e4m3.e4m3", "1, 1, 0, 1").find("operands"), std::string::npos);
  EXPECT_NE(product("m64n8k16.f32.f16.f16", "1, 1, 0, 0", 8).find("vector of 4"), std::string::npos);
  EXPECT_NE(message("wgmma.wait_group.sync.aligned -1;").find("-1"), std::string::npos);
  EXPECT_NE(message("wgmma.fence.sync.aligned;", "sm_90").find("sm_90a"), std::string::npos);
}

}  // namespace
}  // namespace jit::emulator
