// Kernels that are wrong about shared memory, each with what is found, and beside it the kernel that is
// right.
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/ptx_run.h"
#include "tests/unit/async_ptx.h"

namespace jit::emulator::testing {
namespace {

constexpr char shared_buffer[] = ".shared .align 128 .b8 buffer[4096];\n";

// %r1: address of the thread's word, %r2: that of the thread 32 further (of 64), %r3: of the neighbor in the
// warp, %r4: 16 bytes for each thread.
constexpr char addresses[] = R"(
  mov.u32 %r0, buffer;
  shl.b32 %r1, %r60, 2;
  add.u32 %r1, %r1, %r0;
  xor.b32 %r2, %r60, 32;
  shl.b32 %r2, %r2, 2;
  add.u32 %r2, %r2, %r0;
  xor.b32 %r3, %r60, 1;
  shl.b32 %r3, %r3, 2;
  add.u32 %r3, %r3, %r0;
  shl.b32 %r4, %r60, 4;
  add.u32 %r4, %r4, %r0;
  mad.wide.u32 %rd1, %r60, 16, %rd60;
  setp.lt.u32 %p1, %r60, 32;
  setp.eq.u32 %p2, %r60, 0;
)";

class Races : public ::testing::Test {
 protected:
  // The kinds that are found under any of several seeds, by two warps.
  std::set<FindingKind> run(const std::string& body, const std::string& declarations = "") {
    std::set<FindingKind> kinds;
    all_ = {};
    const std::uint64_t in = device_.upload(std::vector<std::uint32_t>(1024, 5));
    const std::uint64_t out = device_.upload(std::vector<std::uint32_t>(1024, 0));
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      LaunchOptions options;
      options.seed = seed;
      options.step_limit = 100000;
      const LaunchResult result = device_.run(kernel_of(addresses + body, shared_buffer + declarations),
                                              {.block = {64, 1, 1}}, options, in, out);
      for (const Finding& finding : result.findings) kinds.insert(finding.kind);
      all_ += findings_of(result);
    }
    return kinds;
  }
  const std::string& all() const { return all_; }
  TestDevice& device() { return device_; }

 private:
  TestDevice device_;
  std::string all_;
};

using Kinds = std::set<FindingKind>;
constexpr auto race = FindingKind::data_race;

TEST_F(Races, BarrierBetweenWarpsIsMissing) {
  const std::string write = "st.shared.u32 [%r1], %r60;\n", read = "ld.shared.u32 %r5, [%r2];\n";
  EXPECT_EQ(run(write + "bar.sync 0;\n" + read), Kinds{}) << all();
  EXPECT_TRUE(run(write + read).contains(race)) << all();
  // And behind the read, before the next write.
  EXPECT_EQ(run(write + "bar.sync 0;\n" + read + write), Kinds{race}) << all();
  EXPECT_EQ(run(write + "bar.sync 0;\n" + read + "bar.sync 0;\n" + write), Kinds{}) << all();
}

TEST_F(Races, NamesBothSides) {
  const std::string body = R"(
  .loc 1 41 3
  st.shared.u32 [%r1], %r60;
  .loc 1 43 7
  ld.shared.u32 %r5, [%r2];
)";
  run(body);
  const std::uint64_t in = device().upload(std::vector<std::uint32_t>(1024, 5));
  const LaunchResult result =
      device().run(kernel_of(addresses + body, shared_buffer) + "\n.file 1 \"softmax.cuh\"\n",
                   {.block = {64, 1, 1}}, {}, in, in);
  const std::string text = findings_of(result);
  EXPECT_NE(text.find("softmax.cuh:41"), std::string::npos) << text;
  EXPECT_NE(text.find("softmax.cuh:43"), std::string::npos) << text;
  EXPECT_NE(text.find("st.shared.u32"), std::string::npos) << text;
  EXPECT_NE(text.find("warp 0 lane 0"), std::string::npos) << text;
  EXPECT_NE(text.find("warp 1 lane 0"), std::string::npos) << text;
}

TEST_F(Races, LanesOfOneWarpNeedToMeet) {
  const std::string write = "st.shared.u32 [%r1], %r60;\n", read = "ld.shared.u32 %r5, [%r3];\n";
  EXPECT_TRUE(run(write + read).contains(race)) << all();
  EXPECT_EQ(run(write + "bar.warp.sync 0xffffffff;\n" + read), Kinds{}) << all();
  // A thread sees what it did itself.
  EXPECT_EQ(run(write + "ld.shared.u32 %r5, [%r1];\n" + write), Kinds{}) << all();
}

TEST_F(Races, LdmatrixReadsForTheWholeWarp) {
  const std::string write = "st.shared.v4.b32 [%r4], {%r60, %r60, %r60, %r60};\n";
  const std::string read = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r5, %r6, %r7, %r8}, [%r4];\n";
  EXPECT_EQ(run(write + read), Kinds{race}) << all();
  EXPECT_EQ(run(write + "bar.warp.sync 0xffffffff;\n" + read), Kinds{}) << all();
  EXPECT_EQ(run(write + "bar.sync 0;\n" + read), Kinds{}) << all();
  EXPECT_EQ(run(write + "bar.sync 0;\n" + read + write), Kinds{})
      << "all lanes have read when ldmatrix is over" << all();
}

TEST_F(Races, StmatrixWritesForTheWholeWarp) {
  const std::string write = "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r4], {%r60, %r60, %r60, %r60};\n";
  const std::string read = "xor.b32 %r6, %r4, 512;\nld.shared.v4.u32 {%r5, %r7, %r8, %r9}, [%r6];\n";
  EXPECT_TRUE(run(write + read).contains(race)) << all();
  EXPECT_EQ(run(write + "bar.sync 0;\n" + read), Kinds{}) << all();
  // Each lane writes a part of the rows.
  const std::string own = "ld.shared.v4.u32 {%r5, %r7, %r8, %r9}, [%r4];\n";
  EXPECT_EQ(run(write + own), Kinds{race}) << all();
  EXPECT_EQ(run(write + "bar.warp.sync 0xffffffff;\n" + own), Kinds{}) << all();
  // Two rows at one place.
  EXPECT_EQ(run("and.b32 %r5, %r4, 0xffffff0f;\nstmatrix.sync.aligned.m8n8.x1.shared.b16 [%r5], {%r60};\n"),
            Kinds{race})
      << all();
}

TEST_F(Races, OfAtomicsWithPlainAccesses) {
  const std::string clear = "@%p2 st.shared.u32 [buffer], 0;\n",
                    add = "atom.shared.add.u32 %r5, [buffer], 1;\n";
  const std::string read = "ld.shared.u32 %r5, [buffer];\n", barrier = "bar.sync 0;\n";
  EXPECT_EQ(run(clear + barrier + add + barrier + read), Kinds{}) << all();
  EXPECT_TRUE(run(clear + add + barrier + read).contains(race)) << all();
  EXPECT_TRUE(run(clear + barrier + add + read).contains(race)) << all();
}

// Thread 0 writes data and sets a flag; thread 32 waits for the flag and reads.
std::string message_passing(const std::string& set, const std::string& get) {
  return R"(
  @%p2 st.shared.u32 [buffer+64], 0;
  bar.sync 0;
  setp.eq.u32 %p3, %r60, 32;
  @!%p2 bra receive;
  st.shared.u32 [buffer], 7;
)" + set +
         R"(
receive:
  @!%p3 bra done;
again:
)" + get +
         R"(
  setp.eq.u32 %p4, %r5, 0;
  @%p4 bra again;
  ld.shared.u32 %r6, [buffer];
done:
)";
}

TEST_F(Races, ReleaseAndAcquireOrder) {
  EXPECT_EQ(run(message_passing("st.release.cta.shared.u32 [buffer+64], 1;",
                                "ld.acquire.cta.shared.u32 %r5, [buffer+64];")),
            Kinds{})
      << all();
  EXPECT_EQ(run(message_passing("st.release.cta.shared.u32 [buffer+64], 1;",
                                "ld.relaxed.cta.shared.u32 %r5, [buffer+64];")),
            Kinds{race})
      << all();
  EXPECT_EQ(run(message_passing("st.relaxed.cta.shared.u32 [buffer+64], 1;",
                                "ld.acquire.cta.shared.u32 %r5, [buffer+64];")),
            Kinds{race})
      << all();
  EXPECT_EQ(run(message_passing("red.release.cta.shared.add.u32 [buffer+64], 1;",
                                "atom.acquire.cta.shared.or.b32 %r5, [buffer+64], 0;")),
            Kinds{})
      << all();
  EXPECT_EQ(
      run(message_passing("red.shared.add.u32 [buffer+64], 1;", "atom.shared.or.b32 %r5, [buffer+64], 0;")),
      Kinds{race})
      << all();
}

TEST_F(Races, FencesMakeRelaxedAccessesOrder) {
  const std::string set = "st.volatile.shared.u32 [buffer+64], 1;",
                    get = "ld.volatile.shared.u32 %r5, [buffer+64];";
  EXPECT_EQ(run(message_passing("membar.cta;\n" + set, get + "\nmembar.cta;")), Kinds{}) << all();
  EXPECT_EQ(run(message_passing("fence.acq_rel.cta;\n" + set, get + "\nfence.sc.cta;")), Kinds{}) << all();
  EXPECT_EQ(run(message_passing(set, get + "\nmembar.cta;")), Kinds{race}) << all();
  EXPECT_EQ(run(message_passing("membar.cta;\n" + set, get)), Kinds{race}) << all();
  EXPECT_EQ(run(message_passing(set + "\nmembar.cta;", get + "\nmembar.cta;")), Kinds{race})
      << "a fence too late" << all();
}

// Warp 0 writes a word by each lane, then releases at an mbarrier; warp 1 acquires there and reads them.
std::string through_mbarrier(int count, const std::string& release, const std::string& acquire) {
  return init_by_first("ready", count) + "  @!%p1 bra TAKE;\n  st.shared.u32 [%r1], %r60;\n" + release +
         "  bra DONE;\nTAKE:\n" + acquire + "  ld.shared.u32 %r5, [%r2];\nDONE:\n";
}
constexpr char ready[] = ".shared .align 8 .b64 ready;\n";
constexpr char arrive[] = "mbarrier.arrive.shared::cta.b64 _, [ready];\n";
constexpr char warp_sync[] = "bar.warp.sync 0xffffffff;\n";

TEST_F(Races, ALaneReleasesWhatItKnows) {
  const std::string by_first = std::string("@%p2 ") + arrive, wait = wait_for("ready", "0", "WAIT");
  EXPECT_EQ(run(through_mbarrier(1, by_first, wait), ready), Kinds{race})
      << "of one lane, not of 32" << all();
  EXPECT_NE(all().find("warp 0 lane 1 wrote"), std::string::npos) << all();
  EXPECT_EQ(run(through_mbarrier(1, warp_sync + by_first, wait), ready), Kinds{}) << all();
  EXPECT_EQ(run(through_mbarrier(1, by_first + warp_sync, wait), ready), Kinds{race}) << "too late" << all();
  EXPECT_EQ(run(through_mbarrier(32, arrive, wait), ready), Kinds{}) << "each for itself" << all();
  const std::string shuffle = "shfl.sync.idx.b32 %r6, %r60, 0, 31, 0xffffffff;\n";
  EXPECT_EQ(run(through_mbarrier(1, shuffle + by_first, wait), ready), Kinds{race}) << all();
  // Only some lanes: the others' words are not covered.
  const std::string some = "setp.lt.u32 %p3, %r60, 16;\n@%p3 bar.warp.sync 0xffff;\n";
  EXPECT_EQ(run(through_mbarrier(1, some + by_first, wait), ready), Kinds{race}) << all();
  EXPECT_NE(all().find("warp 0 lane 16 wrote"), std::string::npos) << all();
}

TEST_F(Races, ALaneAcquiresForItself) {
  const std::string release = std::string(warp_sync) + "@%p2 " + arrive;
  const std::string by_one =
      "setp.ne.u32 %p4, %r60, 40;\n@%p4 bra WAITED;\n" + wait_for("ready", "0", "WAIT") + "WAITED:\n";
  EXPECT_EQ(run(through_mbarrier(1, release, by_one), ready), Kinds{race}) << all();
  EXPECT_EQ(run(through_mbarrier(1, release, by_one + warp_sync), ready), Kinds{}) << all();
}

TEST_F(Races, AnOrderMayLeadThroughAnotherWarp) {
  // Lane 0 of warp 0 reads what its lane 1 wrote, and has learned of that from warp 1 alone.
  const std::string body = init_by_first("ready", 1) + init_by_first("back", 1) + R"(
  setp.eq.u32 %p3, %r60, 1;
  setp.eq.u32 %p4, %r60, 32;
  @%p3 st.shared.u32 [buffer], 7;
  @%p3 mbarrier.arrive.shared::cta.b64 _, [ready];
  @!%p4 bra PASSED;
)" + wait_for("ready", "0", "WAIT") +
                           R"(
  mbarrier.arrive.shared::cta.b64 _, [back];
PASSED:
  @!%p2 bra DONE;
)" + wait_for("back", "0", "WAIT2") +
                           "  ld.shared.u32 %r5, [buffer];\nDONE:\n";
  const std::string both = std::string(ready) + ".shared .align 8 .b64 back;\n";
  EXPECT_EQ(run(body, both), Kinds{}) << all();
  std::string relaxed = body;
  const std::string arrival = "mbarrier.arrive.shared::cta.b64 _, [back]";
  relaxed.replace(relaxed.find(arrival), arrival.size(),
                  "mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [back]");
  EXPECT_EQ(run(relaxed, both), Kinds{race}) << all();
}

TEST_F(Races, AFenceIsItsThreads) {
  // Lane 1 writes and lane 0 fences and sets the flag: nothing leads from the one to the other.
  const auto passed = [](const std::string& between) {
    return message_passing(between + "membar.cta;\nst.volatile.shared.u32 [buffer+64], 1;",
                           "ld.volatile.shared.u32 %r5, [buffer+64];\nmembar.cta;");
  };
  const std::string by_other = "setp.eq.u32 %p5, %r60, 1;\n@%p5 st.shared.u32 [buffer], 8;\n";
  const auto with_other = [&](const std::string& between) {
    std::string text = passed("");
    const std::string flag = "  @!%p2 bra receive;\n  st.shared.u32 [buffer], 7;\n";
    return text.replace(text.find(flag), flag.size(), by_other + between + "  @!%p2 bra receive;\n");
  };
  EXPECT_EQ(run(passed("")), Kinds{}) << all();
  EXPECT_EQ(run(with_other("")), Kinds{race}) << all();
  EXPECT_EQ(run(with_other("bar.warp.sync 0xffffffff;\n")), Kinds{}) << all();
}

TEST_F(Races, GenericAddressesAreWatchedToo) {
  const std::string convert =
      "cvt.u64.u32 %rd2, %r1;\ncvta.shared.u64 %rd2, %rd2;\ncvt.u64.u32 %rd3, %r2;\ncvta.shared.u64 %rd3, "
      "%rd3;\n";
  EXPECT_TRUE(run(convert + "st.u32 [%rd2], %r60;\nld.u32 %r5, [%rd3];\n").contains(race)) << all();
  EXPECT_EQ(run(convert + "st.u32 [%rd2], %r60;\nbar.sync 0;\nld.u32 %r5, [%rd3];\n"), Kinds{}) << all();
}

TEST_F(Races, TwoLanesWriteDifferentValues) {
  EXPECT_EQ(run("@%p1 st.shared.u32 [buffer], %r60;\n"), Kinds{race}) << all();
  EXPECT_EQ(run("@%p1 st.shared.u32 [buffer], 17;\n"), Kinds{}) << all();
  EXPECT_EQ(run("@%p1 st.shared.v4.u32 [buffer], {%r0, %r0, %r60, %r0};\n"), Kinds{race}) << all();
}

TEST_F(Races, CopiesNeedTheirWait) {
  const std::string copy = "cp.async.cg.shared.global [%r4], [%rd1], 16;\ncp.async.commit_group;\n";
  const std::string read = "ld.shared.u32 %r5, [%r4];\n", wait = "cp.async.wait_group 0;\n";
  EXPECT_EQ(run(copy + wait + read), Kinds{}) << all();
  EXPECT_EQ(run(copy + read + wait), Kinds{FindingKind::access_in_flight}) << all();
  EXPECT_NE(all().find("issued with cp.async.cg.shared.global"), std::string::npos) << all();
  EXPECT_EQ(run(copy + "cp.async.wait_group 1;\n" + read + wait), Kinds{FindingKind::access_in_flight})
      << all();
  // The wait is a thread's own: others learn of it by a barrier.
  const std::string other = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r5, %r6, %r7, %r8}, [%r4];\n";
  EXPECT_EQ(run(copy + wait + other), Kinds{race}) << all();
  EXPECT_EQ(run(copy + wait + "bar.sync 0;\n" + other), Kinds{}) << all();
  EXPECT_TRUE(run(copy + "bar.sync 0;\n" + wait + other).contains(race)) << all();
}

TEST_F(Races, ABufferMustBeReadBeforeTheNextCopyIntoIt) {
  const std::string copy = "cp.async.cg.shared.global [%r4], [%rd1], 16;\ncp.async.commit_group;\n";
  const std::string wait = "cp.async.wait_group 0;\nbar.sync 0;\n";
  const std::string read = "xor.b32 %r5, %r4, 512;\nld.shared.v4.u32 {%r6, %r7, %r8, %r9}, [%r5];\n";
  EXPECT_TRUE(run(copy + wait + read + copy + wait).contains(race)) << all();
  EXPECT_EQ(run(copy + wait + read + "bar.sync 0;\n" + copy + wait), Kinds{}) << all();
}

TEST_F(Races, CopiesThatNobodyWaitsFor) {
  const std::string copy = "cp.async.ca.shared.global [%r4], [%rd1], 4;\n";
  EXPECT_EQ(run(copy), Kinds{FindingKind::unfinished_copy}) << all();
  EXPECT_EQ(run(copy + "cp.async.wait_group 0;\n"), Kinds{FindingKind::unfinished_copy})
      << "not committed" << all();
  EXPECT_EQ(run(copy + "cp.async.wait_all;\n"), Kinds{}) << all();
}

// A bulk copy from shared to global memory by thread 0, which reads through the async proxy.
const std::string bulk_store =
    "@%p2 cp.async.bulk.global.shared::cta.bulk_group [%rd61], [%r0], 1024;\n@%p2 "
    "cp.async.bulk.commit_group;\n";
const std::string bulk_wait = "@%p2 cp.async.bulk.wait_group.read 0;\n";
const std::string fill = "st.shared.v4.b32 [%r4], {%r60, %r60, %r60, %r60};\n";

TEST_F(Races, TheAsyncProxyNeedsItsFence) {
  EXPECT_EQ(run(fill + "fence.proxy.async;\nbar.sync 0;\n" + bulk_store + bulk_wait), Kinds{}) << all();
  EXPECT_EQ(run(fill + "fence.proxy.async.shared::cta;\nbar.sync 0;\n" + bulk_store + bulk_wait), Kinds{})
      << all();
  EXPECT_EQ(run(fill + "bar.sync 0;\nfence.proxy.async;\n" + bulk_store + bulk_wait), Kinds{}) << all();
  EXPECT_EQ(run(fill + "bar.sync 0;\n" + bulk_store + bulk_wait), Kinds{FindingKind::missing_proxy_fence})
      << all();
  EXPECT_EQ(run("fence.proxy.async;\n" + fill + "bar.sync 0;\n" + bulk_store + bulk_wait),
            Kinds{FindingKind::missing_proxy_fence})
      << all();
  EXPECT_EQ(run(fill + "fence.proxy.async.global;\nbar.sync 0;\n" + bulk_store + bulk_wait),
            Kinds{FindingKind::missing_proxy_fence})
      << all();
  EXPECT_TRUE(run(fill + "fence.proxy.async;\n" + bulk_store + bulk_wait).contains(race)) << all();
}

TEST_F(Races, TheAsyncProxyWritesBehindItsFence) {
  const std::string load =
      "@%p2 mbarrier.arrive.expect_tx.shared::cta.b64 _, [ready], 1024;\n"
      "@%p2 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r0], [%rd60], 1024, "
      "[ready];\n" +
      wait_for("ready", "0", "LOADED");
  const std::string begin = init_by_first("ready", 1) + fill;
  const std::string ready = ".shared .align 8 .b64 ready;\n";
  EXPECT_EQ(run(begin + "fence.proxy.async.shared::cta;\nbar.sync 0;\n" + load, ready), Kinds{}) << all();
  EXPECT_EQ(run(begin + "bar.sync 0;\n" + load, ready), Kinds{FindingKind::missing_proxy_fence}) << all();
}

TEST_F(Races, AProxyFenceIsItsThreads) {
  const std::string write =
      "@%p1 stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r4], {%r60, %r60, %r60, %r60};\n";
  const std::string store =
      "@%p2 cp.async.bulk.global.shared::cta.bulk_group [%rd61], [%r0], 512;\n@%p2 "
      "cp.async.bulk.commit_group;\n" +
      bulk_wait;
  const std::string fence = "fence.proxy.async.shared::cta;\n", by_first = "@%p2 " + fence;
  EXPECT_EQ(run(write + fence + warp_sync + store), Kinds{}) << all();
  EXPECT_EQ(run(write + warp_sync + by_first + store), Kinds{}) << "it knows what the others wrote" << all();
  EXPECT_EQ(run(write + by_first + warp_sync + store), Kinds{FindingKind::missing_proxy_fence}) << all();
  EXPECT_EQ(run(write + fence + store), Kinds{race}) << "lane 0 does not know of the others" << all();
}

TEST_F(Races, CopiesSeeAnMbarrierBehindItsFence) {
  const auto load = [](const std::string& fence) {
    return "@%p2 mbarrier.init.shared::cta.b64 [ready], 1;\n" + fence + R"(
  bar.sync 0;
  @!%p2 bra WAIT;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [ready], 64;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [buffer], [%rd60], 64, [ready];
)" + wait_for("ready", "0", "WAIT");
  };
  const Kinds missing{FindingKind::missing_proxy_fence};
  EXPECT_EQ(run(load("@%p2 fence.mbarrier_init.release.cluster;\n"), ready), Kinds{}) << all();
  EXPECT_EQ(run(load("@%p2 fence.proxy.async.shared::cta;\n"), ready), Kinds{}) << all();
  EXPECT_EQ(run(load(""), ready), missing) << all();
  EXPECT_NE(all().find("fence.mbarrier_init"), std::string::npos) << all();
  EXPECT_EQ(run(load("@!%p2 fence.mbarrier_init.release.cluster;\n"), ready), missing)
      << "by the others" << all();
}

TEST_F(Races, WritesBehindAnAsyncReadWaitForIt) {
  const std::string begin = fill + "fence.proxy.async;\nbar.sync 0;\n" + bulk_store;
  // By the warp that issued it, and by the other.
  EXPECT_EQ(run(begin + "@%p1 " + fill + bulk_wait), Kinds{race}) << all();
  EXPECT_EQ(run(begin + "bar.sync 0;\n@!%p1 " + fill + bulk_wait), Kinds{race}) << all();
  EXPECT_EQ(run(begin + bulk_wait + "bar.sync 0;\n" + fill), Kinds{}) << all();
}

TEST_F(Races, MbarriersAreNoPlainMemory) {
  const std::string barrier = ".shared .align 8 .b64 ready;\n";
  EXPECT_EQ(run(init_by_first("ready", 1) + "@%p2 ld.shared.u64 %rd5, [ready];\n", barrier),
            Kinds{FindingKind::barrier_misuse})
      << all();
  EXPECT_EQ(run(init_by_first("ready", 1), barrier), Kinds{}) << all();
}

TEST_F(Races, ReadsOfWhatNobodyWrote) {
  EXPECT_EQ(run("ld.shared.u32 %r5, [%r1];\n"), Kinds{FindingKind::uninitialized_shared_read}) << all();
  EXPECT_EQ(run("st.shared.u16 [%r1], %h0;\nld.shared.u32 %r5, [%r1];\n"),
            Kinds{FindingKind::uninitialized_shared_read})
      << all();
  EXPECT_EQ(run("st.shared.u32 [%r1], 0;\nld.shared.u8 %r5, [%r1+3];\n"), Kinds{}) << all();
}

TEST_F(Races, OutOfBoundsAndMisaligned) {
  EXPECT_EQ(run("ld.shared.u32 %r5, [%r1+4096];\n"), Kinds{FindingKind::out_of_bounds}) << all();
  EXPECT_EQ(run("mov.u32 %r5, 0;\nld.shared.u32 %r5, [%r5];\n"), Kinds{FindingKind::out_of_bounds}) << all();
  EXPECT_EQ(run("st.shared.u32 [buffer+33554432], 0;\n"), Kinds{FindingKind::out_of_bounds})
      << "block 1 of a cluster" << all();
  EXPECT_EQ(run("st.shared.u32 [%r1+2], 0;\n"), Kinds{FindingKind::misaligned}) << all();
  EXPECT_EQ(run("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r5}, [%r1];\n"), Kinds{FindingKind::misaligned})
      << all();
  EXPECT_EQ(run("cp.async.cg.shared.global [%r1], [%rd1], 16;\n"), Kinds{FindingKind::misaligned}) << all();
}

TEST_F(Races, AreNotLookedForWhenNobodyAsks) {
  const std::uint64_t in = device().upload(std::vector<std::uint32_t>(1024, 5));
  LaunchOptions options;
  options.check_races = false;
  const std::string body = std::string(addresses) + "st.shared.u32 [%r1], %r60;\nld.shared.u32 %r5, [%r2];\n";
  const LaunchResult result =
      device().run(kernel_of(body, shared_buffer), {.block = {64, 1, 1}}, options, in, in);
  EXPECT_EQ(findings_of(result), "");
}

}  // namespace
}  // namespace jit::emulator::testing
