// Blocks that wait for each other: those that can go on do, and of the rest is said what they wait for.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/ptx_run.h"
#include "tests/unit/async_ptx.h"

namespace jit::emulator::testing {
namespace {

// %r59: number of the block, %r58: how many there are.
constexpr char numbers[] = "  mov.u32 %r59, %ctaid.x;\n  mov.u32 %r58, %nctaid.x;\n";

// Every block counts itself and waits for all; `look` reads the counter at %rd60 to %r1.
std::string all_meet(const std::string& look = "ld.acquire.gpu.global.u32 %r1, [%rd60];") {
  return numbers + ("  atom.acq_rel.gpu.global.add.u32 %r2, [%rd60], 1;\nWAIT:\n  " + look) +
         "\n  setp.lt.u32 %p1, %r1, %r58;\n  @%p1 bra WAIT;\n";
}

class ResidencyTest : public ::testing::TestWithParam<int> {
 protected:
  std::string found(const std::string& body, unsigned blocks, std::uint64_t resident, unsigned threads = 1) {
    TestDevice device;
    LaunchOptions options;
    options.threads = GetParam();
    options.resident_blocks = resident;
    options.step_limit = 50'000'000;
    const std::uint64_t words = device.upload(std::vector<std::uint32_t>(1024, 0));
    const std::uint64_t out = device.upload(std::vector<std::uint32_t>(1024, 0));
    return findings_of(
        device.run(kernel_of(body), {.grid = {blocks, 1, 1}, .block = {threads, 1, 1}}, options, words, out));
  }
};

INSTANTIATE_TEST_SUITE_P(HostThreads, ResidencyTest, ::testing::Values(1, 2, 3));

TEST_P(ResidencyTest, AGridThatFitsMeets) {
  EXPECT_EQ(found(all_meet(), 70, 0), "");
  EXPECT_EQ(found(all_meet(), 70, 70), "");
  EXPECT_EQ(found(all_meet("atom.acquire.gpu.global.add.u32 %r1, [%rd60], 0;"), 40, 132), "");
}

TEST_P(ResidencyTest, AGridThatDoesNotFitNeverMeets) {
  for (const char* look : {"ld.acquire.gpu.global.u32 %r1, [%rd60];", "ld.volatile.global.u32 %r1, [%rd60];",
                           "atom.acquire.gpu.global.add.u32 %r1, [%rd60], 0;"}) {
    const std::string text = found(all_meet(look), 8, 5);
    EXPECT_EQ(text.find("deadlock in test block ("), 0u) << text;
    EXPECT_NE(text.find("warp 0 polls global memory at PTX line"), std::string::npos) << text;
    EXPECT_NE(text.find("is byte 0 of the 4096 bytes"), std::string::npos) << text;
    EXPECT_NE(
        text.find("block (5, 0, 0) has not begun, because the device runs 5 blocks of this kernel at once"),
        std::string::npos)
        << text;
  }
}

// Each raises the other's flag when its own is raised.
TEST_P(ResidencyTest, BlocksThatWaitForEachOtherAreNamed) {
  const std::string text = found(numbers + std::string(R"(
  mul.wide.u32 %rd1, %r59, 4;
  add.u64 %rd1, %rd1, %rd60;
  xor.b32 %r1, %r59, 1;
  mul.wide.u32 %rd2, %r1, 4;
  add.u64 %rd2, %rd2, %rd60;
WAIT:
  ld.acquire.gpu.global.u32 %r2, [%rd1];
  setp.eq.u32 %p1, %r2, 0;
  @%p1 bra WAIT;
  st.release.gpu.global.u32 [%rd2], 1;
)"),
                                 2, 0);
  EXPECT_EQ(text.find("deadlock"), 0u) << text;
  for (const char* says :
       {"block (0, 0, 0) warp 0 polls", "is byte 0 of", "block (1, 0, 0) warp 0 polls", "is byte 4 of"}) {
    EXPECT_NE(text.find(says), std::string::npos) << text;
  }
  EXPECT_EQ(text.find("has not begun"), std::string::npos) << text;
}

// Blocks that read what others write run side by side: block 0 finds that the last one has begun, though it does not wait
// for it, and others have ended long before.
TEST_P(ResidencyTest, BlocksThatAskOthersBeginBeforeTheyEnd) {
  EXPECT_EQ(found(numbers + std::string(R"(
  sub.u32 %r3, %r58, 1;
  setp.ne.u32 %p1, %r59, %r3;
  @%p1 bra COMPUTE;
  st.relaxed.gpu.global.u32 [%rd60], 1;
COMPUTE:
  mov.u32 %r1, 60000;
AGAIN:
  sub.u32 %r1, %r1, 1;
  setp.ne.u32 %p2, %r1, 0;
  @%p2 bra AGAIN;
  ld.relaxed.gpu.global.u32 %r2, [%rd60];
  setp.eq.u32 %p3, %r2, 0;
  @%p3 trap;
)"),
                  30, 132),
            "");
}

// The last block computes for long before it raises the flag of all others; a wait may give up, too.
TEST_P(ResidencyTest, PatienceIsNoDeadlock) {
  EXPECT_EQ(found(numbers + std::string(R"(
  sub.u32 %r3, %r58, 1;
  setp.eq.u32 %p1, %r59, %r3;
  @!%p1 bra WAIT;
  mov.u32 %r1, 300000;
COMPUTE:
  sub.u32 %r1, %r1, 1;
  setp.ne.u32 %p2, %r1, 0;
  @%p2 bra COMPUTE;
  st.release.gpu.global.u32 [%rd60], 1;
  bra END;
WAIT:
  ld.acquire.gpu.global.u32 %r2, [%rd60];
  setp.eq.u32 %p3, %r2, 0;
  @%p3 bra WAIT;
END:
)"),
                  4, 4),
            "");
  EXPECT_EQ(found(R"(
  mov.u32 %r1, 5000;
WAIT:
  sub.u32 %r1, %r1, 1;
  ld.acquire.gpu.global.u32 %r2, [%rd60];
  setp.ne.u32 %p1, %r2, 0;
  setp.ne.and.u32 %p2, %r1, 0, !%p1;
  @%p2 bra WAIT;
)",
                  4, 2),
            "");
}

}  // namespace
}  // namespace jit::emulator::testing
