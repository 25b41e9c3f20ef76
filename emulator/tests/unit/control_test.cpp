// Branches, divergence and how a warp comes together again.
#include <cstdint>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/ptx_run.h"

namespace jit::emulator::testing {
namespace {

using Words = std::vector<std::uint32_t>;

/// Runs `body` for one block of `threads`; it leaves its result in %r0, of which each thread's is returned.
struct Outcome {
  Words values;
  LaunchResult result;
};
Outcome run(const std::string& body, unsigned threads = 32, LaunchOptions options = {}) {
  TestDevice device;
  const std::uint64_t out = device.upload(Words(threads, 0xabababab));
  Outcome outcome;
  outcome.result = device.run(kernel_of(body + R"(
    mad.wide.u32 %rd0, %r60, 4, %rd61;
    st.global.u32 [%rd0], %r0;
  )"),
                              {.block = {threads, 1, 1}}, options, std::uint64_t{0}, out);
  outcome.values = device.download<std::uint32_t>(out, threads);
  return outcome;
}

Words per_thread(unsigned threads, std::uint32_t (*f)(std::uint32_t)) {
  Words values;
  for (unsigned i = 0; i < threads; ++i) values.push_back(f(i));
  return values;
}

std::string findings_of(const LaunchResult& result) {
  std::string text;
  for (const Finding& finding : result.findings) text += to_string(finding) + "\n";
  return text;
}

TEST(Control, SidesOfABranchMeetAgain) {
  // After the branch the warp is whole: activemask says so.
  const Outcome outcome = run(R"(
    setp.lt.u32 %p0, %r60, 7;
    @%p0 bra SMALL;
    mov.u32 %r1, 100;
    bra.uni DONE;
  SMALL:
    mov.u32 %r1, 1;
  DONE:
    activemask.b32 %r2;
    popc.b32 %r2, %r2;
    add.u32 %r0, %r1, %r2;
  )");
  EXPECT_EQ(findings_of(outcome.result), "");
  EXPECT_EQ(outcome.values, per_thread(32, [](std::uint32_t i) { return (i < 7 ? 1u : 100u) + 32; }));
}

TEST(Control, NestedLoopsOfDifferentLengthPerLane) {
  // for (i = 0; i <= lane; ++i) for (j = 0; j < i; ++j) sum += j
  const Outcome outcome = run(R"(
    mov.u32 %r0, 0;
    mov.u32 %r1, 0;
  OUTER:
    mov.u32 %r2, 0;
  INNER:
    setp.ge.u32 %p0, %r2, %r1;
    @%p0 bra INNER_DONE;
    add.u32 %r0, %r0, %r2;
    add.u32 %r2, %r2, 1;
    bra INNER;
  INNER_DONE:
    add.u32 %r1, %r1, 1;
    setp.le.u32 %p1, %r1, %r60;
    @%p1 bra OUTER;
    activemask.b32 %r3;
    setp.ne.u32 %p2, %r3, 0xffffffff;
    @%p2 mov.u32 %r0, 0xdead;
  )");
  EXPECT_EQ(findings_of(outcome.result), "");
  EXPECT_EQ(outcome.values, per_thread(32, [](std::uint32_t lane) {
              std::uint32_t sum = 0;
              for (std::uint32_t i = 0; i <= lane; ++i) sum += i * (i - 1) / 2 * (i > 0);
              return sum;
            }));
}

TEST(Control, LanesThatExitAreNotWaitedFor) {
  const Outcome outcome = run(R"(
    setp.ge.u32 %p0, %r60, 20;
    @%p0 exit;
    setp.ge.u32 %p1, %r60, 10;
    @%p1 bra HIGH;
    mov.u32 %r1, 1;
    bra DONE;
  HIGH:
    setp.eq.u32 %p2, %r60, 15;
    @%p2 ret;
    mov.u32 %r1, 2;
  DONE:
    bar.sync 0;
    activemask.b32 %r2;
    popc.b32 %r2, %r2;
    mad.lo.u32 %r0, %r2, 10, %r1;
  )",
                              64);
  EXPECT_EQ(findings_of(outcome.result), "");
  EXPECT_EQ(outcome.values, per_thread(64, [](std::uint32_t i) {
              return i >= 20 || i == 15 ? 0xabababab : (i >= 10 ? 192u : 191u);
            }));
}

TEST(Control, BranchByIndex) {
  const Outcome outcome = run(R"(
    and.b32 %r1, %r60, 3;
    TARGETS: .branchtargets A, B, C, B;
    brx.idx %r1, TARGETS;
  A:
    mov.u32 %r0, 10;
    bra DONE;
  B:
    mov.u32 %r0, 20;
    bra DONE;
  C:
    mov.u32 %r0, 30;
  DONE:
    activemask.b32 %r2;
    setp.ne.u32 %p0, %r2, 0xffffffff;
    @%p0 mov.u32 %r0, 0;
  )");
  EXPECT_EQ(findings_of(outcome.result), "");
  EXPECT_EQ(outcome.values, per_thread(32, [](std::uint32_t i) {
              constexpr std::uint32_t values[] = {10, 20, 30, 20};
              return values[i % 4];
            }));
}

TEST(Control, LanesOfOneWarpMayWaitForEachOtherInDifferentBranches) {
  // Lane 0 waits in a loop for what lane 1 writes in the other branch: independent thread scheduling.
  const Outcome outcome = run(R"(
    mov.u64 %rd1, %rd61;
    mov.u32 %r0, 5;
    setp.ne.u32 %p0, %r60, 0;
    @%p0 bra WRITER;
  POLL:
    ld.relaxed.gpu.global.u32 %r1, [%rd1+4];
    setp.ne.u32 %p1, %r1, 77;
    @%p1 bra POLL;
    bra DONE;
  WRITER:
    setp.ne.u32 %p2, %r60, 1;
    @%p2 bra DONE;
    mov.u32 %r2, 77;
    st.relaxed.gpu.global.u32 [%rd1+4], %r2;
  DONE:
    bar.warp.sync 0xffffffff;
  )");
  EXPECT_EQ(findings_of(outcome.result), "");
  EXPECT_EQ(outcome.values, Words(32, 5));
}

TEST(Control, TrapStopsTheLaunch) {
  const Outcome outcome = run("setp.eq.u32 %p0, %r60, 3; @%p0 trap; mov.u32 %r0, 0;");
  ASSERT_EQ(outcome.result.findings.size(), 1u);
  EXPECT_EQ(outcome.result.findings[0].kind, FindingKind::illegal_instruction);
  EXPECT_EQ(outcome.result.findings[0].lane, 3);
}

TEST(Control, EndlessLoopMeetsTheStepLimit) {
  const Outcome outcome = run("LOOP: bra LOOP; mov.u32 %r0, 0;", 32, {.step_limit = 100000});
  ASSERT_EQ(outcome.result.findings.size(), 1u);
  EXPECT_EQ(outcome.result.findings[0].kind, FindingKind::step_limit);
}

TEST(Control, TheStepLimitNamesTheWarpThatGoesOn) {
  const Outcome outcome =
      run("mov.u32 %r0, 0; setp.lt.u32 %p0, %r60, 64; @%p0 bra END; LOOP: bra LOOP; END: mov.u32 %r0, 1;", 96,
          {.step_limit = 100000});
  ASSERT_EQ(outcome.result.findings.size(), 1u);
  EXPECT_EQ(outcome.result.findings[0].warp, 2);
  EXPECT_THAT(outcome.result.findings[0].message, ::testing::HasSubstr("100000 is the limit"));
}

TEST(Control, AnEndlessLoopCanBeInterrupted) {
  int questions = 0;
  LaunchOptions options;
  const auto caller = std::this_thread::get_id();
  options.is_interrupted = [&] {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    return ++questions == 3;
  };
  try {
    run("LOOP: bra LOOP; mov.u32 %r0, 0;", 32, options);
    FAIL();
  } catch (const LaunchInterrupted& interrupted) {
    EXPECT_THAT(interrupted.what(), ::testing::HasSubstr("test was interrupted"));
  }
  EXPECT_EQ(questions, 3);
}

TEST(Control, WhoIsAskedMayLetALaunchGoOn) {
  LaunchOptions options;
  options.is_interrupted = [] { return false; };
  EXPECT_EQ(run("mov.u32 %r0, 5;", 32, options).values, Words(32, 5));
}

TEST(Control, WhoIsAskedMayThrow) {
  LaunchOptions options;
  options.is_interrupted = []() -> bool { throw std::runtime_error("no"); };
  EXPECT_THROW(run("LOOP: bra LOOP; mov.u32 %r0, 0;", 32, options), std::runtime_error);
}

TEST(Control, GridAndBlockIndices) {
  TestDevice device;
  const std::uint64_t out = device.upload(Words(2 * 3 * 4 * 5 * 2, 0));
  // Each thread writes its own linear number, made from all special registers.
  const LaunchResult result = device.run(kernel_of(R"(
    mov.u32 %r1, %ctaid.z; mov.u32 %r2, %nctaid.y; mov.u32 %r3, %ctaid.y;
    mad.lo.u32 %r1, %r1, %r2, %r3;
    mov.u32 %r2, %nctaid.x; mov.u32 %r3, %ctaid.x;
    mad.lo.u32 %r1, %r1, %r2, %r3;
    mov.u32 %r2, %ntid.y; mov.u32 %r3, %tid.y;
    mad.lo.u32 %r1, %r1, %r2, %r3;
    mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
    mad.lo.u32 %r1, %r1, %r2, %r3;
    mad.wide.u32 %rd0, %r1, 4, %rd61;
    st.global.u32 [%rd0], %r1;
  )"),
                                         {.grid = {2, 3, 4}, .block = {5, 2, 1}}, {}, std::uint64_t{0}, out);
  EXPECT_EQ(findings_of(result), "");
  Words expected(240);
  for (unsigned i = 0; i < 240; ++i) expected[i] = i;
  EXPECT_EQ(device.download<std::uint32_t>(out, 240), expected);
}

}  // namespace
}  // namespace jit::emulator::testing
