// Bulk copies of bytes side by side, bulk groups and reductions.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <ostream>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/support/ptx_run.h"
#include "tests/unit/async_ptx.h"

namespace jit::emulator::testing {
namespace {

constexpr const char* buffers = ".shared .align 8 .b64 bar;\n.shared .align 128 .b8 buf[8192];\n";

LaunchOptions seeded(std::uint64_t seed) {
  LaunchOptions options;
  options.seed = seed;
  options.threads = 1;
  return options;
}

LaunchShape threads(unsigned count) { return {.grid = {1, 1, 1}, .block = {count, 1, 1}}; }

std::vector<std::uint32_t> numbers(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::uint32_t> values(count);
  for (std::uint32_t& value : values) value = random();
  return values;
}

struct Outcome {
  LaunchResult result;
  std::vector<std::uint32_t> out;
};

/// Runs a body over 2048 random words in, and as many of value 9 out.
Outcome run(const std::string& body, unsigned block = 64, std::uint64_t seed = 0) {
  TestDevice device;
  const std::uint64_t in = device.upload(numbers(2048, 3));
  const std::uint64_t out = device.upload(std::vector<std::uint32_t>(2048, 9));
  LaunchResult result = device.run(kernel_of(body, buffers), threads(block), seeded(seed), in, out);
  return {std::move(result), device.download<std::uint32_t>(out, 2048)};
}

void expect_only(const Outcome& outcome, FindingKind kind, const std::string& says) {
  ASSERT_EQ(outcome.result.findings.size(), 1u) << findings_of(outcome.result);
  EXPECT_EQ(outcome.result.findings[0].kind, kind) << findings_of(outcome.result);
  EXPECT_NE(outcome.result.findings[0].message.find(says), std::string::npos)
      << outcome.result.findings[0].message;
}

const std::string load_by_first = init_by_first("bar", 1) + R"(
  mov.u32 %r1, buf;
  mov.u32 %r2, bar;
  setp.eq.u32 %p1, %r60, 0;
  @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 8192;
  @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd60], 4096, [%r2];
  @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1+4096], [%rd60+4096], 4096, [%r2];
)";

// Each of 64 threads adds 1 to its words.
const std::string add_one = R"(
  shl.b32 %r3, %r60, 2;
  add.u32 %r3, %r3, %r1;
  mov.u32 %r4, 0;
ADD:
  ld.shared.u32 %r5, [%r3];
  add.u32 %r5, %r5, 1;
  st.shared.u32 [%r3], %r5;
  add.u32 %r3, %r3, 256;
  add.u32 %r4, %r4, 1;
  setp.lt.u32 %p2, %r4, 32;
  @%p2 bra ADD;
)";

const std::string store_by_first = R"(
  @%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd61], [%r1], 8192;
  @%p1 cp.async.bulk.commit_group;
  @%p1 cp.async.bulk.wait_group.read 0;
)";

const std::string fenced = "  fence.proxy.async.shared::cta;\n  bar.sync 0;\n";

TEST(Bulk, LoadsAndStores) {
  const std::vector<std::uint32_t> in = numbers(2048, 3);
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const Outcome outcome =
        run(load_by_first + wait_for("%r2", "0", "WAIT") + add_one + fenced + store_by_first, 64, seed);
    EXPECT_EQ(findings_of(outcome.result), "");
    for (std::size_t i = 0; i < in.size(); ++i) ASSERT_EQ(outcome.out[i], in[i] + 1) << i;
  }
}

TEST(Bulk, BytesAreCounted) {
  const Outcome outcome = run(load_by_first + wait_for("%r2", "0", "WAIT") + fenced + store_by_first);
  InstructionCounts sum;
  for (const InstructionCounts& count : outcome.result.counts) sum += count;
  EXPECT_EQ(sum.global_read_bytes, 8192u);
  EXPECT_EQ(sum.global_write_bytes, 8192u);
  EXPECT_EQ(sum.shared_read_bytes, 8192u);
  EXPECT_EQ(sum.shared_write_bytes, 8192u + 8u);
}

TEST(Bulk, ReadingBeforeTheWaitIsFound) {
  const Outcome outcome =
      run(load_by_first + "  ld.shared.u32 %r5, [%r1+512];\n" + wait_for("%r2", "0", "WAIT"));
  EXPECT_TRUE(has_finding(outcome.result, FindingKind::access_in_flight)) << findings_of(outcome.result);
}

TEST(Bulk, WaitingForTheWrongParityIsFound) {
  const Outcome outcome =
      run(load_by_first + wait_for("%r2", "1", "WAIT") + "  ld.shared.u32 %r5, [%r1+512];\n");
  EXPECT_TRUE(has_finding(outcome.result, FindingKind::access_in_flight)) << findings_of(outcome.result);
}

TEST(Bulk, StoringWhatWasWrittenWithoutProxyFenceIsFound) {
  const Outcome outcome =
      run(load_by_first + wait_for("%r2", "0", "WAIT") + add_one + "  bar.sync 0;\n" + store_by_first);
  EXPECT_TRUE(has_finding(outcome.result, FindingKind::missing_proxy_fence)) << findings_of(outcome.result);
}

TEST(Bulk, LoadingOverWhatOthersReadIsARace) {
  const std::string read = "  ld.shared.u32 %r5, [%r1+256];\n";
  const std::string again = R"(
  setp.eq.u32 %p1, %r60, 0;
  @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 4096;
  @%p1 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%rd60], 4096, [%r2];
)" + wait_for("%r2", "1", "AGAIN");
  EXPECT_EQ(findings_of(
                run(load_by_first + wait_for("%r2", "0", "WAIT") + read + "  bar.sync 0;\n" + again).result),
            "");
  bool is_found = false;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const Outcome outcome = run(load_by_first + wait_for("%r2", "0", "WAIT") + read + again, 64, seed);
    is_found |= has_finding(outcome.result, FindingKind::data_race);
  }
  EXPECT_TRUE(is_found);
}

TEST(Bulk, TwoCopiesToTheSameBytesAreFound) {
  std::string body = load_by_first + wait_for("%r2", "0", "WAIT");
  body.replace(body.find("[%r1+4096]"), 10, "[%r1+2048]");
  const Outcome outcome = run(body);
  EXPECT_TRUE(has_finding(outcome.result, FindingKind::access_in_flight)) << findings_of(outcome.result);
}

TEST(Bulk, ExitBeforeALoadIsDoneIsFound) {
  const Outcome outcome = run(load_by_first);
  ASSERT_EQ(outcome.result.findings.size(), 2u) << "one for each copy";
  EXPECT_NE(message_of(outcome.result, FindingKind::unfinished_copy).find("nobody waited for the mbarrier"),
            std::string::npos)
      << findings_of(outcome.result);
}

TEST(Bulk, WrongByteCountsAreFound) {
  const auto with = [](const char* bytes) {
    std::string body = load_by_first + wait_for("%r2", "0", "WAIT");
    body.replace(body.find("8192"), 4, bytes);
    return run(body);
  };
  const Outcome more = with("9216");
  EXPECT_NE(message_of(more.result, FindingKind::wrong_transaction_count).find("lacks 1024 of the bytes"),
            std::string::npos)
      << findings_of(more.result);
  EXPECT_TRUE(has_finding(more.result, FindingKind::deadlock));
  const Outcome less = with("4096");
  EXPECT_FALSE(less.result.findings.empty());
}

// The source of a store is read as late as the wait allows, and written later still.

const std::string fill = R"(
  mov.u32 %r1, buf;
  shl.b32 %r3, %r60, 2;
  add.u32 %r4, %r3, %r1;
  setp.eq.u32 %p1, %r60, 0;
  st.shared.u32 [%r4], %r60;
  fence.proxy.async.shared::cta;
  bar.sync 0;
  @%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd61], [%r1], 256;
)";

TEST(Bulk, OverwritingBeforeTheReadWaitIsARace) {
  const std::string commit = "  @%p1 cp.async.bulk.commit_group;\n";
  const std::string wait = "  @%p1 cp.async.bulk.wait_group.read 0;\n";
  const std::string overwrite = "  bar.sync 0;\n  st.shared.u32 [%r4], 1;\n";
  const Outcome good = run(fill + commit + wait + overwrite);
  EXPECT_EQ(findings_of(good.result), "");
  for (std::uint32_t i = 0; i < 64; ++i) EXPECT_EQ(good.out[i], i);
  const Outcome bad = run(fill + commit + overwrite + wait);
  EXPECT_TRUE(has_finding(bad.result, FindingKind::data_race)) << findings_of(bad.result);
  const Outcome without_barrier = run(fill + commit + wait + "  st.shared.u32 [%r4], 1;\n");
  EXPECT_TRUE(has_finding(without_barrier.result, FindingKind::data_race))
      << findings_of(without_barrier.result);
  const Outcome by_itself = run(fill + commit + "  @%p1 st.shared.u32 [%r4], 1;\n" + wait);
  EXPECT_TRUE(has_finding(by_itself.result, FindingKind::data_race)) << findings_of(by_itself.result);
}

TEST(Bulk, ExitBeforeTheReadWaitIsFound) {
  expect_only(run(fill), FindingKind::unfinished_copy, "256 bytes");
  expect_only(run(fill + "  @%p1 cp.async.bulk.commit_group;\n"), FindingKind::unfinished_copy, "256 bytes");
  // A wait without commit waits for nothing.
  expect_only(run(fill + "  @%p1 cp.async.bulk.wait_group 0;\n"), FindingKind::unfinished_copy, "256 bytes");
  // Groups belong to the thread that issued them.
  expect_only(run(fill + "  cp.async.bulk.commit_group;\n  @!%p1 cp.async.bulk.wait_group 0;\n"),
              FindingKind::unfinished_copy, "256 bytes");
}

TEST(Bulk, GlobalMemoryChangesWithTheFullWaitOnly) {
  const std::string look = "  @%p1 ld.global.u32 %r8, [%rd61+4];\n  @%p1 st.global.u32 [%rd61+4096], %r8;\n";
  const Outcome reads =
      run(fill + "  @%p1 cp.async.bulk.commit_group;\n  @%p1 cp.async.bulk.wait_group.read 0;\n" + look);
  expect_only(reads, FindingKind::data_race, "nothing orders the two");
  EXPECT_EQ(reads.out[1024], 9u);
  EXPECT_EQ(reads.out[1], 1u) << "written by the end of the grid";
  const Outcome full =
      run(fill + "  @%p1 cp.async.bulk.commit_group;\n  @%p1 cp.async.bulk.wait_group 0;\n" + look);
  EXPECT_EQ(findings_of(full.result), "");
  EXPECT_EQ(full.out[1024], 1u);
}

TEST(Bulk, WaitsLeaveTheNewestGroupsRunning) {
  // Three groups; all but the newest may be overwritten after wait_group.read 1.
  const std::string body = fill + R"(
  @%p1 cp.async.bulk.commit_group;
  @%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd61+512], [%r1], 128;
  @%p1 cp.async.bulk.commit_group;
  @%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd61+1024], [%r1+128], 128;
  @%p1 cp.async.bulk.commit_group;
  @%p1 cp.async.bulk.wait_group.read 1;
  bar.sync 0;
  setp.lt.u32 %p2, %r60, 32;
)";
  const std::string end = "  bar.sync 0;\n  @%p1 cp.async.bulk.wait_group.read 0;\n";
  EXPECT_EQ(findings_of(run(body + "  @%p2 st.shared.u32 [%r4], 1;\n" + end).result), "");
  EXPECT_TRUE(
      has_finding(run(body + "  @!%p2 st.shared.u32 [%r4], 1;\n" + end).result, FindingKind::data_race));
}

struct BadAddress {
  const char* name;
  const char* ptx;
  FindingKind kind;
  const char* says;
};

void PrintTo(const BadAddress& bad, std::ostream* stream) { *stream << bad.name; }

class BulkAddress : public ::testing::TestWithParam<BadAddress> {};

TEST_P(BulkAddress, IsReported) {
  const Outcome outcome = run(init_by_first("bar", 1) + R"(
  mov.u32 %r1, buf;
  mov.u32 %r2, bar;
  setp.ne.u32 %p1, %r60, 0;
  @%p1 bra END;
)" + std::string(GetParam().ptx) +
                              "\nEND:\n");
  expect_only(outcome, GetParam().kind, GetParam().says);
}

INSTANTIATE_TEST_SUITE_P(
    Each, BulkAddress,
    ::testing::Values(
        BadAddress{
            "Size",
            "mov.u32 %r9, 24; "
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd60], %r9, [%r2];",
            FindingKind::misaligned, "24 bytes"},
        BadAddress{
            "Destination",
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1+8], [%rd60], 32, [%r2];",
            FindingKind::misaligned, "multiple of 16"},
        BadAddress{
            "Source",
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd60+8], 32, [%r2];",
            FindingKind::misaligned, ""},
        BadAddress{"SourceBounds",
                   "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd60+8176], "
                   "32, [%r2];",
                   FindingKind::out_of_bounds, ""},
        BadAddress{"DestinationBounds",
                   "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1+8176], [%rd60], "
                   "32, [%r2];",
                   FindingKind::out_of_bounds, ""},
        BadAddress{
            "NoMbarrier",
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd60], 32, [%r1+64];",
            FindingKind::barrier_misuse, "no mbarrier.init"},
        BadAddress{"StoreBounds", "cp.async.bulk.global.shared::cta.bulk_group [%rd61+8176], [%r1], 32;",
                   FindingKind::out_of_bounds, "32 bytes of global memory"},
        BadAddress{"StoreAlignment", "cp.async.bulk.global.shared::cta.bulk_group [%rd61+4], [%r1], 32;",
                   FindingKind::misaligned, "multiple of 16"},
        BadAddress{"StoreSource", "cp.async.bulk.global.shared::cta.bulk_group [%rd61], [%r1+4], 32;",
                   FindingKind::misaligned, "source"},
        BadAddress{"PrefetchBounds", "cp.async.bulk.prefetch.L2.global [%rd60+8176], 32;",
                   FindingKind::out_of_bounds, "32 bytes of global memory"},
        BadAddress{
            "MulticastToNobody",
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r1], "
            "[%rd60], 32, [%r2], 2;",
            FindingKind::illegal_instruction, "1 blocks"}),
    [](const auto& info) { return info.param.name; });

TEST(Bulk, HintsAndPrefetchesHaveNoEffect) {
  const Outcome outcome = run(init_by_first("bar", 1) + R"(
  mov.u32 %r1, buf;
  mov.u32 %r2, bar;
  mov.b64 %rd1, 0x12F0000000000000;
  setp.eq.u32 %p1, %r60, 0;
  @%p1 cp.async.bulk.prefetch.L2.global [%rd60], 4096;
  @%p1 cp.async.bulk.prefetch.L2.global.L2::cache_hint [%rd60], 4096, %rd1;
  @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 64;
  @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%r1], [%rd60], 64, [%r2], %rd1;
)" + wait_for("%r2", "0", "WAIT") +
                              R"(
  @%p1 cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%rd61], [%r1], 64, %rd1;
  @%p1 cp.async.bulk.commit_group;
  @%p1 cp.async.bulk.wait_group 0;
  griddepcontrol.launch_dependents;
  griddepcontrol.wait;
)");
  EXPECT_EQ(findings_of(outcome.result), "");
  const std::vector<std::uint32_t> in = numbers(2048, 3);
  for (std::size_t i = 0; i < 16; ++i) EXPECT_EQ(outcome.out[i], in[i]);
  EXPECT_EQ(outcome.out[16], 9u);
}

TEST(Bulk, UninitializedSourceIsReported) {
  TestDevice device;
  const std::uint64_t in = device.room<std::uint32_t>(2048);
  const std::uint64_t out = device.room<std::uint32_t>(2048);
  const LaunchResult result = device.run(kernel_of(load_by_first + wait_for("%r2", "0", "WAIT"), buffers),
                                         threads(64), seeded(0), in, out);
  EXPECT_TRUE(has_finding(result, FindingKind::uninitialized_read)) << findings_of(result);
}

TEST(Bulk, UnknownFormsAreErrorsThatSayWhy) {
  const auto error = [](const std::string& body, const std::string& target = "sm_90a") -> std::string {
    try {
      Module(kernel_of(body, buffers, target), {9, 0, 'a'});
    } catch (const PtxError& failure) {
      return failure.what();
    }
    return {};
  };
  const std::pair<const char*, const char*> cases[] = {
      {"cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%rd1],[%r1],64,%h1;", "cp_mask"},
      {"cp.async.bulk.shared::cta.shared::cta.mbarrier::complete_tx::bytes [%r1],[%r1],64,[%r2];",
       "from .shared::cta to .shared::cta"},
      {"cp.async.bulk.global.global.bulk_group [%rd1],[%rd2],64;", "do not exist"},
      {"cp.async.bulk.shared::cluster.global.bulk_group [%r1],[%rd2],64;", "mbarrier::complete_tx::bytes"},
      {"cp.reduce.async.bulk.global.shared::cta.bulk_group.min.f32 [%rd1],[%r1],64;",
       ".min is not possible on .f32"},
      {"cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f16 [%rd1],[%r1],64;", "needs .noftz"},
      {"cp.reduce.async.bulk.global.shared::cta.bulk_group.max.noftz.f16 [%rd1],[%r1],64;", "noftz"},
      {"cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.f32 "
       "[%r1],[%r3],64,[%r4];",
       ".add is not possible on .f32 in .shared::cluster"},
      {"cp.async.bulk.wait_group %r1;", "number"},
      {"cp.async.bulk.frobnicate;", "modifier"},
      {"tensormap.replace.tile.rank.global.b1024.b32 [%rd1], 3;", "tensor maps"},
      {"clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r1], [%r2];",
       "clusterlaunchcontrol"},
  };
  for (const auto& [body, says] : cases) {
    EXPECT_NE(error(body).find(says), std::string::npos) << body << "\n" << error(body);
  }
  EXPECT_NE(error("cp.async.bulk.commit_group;", "sm_80").find("sm_90"), std::string::npos);
}

TEST(Bulk, ReducingIntoUninitializedMemoryIsReported) {
  TestDevice device;
  const std::uint64_t out = device.room<std::uint32_t>(64);
  std::string body = fill;
  body.replace(body.find("cp.async.bulk.global.shared::cta.bulk_group"), 43,
               "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32");
  body += "  @%p1 cp.async.bulk.commit_group;\n  @%p1 cp.async.bulk.wait_group 0;\n";
  const LaunchResult result = device.run(kernel_of(body, buffers), threads(64), seeded(0), out, out);
  EXPECT_TRUE(has_finding(result, FindingKind::uninitialized_read)) << findings_of(result);
}

}  // namespace
}  // namespace jit::emulator::testing
