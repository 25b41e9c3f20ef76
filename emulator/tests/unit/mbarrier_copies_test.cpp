// mbarriers that tell the end of cp.async copies.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/ptx_run.h"
#include "tests/unit/async_ptx.h"

namespace jit::emulator::testing {
namespace {

struct Outcome {
  LaunchResult result;
  std::vector<std::uint32_t> out;
};

/// Runs a body with `in` of 1024 words that are all 5, and `out` of 64 that are all 77 before.
Outcome run(const std::string& body, unsigned block, std::uint64_t seed = 0) {
  TestDevice device;
  const std::uint64_t in = device.upload(std::vector<std::uint32_t>(1024, 5));
  const std::uint64_t out = device.upload(std::vector<std::uint32_t>(64, 77));
  LaunchResult result = device.run(
      kernel_of(
          body,
          ".shared .align 8 .b64 bar;\n.shared .align 8 .b64 other;\n.shared .align 16 .b8 buf[4096];\n"),
      {.block = {block, 1, 1}}, {.seed = seed, .threads = 1}, in, out);
  return {std::move(result), device.download<std::uint32_t>(out, 64)};
}

// Copies of 128 threads, 16 bytes each, whose end an mbarrier tells.
std::string copies(const std::string& arrival, bool waits) {
  return R"(
  shl.b32 %r1, %r60, 4;
  mov.u32 %r2, buf;
  add.u32 %r3, %r1, %r2;
  cvt.u64.u32 %rd1, %r1;
  add.u64 %rd1, %rd1, %rd60;
  cp.async.cg.shared.global [%r3], [%rd1], 16;
)" + arrival +
         (waits ? wait_for("bar", "0", "WAIT") : std::string()) + R"(
  xor.b32 %r4, %r1, 2032;
  add.u32 %r4, %r4, %r2;
  ld.shared.u32 %r5, [%r4];
  setp.lt.u32 %p1, %r60, 64;
  mul.wide.u32 %rd2, %r60, 4;
  add.u64 %rd2, %rd2, %rd61;
  @%p1 st.global.u32 [%rd2], %r5;
)";
}

TEST(MbarrierCopies, TracksCpAsync) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const Outcome noinc = run(
        init_by_first("bar", 128) + copies("  cp.async.mbarrier.arrive.noinc.shared::cta.b64 [bar];\n", true),
        128, seed);
    EXPECT_EQ(findings_of(noinc.result), "");
    EXPECT_EQ(noinc.out, std::vector<std::uint32_t>(64, 5));
    // Without .noinc the announced arrival comes on top of the thread's own.
    const Outcome counted =
        run(init_by_first("bar", 128) + copies("  cp.async.mbarrier.arrive.shared::cta.b64 [bar];\n"
                                               "  mbarrier.arrive.shared::cta.b64 _, [bar];\n",
                                               true),
            128, seed);
    EXPECT_EQ(findings_of(counted.result), "");
    EXPECT_EQ(counted.out, std::vector<std::uint32_t>(64, 5));
  }
}

TEST(MbarrierCopies, AnArrivalTellsOfItsCopiesWhereALaterOneIsWaitedForToo) {
  const std::string later = R"(
  add.u32 %r6, %r3, 2048;
  cp.async.cg.shared.global [%r6], [%rd1], 16;
  cp.async.mbarrier.arrive.noinc.shared::cta.b64 [other];
)";
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const Outcome outcome =
        run(init_by_first("bar", 128) + init_by_first("other", 128) +
                copies("  cp.async.mbarrier.arrive.noinc.shared::cta.b64 [bar];\n" + later, true) +
                wait_for("other", "0", "WAIT_FOR_ALL"),
            128, seed);
    EXPECT_EQ(findings_of(outcome.result), "") << "seed " << seed;
    EXPECT_EQ(outcome.out, std::vector<std::uint32_t>(64, 5));
  }
}

TEST(MbarrierCopies, CpAsyncWithoutTheWaitIsFound) {
  const Outcome outcome = run(
      init_by_first("bar", 128) + copies("  cp.async.mbarrier.arrive.noinc.shared::cta.b64 [bar];\n", false),
      128);
  EXPECT_TRUE(has_finding(outcome.result, FindingKind::access_in_flight)) << findings_of(outcome.result);
  EXPECT_TRUE(has_finding(outcome.result, FindingKind::unfinished_copy)) << findings_of(outcome.result);
}

TEST(MbarrierCopies, TooManyArrivalsOfCpAsyncAreFound) {
  const Outcome outcome = run(
      init_by_first("bar", 100) + copies("  cp.async.mbarrier.arrive.noinc.shared::cta.b64 [bar];\n", true),
      128);
  EXPECT_TRUE(has_finding(outcome.result, FindingKind::barrier_misuse)) << findings_of(outcome.result);
}

}  // namespace
}  // namespace jit::emulator::testing
