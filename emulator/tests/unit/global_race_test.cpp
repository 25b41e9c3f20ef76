// Kernels whose blocks hand data to each other through global memory: what is found of those that do it wrong, and
// beside each the one that does it right.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/ptx_run.h"
#include "tests/unit/async_ptx.h"

namespace jit::emulator::testing {
namespace {

// %rd1: the counter or flag; %rd2: the word of data of the thread in block 0, %rd3: that of its neighbor there by 32
// threads, %rd4: a place for the thread's results; %p1: thread 0; %p2: block 0.
constexpr char places[] = R"(
  mov.u32 %r59, %ctaid.x;
  mov.u32 %r58, %ntid.x;
  mov.u64 %rd1, %rd60;
  mul.wide.u32 %rd2, %r60, 4;
  add.u64 %rd2, %rd2, %rd60;
  add.u64 %rd2, %rd2, 256;
  xor.b32 %r57, %r60, 32;
  mul.wide.u32 %rd3, %r57, 4;
  add.u64 %rd3, %rd3, %rd60;
  add.u64 %rd3, %rd3, 256;
  mad.lo.u32 %r56, %r59, %r58, %r60;
  mul.wide.u32 %rd4, %r56, 4;
  add.u64 %rd4, %rd4, %rd61;
  setp.eq.u32 %p1, %r60, 0;
  setp.eq.u32 %p2, %r59, 0;
)";

class GlobalRaceTest : public ::testing::Test {
 protected:
  // All that is found under several seeds, in one host thread and in two.
  std::string found(const std::string& body, unsigned blocks = 2, unsigned threads = 64,
                    unsigned cluster = 1) {
    std::string all;
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      TestDevice device;
      LaunchOptions options;
      options.seed = seed;
      options.threads = seed < 2 ? 1 : 2;
      options.step_limit = 20'000'000;
      const std::uint64_t in = device.upload(std::vector<std::uint32_t>(16384, 0));
      const std::uint64_t out = device.upload(std::vector<std::uint32_t>(16384, 0));
      LaunchShape shape{.grid = {blocks, 1, 1}, .block = {threads, 1, 1}, .cluster = {cluster, 1, 1}};
      shape.dynamic_smem_bytes = 0;
      all += findings_of(device.run(
          kernel_of(places + body, ".shared .align 128 .b8 buffer[4096];\n.shared .align 8 .b64 bar;\n"),
          shape, options, in, out));
    }
    return all;
  }
};

bool is_race(const std::string& found) { return found.find("data race") != std::string::npos; }

// Block 0 writes and raises the flag; the others wait for it and read.
std::string message_passing(const std::string& before_flag, const std::string& raise, const std::string& look,
                            const std::string& behind_flag, const std::string& data = "%rd2") {
  return "  @!%p2 bra READ;\n  st.global.u32 [%rd2], 7;\n" + before_flag + "  @%p1 " + raise +
         " [%rd1], 1;\n  bra END;\nREAD:\n  @!%p1 bra SEEN;\nWAIT:\n  " + look +
         " %r1, [%rd1];\n  setp.eq.u32 %p3, %r1, 0;\n  @%p3 bra WAIT;\nSEEN:\n" + behind_flag +
         "  ld.global.u32 %r2, [" + data + "];\n  st.global.u32 [%rd4], %r2;\nEND:\n";
}

const std::string barrier = "  bar.sync 0;\n";

TEST_F(GlobalRaceTest, AFlagThatIsReleasedAndAcquiredOrdersTheBlocks) {
  const auto with = [&](const std::string& raise, const std::string& look) {
    return found(message_passing(barrier, raise, look, barrier), 3);
  };
  EXPECT_EQ(with("st.release.gpu.global.u32", "ld.acquire.gpu.global.u32"), "");
  EXPECT_EQ(with("st.release.sys.global.u32", "ld.acquire.gpu.global.u32"), "");
  EXPECT_EQ(with("st.release.gpu.u32", "ld.acquire.gpu.u32"), "") << "generic addresses";
  EXPECT_EQ(with("red.release.gpu.global.add.u32", "ld.acquire.gpu.global.u32"), "");
  EXPECT_TRUE(is_race(with("st.relaxed.gpu.global.u32", "ld.acquire.gpu.global.u32")));
  EXPECT_TRUE(is_race(with("st.release.gpu.global.u32", "ld.relaxed.gpu.global.u32")));
  EXPECT_TRUE(is_race(with("st.volatile.global.u32", "ld.volatile.global.u32")));
  EXPECT_TRUE(is_race(with("st.release.cta.global.u32", "ld.acquire.gpu.global.u32")));
  EXPECT_TRUE(is_race(with("st.release.gpu.global.u32", "ld.acquire.cta.global.u32")));
  EXPECT_TRUE(is_race(with("st.global.u32", "ld.acquire.gpu.global.u32")));
  EXPECT_TRUE(is_race(with("atom.global.add.u32 %r9,", "ld.acquire.gpu.global.u32")));
}

TEST_F(GlobalRaceTest, AReleaseTakesInWhatLiesBehindTheBlocksBarriers) {
  const auto with = [&](const std::string& before, const std::string& behind, const char* data) {
    return found(
        message_passing(before, "st.release.gpu.global.u32", "ld.acquire.gpu.global.u32", behind, data));
  };
  for (const char* data : {"%rd2", "%rd3"}) {
    EXPECT_EQ(with(barrier, barrier, data), "");
    EXPECT_TRUE(is_race(with("", barrier, data)));
    EXPECT_TRUE(is_race(with(barrier, "", data)));
    EXPECT_TRUE(is_race(with("  bar.warp.sync 0xffffffff;\n", barrier, data)))
        << "the other warp is not there";
  }
}

TEST_F(GlobalRaceTest, FencesMakeReleasesAndAcquiresOfRelaxedAccesses) {
  const auto with = [&](const std::string& before, const std::string& behind, const std::string& kind) {
    return found(message_passing(barrier + before, "st." + kind + ".global.u32", "ld." + kind + ".global.u32",
                                 behind + barrier));
  };
  for (const char* kind : {"relaxed.gpu", "volatile"}) {
    EXPECT_EQ(with("  fence.acq_rel.gpu;\n", "  fence.acq_rel.gpu;\n", kind), "");
    EXPECT_EQ(with("  membar.gl;\n", "  fence.sc.sys;\n", kind), "");
    EXPECT_TRUE(is_race(with("", "  fence.acq_rel.gpu;\n", kind)));
    EXPECT_TRUE(is_race(with("  fence.acq_rel.gpu;\n", "", kind)));
    EXPECT_TRUE(is_race(with("  membar.cta;\n", "  fence.acq_rel.gpu;\n", kind)));
    EXPECT_TRUE(is_race(with("  fence.acq_rel.gpu;\n", "  fence.acq_rel.cta;\n", kind)));
    EXPECT_EQ(with("  fence.acq_rel.gpu;\n  fence.acq_rel.cta;\n",
                   "  fence.acq_rel.cta;\n  fence.acq_rel.gpu;\n", kind),
              "");
  }
  EXPECT_TRUE(is_race(with("  fence.acq_rel.gpu;\n", "  fence.acq_rel.gpu;\n", "relaxed.cta")));
}

// All blocks write a part, count themselves, and the last one reads all parts.
std::string counted(const std::string& count, const std::string& before = barrier,
                    const std::string& behind = barrier) {
  return "  mov.u32 %r0, buffer;\n  mul.wide.u32 %rd5, %r56, 4;\n  add.u64 %rd5, %rd5, %rd60;\n"
         "  st.global.u32 [%rd5+256], %r56;\n" +
         before + "  mov.u32 %r10, %nctaid.x;\n  sub.u32 %r11, %r10, 1;\n  @%p1 " + count +
         " %r12, [%rd1], %r11;\n  @%p1 st.shared.u32 [%r0], %r12;\n" + behind + R"(
  ld.shared.u32 %r12, [%r0];
  setp.ne.u32 %p4, %r12, %r11;
  @%p4 bra END;
  mov.u32 %r13, 0;
  mov.u32 %r15, 0;
SUM:
  mad.lo.u32 %r14, %r13, %r58, %r60;
  mul.wide.u32 %rd6, %r14, 4;
  add.u64 %rd6, %rd6, %rd60;
  ld.global.cg.u32 %r14, [%rd6+256];
  add.u32 %r15, %r15, %r14;
  add.u32 %r13, %r13, 1;
  setp.lt.u32 %p5, %r13, %r10;
  @%p5 bra SUM;
  mul.wide.u32 %rd6, %r60, 4;
  add.u64 %rd6, %rd6, %rd61;
  st.global.u32 [%rd6], %r15;
END:
)";
}

TEST_F(GlobalRaceTest, TheLastBlockAtACounterSeesAllOthers) {
  for (const unsigned blocks : {2u, 5u, 40u}) {
    EXPECT_EQ(found(counted("atom.acq_rel.gpu.global.inc.u32"), blocks), "");
    for (const char* count :
         {"atom.relaxed.gpu.global.inc.u32", "atom.global.inc.u32", "atom.acquire.gpu.global.inc.u32",
          "atom.release.gpu.global.inc.u32", "atom.acq_rel.cta.global.inc.u32"}) {
      EXPECT_TRUE(is_race(found(counted(count), blocks))) << count;
    }
    EXPECT_TRUE(is_race(found(counted("atom.acq_rel.gpu.global.inc.u32", ""), blocks)));
  }
  const std::string fence = "  fence.acq_rel.gpu;\n";
  EXPECT_EQ(found(counted("atom.relaxed.gpu.global.inc.u32", barrier + fence, fence + barrier), 5), "");
  EXPECT_TRUE(is_race(found(counted("atom.relaxed.gpu.global.inc.u32", barrier + fence, barrier), 5)));
  EXPECT_TRUE(is_race(found(counted("atom.relaxed.gpu.global.inc.u32", barrier, fence + barrier), 5)));
}

TEST_F(GlobalRaceTest, ReadersComeBeforeWriters) {
  const auto with = [&](const std::string& raise, const std::string& look) {
    return found("  @%p2 bra WRITE;\n  ld.global.u32 %r2, [%rd2];\n  st.global.u32 [%rd4], %r2;\n" + barrier +
                 "  @%p1 " + raise + " [%rd1], 1;\n  bra END;\nWRITE:\n  @!%p1 bra SEEN;\nWAIT:\n  " + look +
                 " %r1, [%rd1];\n  setp.eq.u32 %p3, %r1, 0;\n  @%p3 bra WAIT;\nSEEN:\n" + barrier +
                 "  st.global.u32 [%rd2], 9;\nEND:\n");
  };
  EXPECT_EQ(with("st.release.gpu.global.u32", "ld.acquire.gpu.global.u32"), "");
  const std::string race = with("st.relaxed.gpu.global.u32", "ld.relaxed.gpu.global.u32");
  EXPECT_NE(race.find("block (1, 0, 0) warp 0 lane 0 read it with ld.global.u32"), std::string::npos) << race;
}

TEST_F(GlobalRaceTest, BlocksThatWriteOnePlaceAreARaceWhateverTheyWrite) {
  EXPECT_TRUE(is_race(found("  st.global.u32 [%rd2], 3;\n")));
  EXPECT_TRUE(is_race(found("  @%p1 st.global.u16 [%rd61+2], 3;\n")));
  EXPECT_TRUE(
      is_race(found("  @%p1 atom.global.add.u32 %r1, [%rd1], 1;\n  @%p1 st.global.u32 [%rd1], 0;\n")));
  EXPECT_EQ(
      found("  @%p1 atom.global.add.u32 %r1, [%rd1], 1;\n  @%p1 st.relaxed.gpu.global.u32 [%rd1], 0;\n"), "");
  EXPECT_TRUE(is_race(
      found("  @%p1 atom.global.add.u32 %r1, [%rd1], 1;\n  @%p1 st.relaxed.cta.global.u32 [%rd1], 0;\n")));
  EXPECT_TRUE(is_race(found("  st.global.v4.u32 [%rd61+16], {%r60, %r60, %r60, %r60};\n", 1, 64)));
}

TEST_F(GlobalRaceTest, NeighborsInAWordAreNoRace) {
  for (const char* store : {"mad.wide.u32 %rd5, %r59, 1, %rd61;\n  @%p1 st.global.u8 [%rd5+5], %r60;\n",
                            "mad.wide.u32 %rd5, %r59, 2, %rd61;\n  @%p1 st.global.u16 [%rd5+6], %r60;\n",
                            "mad.wide.u32 %rd5, %r59, 4, %rd61;\n  @%p1 st.global.u32 [%rd5+8], %r60;\n"}) {
    EXPECT_EQ(found(std::string("  ") + store, 9), "") << store;
  }
  // The first half is read by all, the other one written.
  EXPECT_EQ(found("  @%p1 ld.global.u16 %r1, [%rd60];\n  @%p1 st.global.u32 [%rd4], %r1;\n"
                  "  and.pred %p3, %p1, %p2;\n  @%p3 st.global.u16 [%rd60+2], %r60;\n",
                  5),
            "");
}

TEST_F(GlobalRaceTest, ThreadsOfABlockRaceToo) {
  const std::string write = "  st.global.u32 [%rd2], %r60;\n";
  const std::string read = "  ld.global.u32 %r1, [%rd3];\n  st.global.u32 [%rd4], %r1;\n";
  EXPECT_TRUE(is_race(found(write + read, 1)));
  EXPECT_EQ(found(write + barrier + read, 1), "");
  // Lanes of one instruction may write the same, and nothing else.
  EXPECT_EQ(found("  st.global.u32 [%rd60], 5;\n", 1, 32), "");
  EXPECT_TRUE(is_race(found("  st.global.u32 [%rd60], %r60;\n", 1, 32)));
  EXPECT_TRUE(is_race(found("  st.global.u32 [%rd60], 5;\n", 1, 64))) << "another warp";
}

TEST_F(GlobalRaceTest, BlocksOfAClusterMeetAtItsBarrier) {
  const std::string write = "  @%p2 st.global.u32 [%rd2], 5;\n";
  const std::string read = "  @!%p2 ld.global.u32 %r1, [%rd2];\n  @!%p2 st.global.u32 [%rd4], %r1;\n";
  EXPECT_EQ(
      found(write + "  barrier.cluster.arrive.aligned;\n  barrier.cluster.wait.aligned;\n" + read, 2, 64, 2),
      "");
  EXPECT_TRUE(is_race(found(write + read, 2, 64, 2)));
  EXPECT_EQ(found(message_passing(barrier, "st.release.cluster.global.u32", "ld.acquire.cluster.global.u32",
                                  barrier),
                  2, 64, 2),
            "");
  EXPECT_TRUE(is_race(found(
      message_passing(barrier, "st.release.cluster.global.u32", "ld.acquire.cluster.global.u32", barrier))));
}

// A bulk store has written what a full wait has waited for; cp.async and bulk loads read.
TEST_F(GlobalRaceTest, AsynchronousCopiesTakePart) {
  const auto stored = [&](const std::string& wait) {
    return found(
        "  @!%p2 bra READ;\n  mov.u32 %r0, buffer;\n  mad.lo.u32 %r3, %r60, 4, %r0;\n  st.shared.u32 [%r3], "
        "7;\n"
        "  fence.proxy.async.shared::cta;\n" +
        barrier +
        "  @!%p1 bra END;\n  cp.async.bulk.global.shared::cta.bulk_group [%rd60+256], [%r0], 256;\n"
        "  cp.async.bulk.commit_group;\n  " +
        wait +
        " 0;\n  st.release.gpu.global.u32 [%rd1], 1;\n  bra END;\nREAD:\n  @!%p1 bra SEEN;\nWAIT:\n"
        "  ld.acquire.gpu.global.u32 %r1, [%rd1];\n  setp.eq.u32 %p3, %r1, 0;\n  @%p3 bra WAIT;\nSEEN:\n" +
        barrier + "  ld.global.u32 %r2, [%rd2];\n  st.global.u32 [%rd4], %r2;\nEND:\n");
  };
  EXPECT_EQ(stored("cp.async.bulk.wait_group"), "");
  EXPECT_TRUE(is_race(stored("cp.async.bulk.wait_group.read")));

  const std::string copy =
      "  mov.u32 %r0, buffer;\n  mad.lo.u32 %r3, %r60, 4, %r0;\n  cp.async.ca.shared.global [%r3], [%rd2], "
      "4;\n"
      "  cp.async.wait_all;\n";
  const std::string load =
      "  mov.u32 %r0, buffer;\n  mov.u32 %r2, bar;\n" + init_by_first("bar", 1) +
      "  @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 256;\n"
      "  @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r0], [%rd2], 256, "
      "[%r2];\n" +
      wait_for("%r2", "0", "LOADED");
  for (const std::string& read : {copy, "  fence.proxy.async.global;\n" + load}) {
    for (const bool acquires : {true, false}) {
      const std::string look = acquires ? "ld.acquire.gpu.global.u32" : "ld.relaxed.gpu.global.u32";
      const std::string all =
          found(message_passing(barrier, "st.release.gpu.global.u32", look, barrier + read));
      EXPECT_EQ(is_race(all), !acquires) << all;
      if (acquires) {
        EXPECT_EQ(all, "");
      }
    }
  }
}

// The async proxy reads, adds to or replaces what plain stores wrote, behind a fence of either side.
TEST_F(GlobalRaceTest, TheAsyncProxyNeedsItsFence) {
  const std::string shared =
      "  mov.u32 %r0, buffer;\n  mad.lo.u32 %r3, %r60, 4, %r0;\n  st.shared.u32 [%r3], 7;\n"
      "  fence.proxy.async.shared::cta;\n";
  const std::string wait = "  @%p1 cp.async.bulk.commit_group;\n  @%p1 cp.async.bulk.wait_group 0;\n";
  const std::string operand = " [%rd60+256], [%r0], 256;\n" + wait;
  const std::string load =
      "  mov.u32 %r2, bar;\n" + init_by_first("bar", 1) +
      "  @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 256;\n"
      "  @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r0+1024], [%rd2], 256, "
      "[%r2];\n" +
      wait_for("%r2", "0", "LOADED");
  const std::string store = "  @%p1 cp.async.bulk.global.shared::cta.bulk_group" + operand;
  const std::string add = "  @%p1 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32" + operand;
  const auto is_unfenced = [](const std::string& all) {
    EXPECT_FALSE(is_race(all)) << all;
    return all.find("missing proxy fence") != std::string::npos;
  };
  const std::string plain = shared + "  st.global.u32 [%rd2], 7;\n";
  for (const std::string& copy : {load, store, add}) {
    for (const std::string fence : {"fence.proxy.async", "fence.proxy.async.global"}) {
      EXPECT_EQ(found(plain + "  " + fence + ";\n" + barrier + copy, 1), "");
      EXPECT_EQ(found(plain + barrier + "  " + fence + ";\n" + copy, 1), "");
    }
    EXPECT_TRUE(is_unfenced(found(plain + barrier + copy, 1)));
    EXPECT_TRUE(is_unfenced(found(plain + "  fence.proxy.async.shared::cta;\n" + barrier + copy, 1)));
    EXPECT_TRUE(is_unfenced(
        found(shared + "  fence.proxy.async;\n  st.global.u32 [%rd2], 7;\n" + barrier + copy, 1)));
    EXPECT_EQ(found(shared + "  ld.global.u32 %r9, [%rd2];\n" + barrier + copy, 1), "") << "reads need none";
    // Between blocks.
    const std::string global = "  fence.proxy.async.global;\n";
    const auto passed = [&](const std::string& here, const std::string& there) {
      return found(shared + message_passing(here + barrier, "st.release.gpu.global.u32",
                                            "ld.acquire.gpu.global.u32", there + barrier + copy, "%rd4"));
    };
    EXPECT_EQ(passed(global, ""), "");
    EXPECT_EQ(passed("", global), "");
    EXPECT_TRUE(is_unfenced(passed("", "")));
  }
  EXPECT_EQ(found(shared + barrier + store + add, 1), "") << "the async proxy sees its own writes";
}

TEST_F(GlobalRaceTest, GridsComeOneAfterTheOther) {
  TestDevice device;
  const std::uint64_t in = device.upload(std::vector<std::uint32_t>(1024, 0));
  const std::uint64_t out = device.upload(std::vector<std::uint32_t>(1024, 0));
  const std::string body =
      places + std::string("  @%p2 ld.global.u32 %r1, [%rd3];\n  @%p2 st.global.u32 [%rd61], 5;\n");
  for (int launch = 0; launch < 3; ++launch) {
    EXPECT_EQ(findings_of(device.run(kernel_of(places + std::string("  @%p2 st.global.u32 [%rd2], 5;\n")),
                                     {.grid = {2, 1, 1}, .block = {32, 1, 1}}, {}, in, out)),
              "");
    EXPECT_EQ(findings_of(device.run(kernel_of(body), {.grid = {2, 1, 1}, .block = {32, 1, 1}}, {}, in, out)),
              "");
  }
}

TEST_F(GlobalRaceTest, IsToldWithBothPlaces) {
  TestDevice device;
  LaunchOptions options;
  options.threads = 1;
  const std::uint64_t in = device.upload(std::vector<std::uint32_t>(16, 0));
  const std::uint64_t out = device.upload(std::vector<std::uint32_t>(16, 0));
  const LaunchResult result = device.run(
      kernel_of(
          "  mov.u32 %r1, %ctaid.x;\n  setp.eq.u32 %p1, %r1, 1;\n  setp.eq.u32 %p2, %r60, 3;\n"
          "  and.pred %p1, %p1, %p2;\n  @%p1 ld.global.v2.u32 {%r2, %r3}, [%rd61+8];\n"
          "  setp.eq.u32 %p1, %r1, 0;\n  and.pred %p1, %p1, %p2;\n  @%p1 st.global.u32 [%rd61+12], 1;\n"),
      {.grid = {2, 1, 1}, .block = {32, 1, 1}}, options, in, out);
  ASSERT_EQ(result.findings.size(), 1u) << findings_of(result);
  const Finding& finding = result.findings[0];
  EXPECT_EQ(finding.kind, FindingKind::data_race);
  EXPECT_EQ(finding.block, (std::array<unsigned, 3>{1, 0, 0}));
  EXPECT_EQ(finding.lane, 3);
  EXPECT_NE(finding.message.find("reads 8 bytes of global memory"), std::string::npos) << finding.message;
  EXPECT_NE(finding.message.find("is byte 12 of the 64 bytes"), std::string::npos) << finding.message;
  EXPECT_NE(finding.message.find("to which parameter out points"), std::string::npos) << finding.message;
  EXPECT_NE(finding.message.find("block (0, 0, 0) warp 0 lane 3 wrote it with st.global.u32 at PTX line"),
            std::string::npos)
      << finding.message;
}

TEST_F(GlobalRaceTest, IsNotLookedForWhereNobodyAsks) {
  TestDevice device;
  LaunchOptions options;
  options.check_races = false;
  const std::uint64_t in = device.upload(std::vector<std::uint32_t>(1024, 0));
  const LaunchResult result = device.run(kernel_of(places + std::string("  st.global.u32 [%rd2], 3;\n")),
                                         {.grid = {2, 1, 1}, .block = {32, 1, 1}}, options, in, in);
  EXPECT_EQ(findings_of(result), "");
}

}  // namespace
}  // namespace jit::emulator::testing
