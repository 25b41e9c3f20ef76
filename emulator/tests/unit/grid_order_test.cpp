// Grids that may begin before those in front of them have ended: what is found of those that touch memory too early.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/ptx_run.h"
#include "tests/unit/async_ptx.h"

namespace jit::emulator::testing::grid_order {
namespace {

using ::testing::HasSubstr;

const std::string wait = "  griddepcontrol.wait;\n", let_next = "  griddepcontrol.launch_dependents;\n";
const std::string barrier = "  bar.sync 0;\n";
const std::string read = "  ld.global.u32 %r1, [%rd2];\n  st.global.u32 [%rd3], %r1;\n";
const std::string write = "  st.global.u32 [%rd2], 7;\n";
// By warp 0, and by the other one.
const std::string first_warp = "  setp.lt.u32 %p1, %r60, 32;\n  @%p1 ";
const std::string second_warp = "  setp.ge.u32 %p1, %r60, 32;\n  @%p1 ";

/// Launches on one stream, one behind the other, each of two blocks of two warps. All but the first may begin early.
class GridOrderTest : public ::testing::Test {
 protected:
  std::string found(const std::vector<std::string>& bodies, bool is_first_dependent = false) {
    TestDevice device;
    const std::uint64_t in = device.upload(std::vector<std::uint32_t>(4096, 0));
    const std::uint64_t out = device.upload(std::vector<std::uint32_t>(4096, 0));
    std::string all;
    for (std::size_t i = 0; i < bodies.size(); ++i) {
      LaunchShape shape{.grid = {2, 1, 1}, .block = {64, 1, 1}};
      shape.dependent = i > 0 || is_first_dependent;
      // Each launch has results of its own.
      all += findings_of(device.run(kernel_of(places + bodies[i]), shape, {}, in, out + 1024 * i));
    }
    return all;
  }

  // %rd2, %rd3: a thread's words of the input and the output.
  static constexpr char places[] = R"(
  mov.u32 %r59, %ctaid.x;
  mad.lo.u32 %r58, %r59, 64, %r60;
  mul.wide.u32 %rd1, %r58, 4;
  add.u64 %rd2, %rd1, %rd60;
  add.u64 %rd3, %rd1, %rd61;
)";
};

const std::string never = "  setp.gt.u32 %p2, %r60, 4096;\n  @%p2 griddepcontrol.wait;\n";

TEST_F(GridOrderTest, WhatTheGridInFrontWroteIsReadBehindTheWait) {
  EXPECT_EQ(found({write, wait + read}), "");
  const std::string early = found({write, read + wait});
  EXPECT_THAT(early, HasSubstr("data race"));
  EXPECT_THAT(early, HasSubstr("the grid of test in front wrote it"));
  EXPECT_THAT(early, HasSubstr("not behind a griddepcontrol.wait"));
}

TEST_F(GridOrderTest, WhatTheGridInFrontTouchesIsWrittenBehindTheWait) {
  for (const std::string& front : {read, write, std::string("  red.global.add.u32 [%rd2], 1;\n")}) {
    EXPECT_EQ(found({front, wait + write}), "") << front;
    EXPECT_THAT(found({front, write + wait}), HasSubstr("data race")) << front;
  }
  EXPECT_EQ(found({read, read + wait}), "") << "two reads";
}

TEST_F(GridOrderTest, AsynchronousCopiesCount) {
  const std::string copy =
      "  .shared .align 16 .b8 buffer[2048];\n  mov.u32 %r2, buffer;\n  mul.lo.u32 %r3, %r60, 16;\n"
      "  add.u32 %r2, %r2, %r3;\n  shr.u64 %rd4, %rd1, 4;\n  shl.b64 %rd4, %rd4, 4;\n  add.u64 %rd4, %rd4, "
      "%rd60;\n"
      "  cp.async.cg.shared.global [%r2], [%rd4], 16;\n  cp.async.wait_all;\n";
  EXPECT_EQ(found({write, wait + copy}), "");
  EXPECT_THAT(found({write, copy + wait}), HasSubstr("data race"));
}

TEST_F(GridOrderTest, WhoIsOrderedBehindOneThatWaitedHasWaited) {
  EXPECT_EQ(found({write, first_warp + wait + barrier + read}), "");
  EXPECT_THAT(found({write, first_warp + wait + read + barrier}), HasSubstr("data race"))
      << "before the barrier";
  EXPECT_THAT(found({write, barrier + first_warp + wait + read}), HasSubstr("data race"))
      << "too early a barrier";
}

TEST_F(GridOrderTest, OtherLaunchesWaitForAll) {
  EXPECT_EQ(found({wait + write}, true), "") << "nothing is in front";
  EXPECT_EQ(found({read + wait}, true), "");
}

TEST_F(GridOrderTest, AWaitIsForWhatTheGridInFrontWaitedFor) {
  EXPECT_EQ(found({write, wait, wait + read}), "");
  EXPECT_EQ(found({write, second_warp + wait, wait + read}), "") << "one thread is enough";
  EXPECT_THAT(found({write, never, wait + read}), HasSubstr("data race"));
}

TEST_F(GridOrderTest, AGridThatBeginsBehindAWaitFindsWhatWasWaitedForEnded) {
  EXPECT_EQ(found({write, wait + let_next, read + wait}), "");
  EXPECT_EQ(found({write, wait, read + wait}), "") << "the end of a block lets the next grid begin";
  EXPECT_THAT(found({write, let_next + wait, read + wait}), HasSubstr("data race"));
  EXPECT_EQ(found({write, first_warp + let_next + barrier + wait, wait + read}), "");
  EXPECT_THAT(found({write, first_warp + let_next + barrier + wait, read + wait}), HasSubstr("data race"))
      << "the first thread of a block lets the next grid begin";
  // Behind a grid that did not wait, who waits for it need not be behind the first one.
  EXPECT_THAT(found({write, never, wait + let_next, read + wait}), HasSubstr("data race"));
  EXPECT_EQ(found({write, wait + let_next, never, wait + let_next, read + wait}), "")
      << "it has ended before";
  // Work of the grid in front itself must be waited for all the same.
  EXPECT_THAT(found({read, wait + let_next + write, read + wait}), HasSubstr("data race"));
}

TEST_F(GridOrderTest, GridsMayPassWordsToEachOther) {
  const std::string release = barrier + "  red.release.gpu.global.add.u32 [%rd61+4096], 1;\n";
  const std::string acquire = "  ld.acquire.gpu.global.u32 %r4, [%rd61+3072];\n";
  EXPECT_EQ(found({write + release, acquire + read + wait}), "");
}

}  // namespace
}  // namespace jit::emulator::testing::grid_order
