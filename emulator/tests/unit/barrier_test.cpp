// bar, barrier, bar.warp.sync: what they order, and what is reported of their misuse.
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/ptx_run.h"

namespace jit::emulator::testing {
namespace {

using Words = std::vector<std::uint32_t>;

struct Outcome {
  Words values;
  LaunchResult result;
  std::string text() const {
    std::string all;
    for (const Finding& finding : result.findings) all += to_string(finding) + "\n";
    return all;
  }
  bool has(FindingKind kind) const {
    for (const Finding& finding : result.findings) {
      if (finding.kind == kind) return true;
    }
    return false;
  }
};

Outcome run(const std::string& body, unsigned threads, std::uint64_t seed = 0) {
  TestDevice device;
  const std::uint64_t out = device.upload(Words(threads, 0));
  Outcome outcome;
  outcome.result = device.run(kernel_of(body + R"(
    mad.wide.u32 %rd0, %r60, 4, %rd61;
    st.global.u32 [%rd0], %r0;
  )",
                                        ".shared .align 16 .b8 buffer[1024];\n"),
                              {.block = {threads, 1, 1}}, {.seed = seed}, std::uint64_t{0}, out);
  outcome.values = device.download<std::uint32_t>(out, threads);
  return outcome;
}

// Each thread writes its place and reads that of the thread 37 further on.
std::string exchange(const std::string& barrier) {
  return R"(
    mov.u32 %r1, buffer;
    mad.lo.u32 %r2, %r60, 4, %r1;
    st.shared.u32 [%r2], %r60;
    )" + barrier +
         R"(
    add.u32 %r3, %r60, 37;
    and.b32 %r3, %r3, 127;
    mad.lo.u32 %r2, %r3, 4, %r1;
    ld.shared.u32 %r0, [%r2];
  )";
}

TEST(Barrier, OrdersTheBlock) {
  for (const char* barrier :
       {"bar.sync 0;", "barrier.sync 3;", "barrier.cta.sync.aligned 15, 128;", "bar.sync 1, 128;"}) {
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      const Outcome outcome = run(exchange(barrier), 128, seed);
      EXPECT_EQ(outcome.text(), "") << barrier;
      for (unsigned i = 0; i < 128; ++i) EXPECT_EQ(outcome.values[i], (i + 37) % 128);
    }
  }
}

TEST(Barrier, WithoutItTheExchangeIsARace) {
  EXPECT_TRUE(run(exchange(""), 128).has(FindingKind::data_race));
  // Orders lanes of one warp only.
  EXPECT_TRUE(run(exchange("bar.warp.sync 0xffffffff;"), 128).has(FindingKind::data_race));
}

TEST(Barrier, WarpSyncOrdersLanesOfAWarp) {
  const auto within_warp = [](const std::string& barrier) {
    return R"(
      mov.u32 %r1, buffer;
      mad.lo.u32 %r2, %r60, 4, %r1;
      st.shared.u32 [%r2], %r60;
      )" + barrier +
           R"(
      xor.b32 %r3, %r60, 5;
      mad.lo.u32 %r2, %r3, 4, %r1;
      ld.shared.u32 %r0, [%r2];
    )";
  };
  const Outcome right = run(within_warp("bar.warp.sync 0xffffffff;"), 64);
  EXPECT_EQ(right.text(), "");
  for (unsigned i = 0; i < 64; ++i) EXPECT_EQ(right.values[i], i ^ 5);
  EXPECT_TRUE(run(within_warp(""), 64).has(FindingKind::data_race));
}

TEST(Barrier, WarpSyncJoinsBranches) {
  const Outcome outcome = run(R"(
    mov.u32 %r1, buffer;
    mad.lo.u32 %r2, %r60, 4, %r1;
    setp.lt.u32 %p0, %r60, 16;
    @%p0 bra LOW;
    st.shared.u32 [%r2], %r60;
    bar.warp.sync 0xffffffff;
    bra DONE;
  LOW:
    bar.warp.sync 0xffffffff;
    ld.shared.u32 %r0, [%r2+64];
  DONE:
    @!%p0 mov.u32 %r0, 1;
  )",
                              32);
  EXPECT_EQ(outcome.text(), "");
  for (unsigned i = 0; i < 32; ++i) EXPECT_EQ(outcome.values[i], i < 16 ? i + 16 : 1);
}

TEST(Barrier, ArriveLetsProducersGoOn) {
  // Warps 0 and 1 produce and only arrive; warps 2 and 3 wait for them.
  const Outcome outcome = run(R"(
    mov.u32 %r1, buffer;
    mov.u32 %r0, 0;
    setp.ge.u32 %p0, %r60, 64;
    @%p0 bra CONSUME;
    mad.lo.u32 %r2, %r60, 4, %r1;
    st.shared.u32 [%r2], %r60;
    bar.arrive 5, 128;
    bra DONE;
  CONSUME:
    bar.sync 5, 128;
    sub.u32 %r3, 127, %r60;
    mad.lo.u32 %r2, %r3, 4, %r1;
    ld.shared.u32 %r0, [%r2];
  DONE:
  )",
                              128);
  EXPECT_EQ(outcome.text(), "");
  for (unsigned i = 64; i < 128; ++i) EXPECT_EQ(outcome.values[i], 127 - i);
}

TEST(Barrier, Reductions) {
  const Outcome outcome = run(R"(
    setp.lt.u32 %p0, %r60, 50;
    setp.lt.u32 %p1, %r60, 1000;
    bar.red.popc.u32 %r1, 0, %p0;
    bar.red.and.pred %p2, 0, %p0;
    bar.red.or.pred %p3, 1, 96, %p0;
    barrier.red.and.pred %p4, 2, %p1;
    barrier.red.popc.u32 %r2, 0, 96, !%p0;
    selp.u32 %r3, 1, 0, %p2;
    selp.u32 %r4, 2, 0, %p3;
    selp.u32 %r5, 4, 0, %p4;
    or.b32 %r3, %r3, %r4;
    or.b32 %r3, %r3, %r5;
    mad.lo.u32 %r0, %r1, 1000, %r3;
    mad.lo.u32 %r0, %r2, 1000000, %r0;
  )",
                              96);
  EXPECT_EQ(outcome.text(), "");
  EXPECT_EQ(outcome.values, Words(96, 46 * 1000000 + 50 * 1000 + 6));
}

TEST(Barrier, DivergedWarpIsReported) {
  const Outcome outcome = run("mov.u32 %r0, 0; setp.lt.u32 %p0, %r60, 5; @%p0 bar.sync 0;", 32);
  EXPECT_TRUE(outcome.has(FindingKind::barrier_divergence)) << outcome.text();
  EXPECT_NE(outcome.text().find("0x0000001f"), std::string::npos) << outcome.text();
}

TEST(Barrier, DeadlockNamesWhoWaitsForWhat) {
  const Outcome outcome = run(R"(
    mov.u32 %r0, 0;
    setp.ge.u32 %p0, %r60, 64;
    @%p0 bra SECOND;
    bar.sync 1, 128;
    bra DONE;
  SECOND:
    bar.sync 2, 128;
  DONE:
  )",
                              128);
  ASSERT_TRUE(outcome.has(FindingKind::deadlock)) << outcome.text();
  EXPECT_NE(outcome.text().find("barrier 1 (64 of 128 threads are there)"), std::string::npos)
      << outcome.text();
  EXPECT_NE(outcome.text().find("barrier 2 (64 of 128 threads are there)"), std::string::npos)
      << outcome.text();
}

TEST(Barrier, MisuseIsReported) {
  EXPECT_TRUE(run("mov.u32 %r0, 0; bar.sync 16;", 32).has(FindingKind::barrier_misuse));
  EXPECT_TRUE(run("mov.u32 %r0, 0; bar.sync 0, 33;", 64).has(FindingKind::barrier_misuse));
  EXPECT_TRUE(
      run("mov.u32 %r0, 0; bar.sync 0, 32;  bar.arrive 1, 32; mov.u32 %r1, %tid.x; and.b32 %r1, %r1, 32;"
          "add.u32 %r1, %r1, 64; bar.sync 2, %r1;",
          64)
          .has(FindingKind::barrier_misuse));
}

TEST(Barrier, ShuffleWaitsForTheOtherLanes) {
  // The two halves come to the shuffle by different ways.
  const Outcome outcome = run(R"(
    setp.lt.u32 %p0, %r60, 16;
    mov.u32 %r1, 7;
    @%p0 bra LOW;
    mov.u32 %r1, 1000;
    bra MEET;
  LOW:
    add.u32 %r1, %r1, %r60;
  MEET:
    shfl.sync.bfly.b32 %r0, %r1, 16, 31, 0xffffffff;
  )",
                              32);
  EXPECT_EQ(outcome.text(), "");
  for (unsigned i = 0; i < 32; ++i) EXPECT_EQ(outcome.values[i], i < 16 ? 1000 : 7 + i - 16);
}

}  // namespace
}  // namespace jit::emulator::testing
