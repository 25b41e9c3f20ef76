// mbarriers: phases, states, transactions, and what is reported when they are misused.
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <ostream>
#include <string>
#include <vector>

#include "tests/support/ptx_run.h"
#include "tests/unit/async_ptx.h"

namespace jit::emulator::testing {
namespace {

constexpr const char* one_barrier = ".shared .align 8 .b64 bar;\n.shared .align 16 .b8 buf[4096];\n";

LaunchShape threads(unsigned count) { return {.grid = {1, 1, 1}, .block = {count, 1, 1}}; }

/// Runs a body with `out` of 64 words that are all 77 before.
struct Outcome {
  LaunchResult result;
  std::vector<std::uint32_t> out;
};

Outcome run(const std::string& body, unsigned block = 32, std::uint64_t seed = 0,
            const std::string& declarations = one_barrier) {
  TestDevice device;
  const std::uint64_t in = device.upload(std::vector<std::uint32_t>(1024, 5));
  const std::uint64_t out = device.upload(std::vector<std::uint32_t>(64, 77));
  LaunchOptions options;
  options.seed = seed;
  options.threads = 1;
  LaunchResult result = device.run(kernel_of(body, declarations), threads(block), options, in, out);
  return {std::move(result), device.download<std::uint32_t>(out, 64)};
}

void expect_only(const Outcome& outcome, FindingKind kind, const std::string& says) {
  ASSERT_EQ(outcome.result.findings.size(), 1u) << findings_of(outcome.result);
  EXPECT_EQ(outcome.result.findings[0].kind, kind) << findings_of(outcome.result);
  EXPECT_NE(outcome.result.findings[0].message.find(says), std::string::npos)
      << outcome.result.findings[0].message;
}

std::string decode_error(const std::string& body, const std::string& target = "sm_90a") {
  try {
    Module(kernel_of(body, one_barrier, target), {9, 0, 'a'});
  } catch (const PtxError& error) {
    return error.what();
  }
  return {};
}

// A ring of two stages: warp 0 writes what warp 1 reads, eight times.
std::string ring(const std::string& arrival_of_producer) {
  return R"(
  mov.u32 %r1, full;
  mov.u32 %r2, empty;
  mov.u32 %r3, buf;
  setp.ne.u32 %p1, %r60, 0;
  @%p1 bra READY;
  mbarrier.init.shared::cta.b64 [%r1], 32;
  mbarrier.init.shared::cta.b64 [%r1+8], 32;
  mbarrier.init.shared::cta.b64 [%r2], 1;
  mbarrier.init.shared::cta.b64 [%r2+8], 1;
READY:
  bar.sync 0;
  mov.u32 %r10, 0;
  mov.u32 %r20, 0;
  setp.ge.u32 %p2, %r60, 32;
  and.b32 %r21, %r60, 31;
  shl.b32 %r22, %r21, 2;
  @%p2 bra CONSUMER;
PRODUCER:
  and.b32 %r11, %r10, 1;
  shl.b32 %r12, %r11, 3;
  add.u32 %r13, %r1, %r12;
  add.u32 %r14, %r2, %r12;
  shr.u32 %r15, %r10, 1;
  xor.b32 %r15, %r15, 1;
  and.b32 %r15, %r15, 1;
)" + wait_for("%r14", "%r15", "EMPTY") +
         R"(
  shl.b32 %r16, %r11, 7;
  add.u32 %r16, %r16, %r3;
  add.u32 %r16, %r16, %r22;
  mul.lo.u32 %r17, %r10, 1000;
  add.u32 %r17, %r17, %r21;
  st.shared.u32 [%r16], %r17;
)" + arrival_of_producer +
         R"(
  add.u32 %r10, %r10, 1;
  setp.lt.u32 %p3, %r10, 8;
  @%p3 bra PRODUCER;
  bra END;
CONSUMER:
  and.b32 %r11, %r10, 1;
  shl.b32 %r12, %r11, 3;
  add.u32 %r13, %r1, %r12;
  add.u32 %r14, %r2, %r12;
  shr.u32 %r15, %r10, 1;
  and.b32 %r15, %r15, 1;
)" + wait_for("%r13", "%r15", "FULL") +
         R"(
  shl.b32 %r16, %r11, 7;
  add.u32 %r16, %r16, %r3;
  xor.b32 %r18, %r22, 124;
  add.u32 %r16, %r16, %r18;
  ld.shared.u32 %r17, [%r16];
  add.u32 %r20, %r20, %r17;
  bar.warp.sync 0xffffffff;
  setp.eq.u32 %p4, %r21, 0;
  @%p4 mbarrier.arrive.shared::cta.b64 _, [%r14];
  add.u32 %r10, %r10, 1;
  setp.lt.u32 %p3, %r10, 8;
  @%p3 bra CONSUMER;
  mul.wide.u32 %rd1, %r21, 4;
  add.u64 %rd1, %rd1, %rd61;
  st.global.u32 [%rd1], %r20;
END:
)";
}

constexpr const char* two_rings =
    ".shared .align 8 .b8 full[16];\n.shared .align 8 .b8 empty[16];\n.shared .align 16 .b8 buf[4096];\n";

TEST(Mbarrier, RingHandsValuesOver) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const Outcome outcome = run(ring("  mbarrier.arrive.shared::cta.b64 _, [%r13];\n"), 64, seed, two_rings);
    EXPECT_EQ(findings_of(outcome.result), "");
    for (std::uint32_t lane = 0; lane < 32; ++lane) EXPECT_EQ(outcome.out[lane], 28000 + 8 * (31 - lane));
  }
}

TEST(Mbarrier, RelaxedArrivalOrdersNothing) {
  const Outcome outcome =
      run(ring("  mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [%r13];\n"), 64, 0, two_rings);
  EXPECT_TRUE(has_finding(outcome.result, FindingKind::data_race)) << findings_of(outcome.result);
}

TEST(Mbarrier, RelaxedWaitLearnsNothing) {
  const std::string body = init_by_first("bar", 32) + R"(
  mov.u32 %r1, bar;
  mov.u32 %r3, buf;
  setp.ge.u32 %p2, %r60, 32;
  @%p2 bra READ;
  shl.b32 %r4, %r60, 2;
  add.u32 %r4, %r4, %r3;
  st.shared.u32 [%r4], %r60;
  mbarrier.arrive.release.cta.shared::cta.b64 _, [%r1];
  bra END;
READ:
  mbarrier.try_wait.parity.ORDER.cta.shared::cta.b64 %p1, [%r1], 0;
  @!%p1 bra READ;
  ld.shared.u32 %r5, [%r3];
END:
)";
  const auto with = [&](const std::string& order) {
    std::string text = body;
    text.replace(text.find("ORDER"), 5, order);
    return run(text, 64);
  };
  EXPECT_EQ(findings_of(with("acquire").result), "");
  EXPECT_TRUE(has_finding(with("relaxed").result, FindingKind::data_race));
}

// States: arrivals of all lanes in order, the last one ends the phase.
TEST(Mbarrier, StatesTellPhaseAndPendingCount) {
  const Outcome outcome = run(init_by_first("bar", 33) + R"(
  mbarrier.arrive.shared::cta.b64 %rd1, [bar];
  mbarrier.pending_count.b64 %r1, %rd1;
  mbarrier.test_wait.shared::cta.b64 %p1, [bar], %rd1;
  selp.u32 %r2, 1, 0, %p1;
  bar.warp.sync 0xffffffff;
  setp.eq.u32 %p2, %r60, 0;
  @%p2 mbarrier.arrive.shared::cta.b64 _, [bar], 1;
LOOP:
  mbarrier.test_wait.acquire.cta.shared::cta.b64 %p1, [bar], %rd1;
  @!%p1 bra LOOP;
  mul.wide.u32 %rd2, %r60, 4;
  add.u64 %rd2, %rd2, %rd61;
  shl.b32 %r2, %r2, 16;
  or.b32 %r2, %r2, %r1;
  st.global.u32 [%rd2], %r2;
)");
  EXPECT_EQ(findings_of(outcome.result), "");
  for (std::uint32_t lane = 0; lane < 32; ++lane) EXPECT_EQ(outcome.out[lane], 33 - lane);
}

TEST(Mbarrier, GenericAddressesAndCountsWork) {
  const Outcome outcome = run(R"(
  mov.u32 %r1, bar;
  cvt.u64.u32 %rd2, %r1;
  cvta.shared.u64 %rd3, %rd2;
  setp.ne.u32 %p1, %r60, 0;
  @%p1 bra END;
  mbarrier.init.b64 [%rd3], 7;
  mbarrier.arrive.b64 %rd4, [%rd3], 3;
  mbarrier.arrive.noComplete.b64 %rd5, [%rd3], 2;
  mbarrier.pending_count.b64 %r2, %rd5;
  mbarrier.arrive.release.cluster.b64 _, [%rd3], 2;
  mbarrier.test_wait.b64 %p2, [%rd3], %rd4;
  selp.u32 %r3, 1, 0, %p2;
  mbarrier.inval.b64 [%rd3];
  st.shared.u32 [%r1], %r2;
  st.global.v2.u32 [%rd61], {%r2, %r3};
END:
)");
  EXPECT_EQ(findings_of(outcome.result), "");
  EXPECT_EQ(outcome.out[0], 4u);
  EXPECT_EQ(outcome.out[1], 1u);
}

TEST(Mbarrier, DroppedArrivalsAreNotWaitedForLater) {
  const Outcome outcome = run(init_by_first("bar", 3) + R"(
  setp.ne.u32 %p1, %r60, 0;
  @%p1 bra END;
  mbarrier.arrive_drop.shared::cta.b64 %rd1, [bar], 2;
  mbarrier.arrive.shared::cta.b64 %rd1, [bar];
  mbarrier.test_wait.shared::cta.b64 %p2, [bar], %rd1;
  selp.u32 %r1, 1, 0, %p2;
  mbarrier.arrive.shared::cta.b64 %rd1, [bar];
  mbarrier.pending_count.b64 %r2, %rd1;
  mbarrier.test_wait.parity.shared::cta.b64 %p2, [bar], 1;
  selp.u32 %r3, 1, 0, %p2;
  st.global.v4.u32 [%rd61], {%r1, %r2, %r3, %r3};
END:
)");
  EXPECT_EQ(findings_of(outcome.result), "");
  EXPECT_EQ(outcome.out[0], 1u);
  EXPECT_EQ(outcome.out[1], 1u) << "one arrival is left";
  EXPECT_EQ(outcome.out[2], 1u);
}

TEST(Mbarrier, PhaseWaitsForTransactions) {
  const Outcome outcome = run(init_by_first("bar", 1) + R"(
  setp.ne.u32 %p1, %r60, 0;
  @%p1 bra END;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 64;
  mbarrier.test_wait.parity.shared::cta.b64 %p2, [bar], 0;
  selp.u32 %r1, 1, 0, %p2;
  mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], 16;
  mbarrier.complete_tx.shared::cta.b64 [bar], 64;
  mbarrier.test_wait.parity.shared::cta.b64 %p2, [bar], 0;
  selp.u32 %r2, 1, 0, %p2;
  mbarrier.complete_tx.shared::cta.b64 [bar], 16;
  mbarrier.test_wait.parity.shared::cta.b64 %p2, [bar], 0;
  selp.u32 %r3, 1, 0, %p2;
  // Bytes may come before they are announced, while arrivals are missing.
  mbarrier.complete_tx.shared::cta.b64 [bar], 32;
  mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [bar], 32;
  mbarrier.test_wait.parity.shared::cta.b64 %p2, [bar], 1;
  selp.u32 %r4, 1, 0, %p2;
  st.global.v4.u32 [%rd61], {%r1, %r2, %r3, %r4};
END:
)");
  EXPECT_EQ(findings_of(outcome.result), "");
  EXPECT_EQ(outcome.out[0], 0u);
  EXPECT_EQ(outcome.out[1], 0u);
  EXPECT_EQ(outcome.out[2], 1u);
  EXPECT_EQ(outcome.out[3], 1u);
}

// PTX lets try_wait return false at any time: whoever does not loop around it is found out.
TEST(Mbarrier, TryWaitWithoutLoopDoesNotWait) {
  const std::string body = init_by_first("bar", 1) + R"(
  mov.u32 %r3, buf;
  setp.ge.u32 %p2, %r60, 32;
  @%p2 bra READ;
  setp.ne.u32 %p2, %r60, 0;
  @%p2 bra END;
  st.shared.u32 [%r3], 4;
  mbarrier.arrive.shared::cta.b64 _, [bar];
  bra END;
READ:
  mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0, 1000000;
)";
  const std::string end = "  ld.shared.u32 %r5, [%r3];\nEND:\n";
  bool is_found = false;
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    is_found |= has_finding(run(body + end, 64, seed).result, FindingKind::data_race) ||
                has_finding(run(body + end, 64, seed).result, FindingKind::uninitialized_shared_read);
    EXPECT_EQ(findings_of(run(body + "  @!%p1 bra READ;\n" + end, 64, seed).result), "");
  }
  EXPECT_TRUE(is_found);
}

// Looking ahead at a phase that cannot end before the warp itself has done something must not stop it.
TEST(Mbarrier, LookingAheadDoesNotBlock) {
  const Outcome outcome = run(init_by_first("bar", 1) + R"(
  setp.ne.u32 %p1, %r60, 0;
  @%p1 bra END;
  mbarrier.try_wait.parity.shared::cta.b64 %p2, [bar], 0;
  mbarrier.arrive.shared::cta.b64 _, [bar];
)" + wait_for("bar", "0", "AGAIN") +
                              "END:\n");
  EXPECT_EQ(findings_of(outcome.result), "");
}

// A warp that polls two mbarriers in turn must be woken by either.
TEST(Mbarrier, PollingTwoEndsWithEither) {
  const std::string body = R"(
  mov.u32 %r1, bars;
  setp.ne.u32 %p1, %r60, 0;
  @%p1 bra READY;
  mbarrier.init.shared::cta.b64 [%r1], 1;
  mbarrier.init.shared::cta.b64 [%r1+8], 1;
READY:
  bar.sync 0;
  setp.ge.u32 %p2, %r60, 32;
  @%p2 bra OTHER;
POLL:
  mbarrier.WAIT.parity.shared::cta.b64 %p3, [%r1], 0;
  @%p3 bra END;
  mbarrier.WAIT.parity.shared::cta.b64 %p3, [%r1+8], 0;
  @!%p3 bra POLL;
  bra END;
OTHER:
  setp.ne.u32 %p2, %r60, 40;
  @%p2 bra END;
  mov.u32 %r2, 0;
DELAY:
  add.u32 %r2, %r2, 1;
  setp.lt.u32 %p2, %r2, 2000;
  @%p2 bra DELAY;
  mbarrier.arrive.shared::cta.b64 _, [%r1+WHICH];
END:
)";
  for (const char* wait : {"try_wait", "test_wait"}) {
    for (const char* which : {"0", "8"}) {
      std::string text = body;
      for (std::size_t at; (at = text.find("WAIT")) != std::string::npos;) text.replace(at, 4, wait);
      text.replace(text.find("WHICH"), 5, which);
      for (std::uint64_t seed = 0; seed < 4; ++seed) {
        EXPECT_EQ(findings_of(run(text, 64, seed, ".shared .align 8 .b8 bars[16];\n").result), "");
      }
    }
  }
}

TEST(Mbarrier, LanesOfAWarpCanWaitForDifferentOnes) {
  // Odd lanes can go on first, and lane 1 lets the even ones go on.
  const Outcome outcome = run(R"(
  mov.u32 %r1, bars;
  shl.b32 %r2, %r60, 3;
  and.b32 %r2, %r2, 8;
  add.u32 %r2, %r2, %r1;
  setp.ne.u32 %p1, %r60, 0;
  @%p1 bra READY;
  mbarrier.init.shared::cta.b64 [%r1], 1;
  mbarrier.init.shared::cta.b64 [%r1+8], 1;
READY:
  bar.sync 0;
  setp.ge.u32 %p2, %r60, 32;
  @%p2 bra OTHER;
  setp.eq.u32 %p2, %r60, 1;
WAIT:
  mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r2], 0;
  and.pred %p4, %p2, %p3;
  @%p4 mbarrier.arrive.shared::cta.b64 _, [%r1];
  @!%p3 bra WAIT;
  bra END;
OTHER:
  setp.eq.u32 %p2, %r60, 32;
  @%p2 mbarrier.arrive.shared::cta.b64 _, [%r1+8];
END:
)",
                              64, 0, ".shared .align 8 .b8 bars[16];\n");
  EXPECT_EQ(findings_of(outcome.result), "");
}

TEST(Mbarrier, DeadlockSaysWhatIsMissing) {
  const Outcome arrivals = run(init_by_first("bar", 40) + "  mbarrier.arrive.shared::cta.b64 _, [bar];\n" +
                               wait_for("bar", "0", "WAIT"));
  const std::string message = message_of(arrivals.result, FindingKind::deadlock);
  EXPECT_NE(message.find(
                "phase 0 (parity 0) of the mbarrier at byte 0 of shared memory: 8 of 40 arrivals and 0 bytes "
                "are missing"),
            std::string::npos)
      << findings_of(arrivals.result);
  EXPECT_FALSE(has_finding(arrivals.result, FindingKind::wrong_transaction_count));
}

TEST(Mbarrier, TooFewBytesAreToldAtTheDeadlock) {
  const Outcome outcome = run(init_by_first("bar", 1) + R"(
  setp.ne.u32 %p1, %r60, 0;
  @%p1 bra END;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 4096;
  mbarrier.complete_tx.shared::cta.b64 [bar], 1024;
)" + wait_for("bar", "0", "WAIT") +
                              "END:\n");
  EXPECT_TRUE(has_finding(outcome.result, FindingKind::deadlock));
  const std::string message = message_of(outcome.result, FindingKind::wrong_transaction_count);
  EXPECT_NE(message.find("lacks 3072 of the bytes"), std::string::npos) << findings_of(outcome.result);
}

TEST(Mbarrier, TooManyBytesAreTold) {
  const Outcome outcome = run(init_by_first("bar", 1) + R"(
  setp.ne.u32 %p1, %r60, 0;
  @%p1 bra END;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 64;
  mbarrier.complete_tx.shared::cta.b64 [bar], 80;
)" + wait_for("bar", "0", "WAIT") +
                              "END:\n");
  expect_only(outcome, FindingKind::wrong_transaction_count, "got 16 bytes more");
}

TEST(Mbarrier, UseWithoutABarrierAfterInitIsARace) {
  const std::string body = R"(
  setp.eq.u32 %p1, %r60, 0;
  @%p1 mbarrier.init.shared::cta.b64 [bar], 64;
  SYNC
  mbarrier.arrive.shared::cta.b64 _, [bar];
)";
  const auto with = [&](const std::string& sync, unsigned block) {
    std::string text = body;
    text.replace(text.find("SYNC"), 4, sync);
    return run(text, block);
  };
  EXPECT_EQ(findings_of(with("bar.sync 0;", 64).result), "");
  EXPECT_EQ(findings_of(with("bar.warp.sync 0xffffffff;", 32).result), "");
  expect_only(with("", 32), FindingKind::data_race, "behind its mbarrier.init");
  bool is_found = false;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    std::string text = body;
    text.replace(text.find("SYNC"), 4, "bar.warp.sync 0xffffffff;");
    const Outcome outcome = run(text, 64, seed);
    ASSERT_NE(findings_of(outcome.result), "");
    is_found |= has_finding(outcome.result, FindingKind::data_race);
  }
  EXPECT_TRUE(is_found);
}

TEST(Mbarrier, InvalidatingNeedsABarrierAfterTheWaits) {
  const std::string body = init_by_first("bar", 64) + "  mbarrier.arrive.shared::cta.b64 _, [bar];\n" +
                           wait_for("bar", "0", "WAIT") + R"(
  SYNC
  setp.eq.u32 %p1, %r60, 0;
  @%p1 mbarrier.inval.shared::cta.b64 [bar];
)";
  const auto with = [&](const std::string& sync, std::uint64_t seed) {
    std::string text = body;
    text.replace(text.find("SYNC"), 4, sync);
    return run(text, 64, seed);
  };
  bool is_found = false;
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    EXPECT_EQ(findings_of(with("bar.sync 0;", seed).result), "");
    is_found |= has_finding(with("", seed).result, FindingKind::data_race);
  }
  EXPECT_TRUE(is_found);
}

// One thread breaks one rule after mbarrier.init [bar], 2.
struct Misuse {
  const char* name;
  const char* ptx;
  const char* says;
};

void PrintTo(const Misuse& misuse, std::ostream* stream) { *stream << misuse.name; }

class MbarrierMisuse : public ::testing::TestWithParam<Misuse> {};

TEST_P(MbarrierMisuse, IsReported) {
  const Outcome outcome = run(R"(
  mov.u32 %r1, bar;
  setp.ne.u32 %p1, %r60, 0;
  @%p1 bra END;
  mbarrier.init.shared::cta.b64 [%r1], 2;
)" + std::string(GetParam().ptx) +
                              "\nEND:\n");
  expect_only(outcome, FindingKind::barrier_misuse, GetParam().says);
}

INSTANTIATE_TEST_SUITE_P(
    Each, MbarrierMisuse,
    ::testing::Values(
        Misuse{"OverArrival", "mbarrier.arrive.shared.b64 _, [%r1], 3;",
               "2 of 2 arrivals were still to come"},
        Misuse{"ArrivalWhileBytesAreMissing",
               "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 16; mbarrier.arrive.shared.b64 _, [%r1];"
               "mbarrier.arrive.shared.b64 _, [%r1];",
               "0 of 2 arrivals were still to come"},
        Misuse{"ZeroArrivals", "mbarrier.arrive.shared.b64 _, [%r1], 0;", "counts 0"},
        Misuse{"Unaligned", "mbarrier.init.shared.b64 [%r1+4], 1;", "multiple of 8"},
        Misuse{"UnalignedArrival", "mbarrier.arrive.shared.b64 _, [%r1+4];", "multiples of 8"},
        Misuse{"InitForNone", "mbarrier.init.shared.b64 [%r1+8], 0;", "with 0 arrivals"},
        Misuse{"InitForTooMany", "mbarrier.init.shared.b64 [%r1+8], 1048576;", "with 1048576 arrivals"},
        Misuse{"InitTwice", "mbarrier.init.shared.b64 [%r1], 1;", "again, without mbarrier.inval"},
        Misuse{"NeverInitialized", "mbarrier.arrive.shared.b64 _, [%r1+16];", "no mbarrier.init has run"},
        Misuse{"WaitForNone", "mbarrier.test_wait.parity.shared.b64 %p2, [%r1+16], 0;",
               "no mbarrier.init has run"},
        Misuse{"ArrivalAfterInval", "mbarrier.inval.shared.b64 [%r1]; mbarrier.arrive.shared.b64 _, [%r1];",
               "mbarrier.inval has ended"},
        Misuse{"InvalWhileBytesAreMissing",
               "mbarrier.expect_tx.shared::cta.b64 [%r1], 8; mbarrier.inval.shared.b64 [%r1];",
               "while it waits for 8 bytes"},
        Misuse{"LastArrivalWithNoComplete", "mbarrier.arrive.noComplete.shared.b64 _, [%r1], 2;",
               ".noComplete"},
        Misuse{"DropTooMany",
               "mbarrier.arrive_drop.shared.b64 _, [%r1], 2; mbarrier.arrive_drop.shared.b64 _, [%r1];",
               "1 arrivals are dropped"},
        Misuse{
            "TooManyBytesExpected",
            "mbarrier.expect_tx.shared::cta.b64 [%r1], 1048575; mbarrier.expect_tx.shared::cta.b64 [%r1], 1;",
            "1048576 bytes"},
        Misuse{"TooManyBytesCompleted",
               "mbarrier.complete_tx.shared::cta.b64 [%r1], 1048575; mbarrier.complete_tx.shared::cta.b64 "
               "[%r1], 1;",
               "1048576 bytes ahead"},
        Misuse{"ForeignState", "mov.b64 %rd1, 5; mbarrier.test_wait.shared.b64 %p2, [%r1], %rd1;",
               "which no arrival there has returned"},
        Misuse{"StaleState",
               "mbarrier.arrive.shared.b64 %rd1, [%r1], 2; mbarrier.arrive.shared.b64 _, [%r1], 2;"
               "mbarrier.test_wait.shared.b64 %p2, [%r1], %rd1;",
               "in this phase or the one before"},
        Misuse{"StateOfAnother",
               "mbarrier.init.shared.b64 [%r1+8], 1; mbarrier.arrive.shared.b64 %rd1, [%r1];"
               "mbarrier.test_wait.shared.b64 %p2, [%r1+8], %rd1;",
               "which no arrival there has returned"},
        Misuse{"StateOfAnEarlierInit",
               "mbarrier.arrive.shared.b64 %rd1, [%r1]; mbarrier.inval.shared.b64 [%r1];"
               "mbarrier.init.shared.b64 [%r1], 1; mbarrier.test_wait.shared.b64 %p2, [%r1], %rd1;",
               "which no arrival there has returned"},
        Misuse{"PendingCountOfNoState", "mov.b64 %rd1, 5; mbarrier.pending_count.b64 %r2, %rd1;", "no state"},
        Misuse{"Parity", "mbarrier.test_wait.parity.shared.b64 %p2, [%r1], 2;", "a parity is 0 or 1"}),
    [](const auto& info) { return info.param.name; });

TEST(Mbarrier, InvalidatingWhileAWarpWaitsIsReported) {
  bool is_found = false;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const Outcome outcome = run(init_by_first("bar", 1) + R"(
  setp.ge.u32 %p2, %r60, 32;
  @%p2 bra WAIT;
  mov.u32 %r2, 0;
DELAY:
  add.u32 %r2, %r2, 1;
  setp.lt.u32 %p2, %r2, 1000;
  @%p2 bra DELAY;
  setp.eq.u32 %p2, %r60, 0;
  @%p2 mbarrier.inval.shared::cta.b64 [bar];
  bra END;
)" + wait_for("bar", "0", "WAIT") + "END:\n",
                                64, seed);
    is_found |= message_of(outcome.result, FindingKind::barrier_misuse).find("while a warp waits") !=
                std::string::npos;
    EXPECT_TRUE(has_finding(outcome.result, FindingKind::deadlock) ||
                has_finding(outcome.result, FindingKind::barrier_misuse));
  }
  EXPECT_TRUE(is_found);
}

TEST(Mbarrier, PlainAccessToItIsReported) {
  const Outcome outcome = run(init_by_first("bar", 1) + "  ld.shared.u64 %rd1, [bar];\n");
  EXPECT_NE(findings_of(outcome.result), "");
}

TEST(Mbarrier, IllegalFormsAreErrorsWithTheirLine) {
  EXPECT_NE(decode_error("mbarrier.arrive.relaxed.shared.b64 _, [bar];").find("needs a scope"),
            std::string::npos);
  EXPECT_NE(decode_error("mbarrier.arrive.shared::cluster.b64 %rd1, [%r1];").find("returns no state"),
            std::string::npos);
  EXPECT_NE(decode_error("mbarrier.init.shared::cluster.b64 [%r1], 1;").find("shared::cluster"),
            std::string::npos);
  EXPECT_NE(decode_error("mbarrier.test_wait.shared::cluster.b64 %p1, [%r1], %rd1;").find("shared::cluster"),
            std::string::npos);
  EXPECT_NE(decode_error("mbarrier.test_wait.parity.shared.b64 %p1, [%r1], 0, 5;").find("3 operands"),
            std::string::npos);
  EXPECT_NE(decode_error("mbarrier.flip.shared.b64 [%r1];").find("mbarrier.flip"), std::string::npos);
  EXPECT_NE(decode_error("mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0;", "sm_80").find("sm_90"),
            std::string::npos);
  EXPECT_EQ(decode_error("mbarrier.test_wait.parity.shared.b64 %p1, [bar], 0;", "sm_80"), "");
}

}  // namespace
}  // namespace jit::emulator::testing
