// Clusters: distributed shared memory, arrivals at mbarriers of other blocks, multicast.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/ptx_run.h"
#include "tests/unit/async_ptx.h"

namespace jit::emulator::testing {
namespace {

constexpr const char* declarations = ".shared .align 8 .b64 bar;\n.shared .align 128 .b8 buf[4096];\n";

struct Outcome {
  LaunchResult result;
  std::vector<std::uint32_t> out;
};

/// A grid of two clusters of four blocks with 32 threads. %r61 is the rank, %r62 the block's number; word i
/// of `in` is i, `out` has 32 words for each block.
Outcome run(const std::string& body, std::uint64_t seed = 0) {
  TestDevice device;
  std::vector<std::uint32_t> numbers(1024);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::uint32_t>(i);
  const std::uint64_t in = device.upload(numbers);
  const std::uint64_t out = device.upload(std::vector<std::uint32_t>(256, 9));
  LaunchOptions options;
  options.seed = seed;
  options.threads = 2;
  const LaunchShape shape = {.grid = {8, 1, 1}, .block = {32, 1, 1}, .cluster = {4, 1, 1}};
  LaunchResult result =
      device.run(kernel_of("  mov.u32 %r61, %cluster_ctarank;\n  mov.u32 %r62, %ctaid.x;\n"
                           "  mov.u32 %r1, buf;\n  mov.u32 %r2, bar;\n  setp.eq.u32 %p1, %r60, 0;\n" +
                               body,
                           declarations),
                 shape, options, in, out);
  return {std::move(result), device.download<std::uint32_t>(out, 256)};
}

const std::string cluster_sync = "  barrier.cluster.arrive.aligned;\n  barrier.cluster.wait.aligned;\n";

std::string init(int count) {
  return "  @%p1 mbarrier.init.shared::cta.b64 [%r2], " + std::to_string(count) +
         ";\n  fence.mbarrier_init.release.cluster;\n" + cluster_sync;
}

// Stores %r9 as the thread's word of the block.
const std::string store_result = R"(
  shl.b32 %r58, %r62, 5;
  add.u32 %r58, %r58, %r60;
  mul.wide.u32 %rd58, %r58, 4;
  add.u64 %rd58, %rd58, %rd61;
  st.global.u32 [%rd58], %r9;
)";

// The rank after this one.
const std::string next_rank = "  add.u32 %r3, %r61, 1;\n  and.b32 %r3, %r3, 3;\n";

TEST(Cluster, StoresToSharedMemoryOfTheNextBlock) {
  const std::string body = next_rank + R"(
  mapa.shared::cluster.u32 %r4, %r1, %r3;
  shl.b32 %r5, %r60, 2;
  add.u32 %r4, %r4, %r5;
  mul.lo.u32 %r6, %r62, 100;
  add.u32 %r6, %r6, %r60;
  FIRST
  st.shared::cluster.u32 [%r4], %r6;
  SYNC
  add.u32 %r7, %r1, %r5;
  ld.shared.u32 %r9, [%r7];
)" + store_result + cluster_sync;
  const auto with = [&](const std::string& sync, std::uint64_t seed) {
    std::string text = body;
    text.replace(text.find("FIRST"), 5, cluster_sync);
    text.replace(text.find("SYNC"), 4, sync);
    return run(text, seed);
  };
  bool is_found = false;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const Outcome outcome = with(cluster_sync, seed);
    EXPECT_EQ(findings_of(outcome.result), "");
    for (std::uint32_t block = 0; block < 8; ++block) {
      const std::uint32_t from = block / 4 * 4 + (block + 3) % 4;
      for (std::uint32_t i = 0; i < 32; ++i) EXPECT_EQ(outcome.out[block * 32 + i], from * 100 + i);
    }
    is_found |= !with("bar.sync 0;", seed).result.findings.empty();
  }
  EXPECT_TRUE(is_found);
}

// As silicon has it: the rank in bits 24 and up, also of addresses of the own block.
TEST(Cluster, AddressesHoldTheRank) {
  const Outcome outcome = run(R"(
  getctarank.shared::cluster.u32 %r3, %r1;
  shr.u32 %r4, %r1, 24;
  mapa.shared::cluster.u32 %r5, %r1, 0;
  and.b32 %r6, %r1, 0xfcffffff;
  sub.u32 %r7, %r5, %r6;
  cvt.u64.u32 %rd2, %r1;
  cvta.shared.u64 %rd3, %rd2;
  isspacep.shared::cta %p2, %rd3;
  selp.u32 %r8, 1, 0, %p2;
  shl.b32 %r4, %r4, 4;
  shl.b32 %r8, %r8, 8;
  or.b32 %r9, %r3, %r4;
  or.b32 %r9, %r9, %r8;
  add.u32 %r9, %r9, %r7;
)" + store_result);
  EXPECT_EQ(findings_of(outcome.result), "");
  for (std::uint32_t block = 0; block < 8; ++block)
    EXPECT_EQ(outcome.out[block * 32], block % 4 * 0x11 + 0x100);
}

TEST(Cluster, RemoteArrivalsReleaseStores) {
  const std::string body = init(32) + next_rank + R"(
  mapa.shared::cluster.u32 %r4, %r1, %r3;
  mapa.shared::cluster.u32 %r8, %r2, %r3;
  shl.b32 %r5, %r60, 2;
  add.u32 %r4, %r4, %r5;
  add.u32 %r6, %r62, %r60;
  st.shared::cluster.u32 [%r4], %r6;
  mbarrier.arrive.ORDER.cluster.shared::cluster.b64 _, [%r8];
WAIT:
  mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [%r2], 0;
  @!%p2 bra WAIT;
  add.u32 %r7, %r1, %r5;
  ld.shared.u32 %r9, [%r7];
)" + store_result + cluster_sync;
  const auto with = [&](const std::string& order, std::uint64_t seed) {
    std::string text = body;
    text.replace(text.find("ORDER"), 5, order);
    return run(text, seed);
  };
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const Outcome outcome = with("release", seed);
    EXPECT_EQ(findings_of(outcome.result), "");
    for (std::uint32_t block = 0; block < 8; ++block) {
      const std::uint32_t from = block / 4 * 4 + (block + 3) % 4;
      for (std::uint32_t i = 0; i < 32; ++i) EXPECT_EQ(outcome.out[block * 32 + i], from + i);
    }
  }
  EXPECT_TRUE(has_finding(with("relaxed", 0).result, FindingKind::data_race));
}

TEST(Cluster, RelaxedBarrierNeedsTheFenceOfMbarrierInit) {
  const std::string body = R"(
  @%p1 mbarrier.init.shared::cta.b64 [%r2], 32;
  FENCE
  barrier.cluster.arrive.relaxed.aligned;
  barrier.cluster.wait.aligned;
)" + next_rank + R"(
  mapa.shared::cluster.u32 %r8, %r2, %r3;
  bar.warp.sync 0xffffffff;
  mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r8];
)" + wait_for("%r2", "0", "WAIT") +
                           cluster_sync;
  const auto with = [&](const std::string& fence) {
    std::string text = body;
    text.replace(text.find("FENCE"), 5, fence);
    return run(text);
  };
  EXPECT_EQ(findings_of(with("@%p1 fence.mbarrier_init.release.cluster;").result), "");
  EXPECT_TRUE(has_finding(with("").result, FindingKind::data_race));
}

// Who arrives and does not wait knows nothing of the others' mbarriers, however early they were there.
TEST(Cluster, ArrivingIsNotWaiting) {
  const std::string begin = R"(
  @%p1 mbarrier.init.shared::cta.b64 [%r2], 1;
  @%p1 fence.mbarrier_init.release.cluster;
  barrier.cluster.arrive.relaxed.aligned;
)";
  const std::string pause = R"(
  mov.u32 %r9, 0;
PAUSE:
  nanosleep.u32 100;
  add.u32 %r9, %r9, 1;
  setp.lt.u32 %p2, %r9, 100;
  @%p2 bra PAUSE;
)";
  const std::string wait = "  barrier.cluster.wait.aligned;\n", send = next_rank + R"(
  mapa.shared::cluster.u32 %r4, %r1, %r3;
  mapa.shared::cluster.u32 %r8, %r2, %r3;
  @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 4;
  @%p1 st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r4], %r3, [%r8];
)" + wait_for("%r2", "0", "WAIT");
  bool is_race = false;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    EXPECT_EQ(findings_of(run(begin + wait + send, seed).result), "");
    const Outcome outcome = run(begin + pause + send + wait, seed);  // some mbarriers may not be there yet
    EXPECT_NE(findings_of(outcome.result), "");
    is_race |= has_finding(outcome.result, FindingKind::data_race);
  }
  EXPECT_TRUE(is_race);
}

TEST(Cluster, MbarrierOfAnotherBlockNeedsTheClusterBarrier) {
  std::string body = init(32) + next_rank + R"(
  mapa.shared::cluster.u32 %r8, %r2, %r3;
  mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r8];
)" + wait_for("%r2", "0", "WAIT") +
                     cluster_sync;
  EXPECT_EQ(findings_of(run(body).result), "");
  body.replace(body.find(cluster_sync), cluster_sync.size(), "  bar.sync 0;\n");
  bool is_found = false;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const Outcome outcome = run(body, seed);
    is_found |= has_finding(outcome.result, FindingKind::data_race) ||
                has_finding(outcome.result, FindingKind::barrier_misuse);
  }
  EXPECT_TRUE(is_found);
}

TEST(Cluster, WaitingForTheMbarrierOfAnotherBlockIsMisuse) {
  const Outcome outcome = run(init(1) + next_rank + R"(
  mapa.shared::cluster.u32 %r8, %r2, %r3;
  mbarrier.test_wait.parity.shared::cta.b64 %p2, [%r8], 1;
)" + cluster_sync);
  EXPECT_TRUE(has_finding(outcome.result, FindingKind::barrier_misuse)) << findings_of(outcome.result);
}

// Each block loads a quarter and sends it to all four.
std::string multicast(const std::string& mask, const std::string& end) {
  return init(1) + R"(
  shl.b32 %r3, %r61, 7;
  add.u32 %r4, %r1, %r3;
  mul.wide.u32 %rd1, %r61, 128;
  add.u64 %rd1, %rd1, %rd60;
  mov.u16 %h1, )" +
         mask + R"(;
  @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 512;
  @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r4], [%rd1], 128, [%r2], %h1;
)" + end;
}

TEST(Cluster, MulticastReachesEveryBlock) {
  const std::string read = wait_for("%r2", "0", "WAIT") + R"(
  mul.lo.u32 %r5, %r60, 16;
  add.u32 %r5, %r5, %r1;
  ld.shared.u32 %r9, [%r5+8];
)" + store_result + cluster_sync;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const Outcome outcome = run(multicast("15", read), seed);
    EXPECT_EQ(findings_of(outcome.result), "");
    for (std::uint32_t i = 0; i < 256; ++i) EXPECT_EQ(outcome.out[i], 4 * (i % 32) + 2);
  }
}

TEST(Cluster, MulticastMustNameBlocksOfTheCluster) {
  const Outcome outcome = run(multicast("31", wait_for("%r2", "0", "WAIT") + cluster_sync));
  EXPECT_NE(message_of(outcome.result, FindingKind::illegal_instruction).find("4 blocks"), std::string::npos)
      << findings_of(outcome.result);
}

TEST(Cluster, MulticastToSomeLeavesTheOthersShort) {
  const Outcome outcome = run(multicast("7", wait_for("%r2", "0", "WAIT") + cluster_sync));
  EXPECT_NE(message_of(outcome.result, FindingKind::wrong_transaction_count).find("lacks 512 of the bytes"),
            std::string::npos)
      << findings_of(outcome.result);
}

TEST(Cluster, BlockMustNotExitBeforeMulticastsToIt) {
  // Rank 3 does not wait for what the others send.
  const Outcome outcome = run(multicast(
      "15", "  setp.eq.u32 %p2, %r61, 3;\n  @%p2 bra END;\n" + wait_for("%r2", "0", "WAIT") + "END:\n"));
  EXPECT_TRUE(has_finding(outcome.result, FindingKind::unfinished_copy)) << findings_of(outcome.result);
}

TEST(Cluster, CopiesAndReducesBetweenSharedMemories) {
  const std::string body = init(1) + next_rank + R"(
  shl.b32 %r5, %r60, 2;
  add.u32 %r6, %r1, %r5;
  add.u32 %r7, %r62, %r60;
  st.shared.u32 [%r6], %r7;
  st.shared.u32 [%r6+1024], %r60;
  fence.proxy.async.shared::cta;
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
  mapa.shared::cluster.u32 %r10, %r1, %r3;
  mapa.shared::cluster.u32 %r11, %r2, %r3;
  @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 256;
  @%p1 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r10+512], [%r1], 128, [%r11];
  @%p1 cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 [%r10+1024], [%r1], 128, [%r11];
)" + wait_for("%r2", "0", "WAIT") +
                           R"(
  ld.shared.u32 %r12, [%r6+512];
  ld.shared.u32 %r13, [%r6+1024];
  shl.b32 %r9, %r13, 16;
  or.b32 %r9, %r9, %r12;
)" + store_result + cluster_sync;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const Outcome outcome = run(body, seed);
    EXPECT_EQ(findings_of(outcome.result), "");
    for (std::uint32_t block = 0; block < 8; ++block) {
      const std::uint32_t from = block / 4 * 4 + (block + 3) % 4;
      for (std::uint32_t i = 0; i < 32; ++i) {
        EXPECT_EQ(outcome.out[block * 32 + i], (from + i) | (from + 2 * i) << 16);
      }
    }
  }
}

TEST(Cluster, SourceOfACopyMustNotChangeBeforeItIsDone) {
  const std::string body = init(1) + next_rank + R"(
  shl.b32 %r5, %r60, 2;
  add.u32 %r6, %r1, %r5;
  st.shared.u32 [%r6], %r60;
  fence.proxy.async.shared::cta;
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
  mapa.shared::cluster.u32 %r10, %r1, %r3;
  mapa.shared::cluster.u32 %r11, %r2, %r3;
  @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 128;
  @%p1 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r10+512], [%r1], 128, [%r11];
)" + wait_for("%r2", "0", "WAIT") +
                           "  SYNC\n  st.shared.u32 [%r6], 1;\n" + cluster_sync;
  const auto with = [&](const std::string& sync, std::uint64_t seed) {
    std::string text = body;
    text.replace(text.find("SYNC"), 4, sync);
    return run(text, seed).result;
  };
  // The own mbarrier tells of the bytes that came, not of those that went.
  bool is_found = false;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    EXPECT_EQ(findings_of(with(cluster_sync, seed)), "");
    is_found |= has_finding(with("", seed), FindingKind::data_race);
  }
  EXPECT_TRUE(is_found);
}

TEST(Cluster, DestinationAndMbarrierMustBeInOneBlock) {
  const Outcome outcome = run(init(1) + next_rank + R"(
  mapa.shared::cluster.u32 %r10, %r1, %r3;
  @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r10], [%rd60], 128, [%r2];
)" + cluster_sync);
  EXPECT_NE(message_of(outcome.result, FindingKind::barrier_misuse).find("both must be in the same"),
            std::string::npos)
      << findings_of(outcome.result);
}

}  // namespace
}  // namespace jit::emulator::testing
