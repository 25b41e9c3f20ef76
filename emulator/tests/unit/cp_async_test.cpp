// cp.async: what it copies, and when.
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "machine/kernel.h"
#include "tests/support/ptx_run.h"
#include "tests/unit/async_ptx.h"

namespace jit::emulator::testing {
namespace {

constexpr char buffer[] = ".shared .align 128 .b8 buffer[16384];\n";

std::string text(std::size_t number) { return std::to_string(number); }

// %r1: 16 bytes of shared memory for each thread; %rd0, %rd1: as many of the input and output.
const std::string addresses = R"(
  mov.u32 %r0, buffer;
  mad.lo.u32 %r1, %r60, 16, %r0;
  mad.wide.u32 %rd0, %r60, 16, %rd60;
  mad.wide.u32 %rd1, %r60, 16, %rd61;
)";

class CpAsync : public ::testing::Test {
 protected:
  static constexpr std::size_t threads = 64;

  CpAsync() : input_(16 * threads * 4) {
    std::mt19937 random(31);
    for (auto& byte : input_) byte = static_cast<std::uint8_t>(random());
  }

  LaunchResult run(const std::string& body, std::uint64_t seed = 0, const std::string& declarations = "") {
    const std::uint64_t in = device_.upload(input_);
    const std::uint64_t out = device_.upload(std::vector<std::uint8_t>(input_.size(), 0));
    LaunchResult result = device_.run(kernel_of(addresses + body, buffer + declarations),
                                      {.block = {threads, 1, 1}}, {.seed = seed}, in, out);
    output_ = device_.download<std::uint8_t>(out, input_.size());
    return result;
  }

  TestDevice device_;
  std::vector<std::uint8_t> input_, output_;
};

const std::string give_back =
    "ld.shared.v4.b32 {%r10, %r11, %r12, %r13}, [%r1];\nst.global.v4.b32 [%rd1], {%r10, %r11, %r12, %r13};\n";

TEST_F(CpAsync, EverySizeAndHint) {
  const std::string policy = "createpolicy.fractional.L2::evict_first.b64 %rd9;\n";
  for (const auto& [copy, bytes] : std::vector<std::pair<std::string, std::size_t>>{
           {"cp.async.ca.shared.global [%r1], [%rd0], 4;\n", 4},
           {"cp.async.ca.shared.global [%r1], [%rd0], 8;\n", 8},
           {"cp.async.ca.shared::cta.global [%r1], [%rd0], 16;\n", 16},
           {"cp.async.cg.shared.global [%r1], [%rd0], 16;\n", 16},
           {"cp.async.cg.shared.global.L2::128B [%r1], [%rd0], 16;\n", 16},
           {policy + "cp.async.cg.shared.global.L2::cache_hint.L2::256B [%r1], [%rd0], 16, %rd9;\n", 16}}) {
    const LaunchResult result =
        run("st.shared.v4.b32 [%r1], {%r0, %r0, %r0, %r0};\n" + copy + "cp.async.wait_all;\n" + give_back);
    EXPECT_EQ(findings_of(result), "") << copy;
    for (std::size_t i = 0; i < 16 * threads; ++i) {
      ASSERT_TRUE(i % 16 >= bytes || output_[i] == input_[i]) << copy << i;
    }
  }
}

TEST_F(CpAsync, FillsUpWithZeros) {
  // src-size goes from 0 to 16; without a byte to read the address may be anything.
  LaunchResult result = run(R"(
  rem.u32 %r2, %r60, 17;
  setp.eq.u32 %p1, %r2, 0;
  @%p1 mov.u64 %rd0, 0;
  cp.async.cg.shared.global [%r1], [%rd0], 16, %r2;
  cp.async.wait_all;
)" + give_back);
  EXPECT_EQ(findings_of(result), "");
  for (std::size_t i = 0; i < 16 * threads; ++i) {
    ASSERT_EQ(output_[i], i % 16 < i / 16 % 17 ? input_[i] : 0) << i;
  }
  result = run(R"(
  and.b32 %r2, %r60, 1;
  setp.eq.u32 %p1, %r2, 1;
  cp.async.ca.shared.global [%r1], [%rd0], 8, %p1;
  cp.async.ca.shared.global [%r1+8], [%rd0+8], 8, !%p1;
  cp.async.wait_all;
)" + give_back);
  EXPECT_EQ(findings_of(result), "");
  for (std::size_t i = 0; i < 16 * threads; ++i) {
    const bool ignored = (i / 16 % 2 == 1) == (i % 16 < 8);
    ASSERT_EQ(output_[i], ignored ? 0 : input_[i]) << i;
  }
}

TEST_F(CpAsync, TakesWhatIsThereAtTheWait) {
  // The source changes behind the issue: as late as can be, the copy sees it.
  const LaunchResult result = run(R"(
  cp.async.cg.shared.global [%r1], [%rd0], 16;
  cp.async.commit_group;
  mov.u32 %r5, 99;
  st.global.v4.b32 [%rd0], {%r5, %r5, %r5, %r5};
  cp.async.wait_group 0;
)" + give_back);
  EXPECT_EQ(findings_of(result), "");
  for (std::size_t i = 0; i < 16 * threads; ++i) ASSERT_EQ(output_[i], i % 4 == 0 ? 99 : 0) << i;
}

// Groups of one copy each: after wait_group N all but the last N may be read, and no other.
TEST_F(CpAsync, GroupsAreCounted) {
  for (std::size_t allowed = 0; allowed < 5; ++allowed) {
    std::string body;
    for (std::size_t group = 0; group < 4; ++group) {
      body += "cp.async.cg.shared.global [%r1+" + text(1024 * group) + "], [%rd0+" + text(1024 * group) +
              "], 16;\ncp.async.commit_group;\n";
    }
    body += "cp.async.wait_group " + text(allowed) + ";\n";
    for (std::size_t read = 0; read < 4; ++read) {
      const std::string load = "ld.shared.v4.b32 {%r10, %r11, %r12, %r13}, [%r1+" + text(1024 * read) +
                               "];\nst.global.v4.b32 [%rd1+" + text(1024 * read) +
                               "], {%r10, %r11, %r12, %r13};\n";
      const LaunchResult result = run(body + load + "cp.async.wait_all;\n", allowed);
      if (read + allowed < 4) {
        EXPECT_EQ(findings_of(result), "") << allowed << " " << read;
        for (std::size_t i = 1024 * read; i < 1024 * (read + 1); ++i) ASSERT_EQ(output_[i], input_[i]);
      } else {
        EXPECT_TRUE(has_finding(result, FindingKind::access_in_flight)) << allowed << " " << read;
        for (std::size_t i = 1024 * read; i < 1024 * (read + 1); ++i) ASSERT_EQ(output_[i], 0xff) << "poison";
      }
    }
  }
}

TEST_F(CpAsync, EmptyGroupsCountToo) {
  const std::string body =
      "cp.async.cg.shared.global [%r1], [%rd0], 16;\ncp.async.commit_group;\ncp.async.commit_group;\n";
  EXPECT_EQ(findings_of(run(body + "cp.async.wait_group 1;\n" + give_back)), "");
  EXPECT_TRUE(has_finding(run(body + "cp.async.wait_group 2;\n" + give_back + "cp.async.wait_all;\n"),
                          FindingKind::access_in_flight));
}

// Half of the lanes commit twice: the number of groups is each lane's own.
TEST_F(CpAsync, LanesHaveGroupsOfTheirOwn) {
  const std::string begin = R"(
  and.b32 %r2, %r60, 1;
  setp.eq.u32 %p1, %r2, 1;
  setp.eq.u32 %p2, %r2, 0;
  cp.async.cg.shared.global [%r1], [%rd0], 16;
  cp.async.commit_group;
  @%p1 cp.async.cg.shared.global [%r1+1024], [%rd0+1024], 16;
  @%p1 cp.async.commit_group;
  cp.async.cg.shared.global [%r1+2048], [%rd0+2048], 16;
  cp.async.commit_group;
  cp.async.wait_group 1;
)";
  const std::string second = "ld.shared.v4.b32 {%r10, %r11, %r12, %r13}, [%r1+1024];\n";
  const std::string third = "ld.shared.v4.b32 {%r10, %r11, %r12, %r13}, [%r1+2048];\n";
  EXPECT_EQ(findings_of(run(begin + give_back + "@%p1 " + second + "cp.async.wait_all;\n" + third)), "");
  for (std::size_t i = 0; i < 16 * threads; ++i) ASSERT_EQ(output_[i], input_[i]) << i;
  EXPECT_TRUE(
      has_finding(run(begin + "@%p2 " + third + "cp.async.wait_all;\n"), FindingKind::access_in_flight));
  // A wait by some lanes does nothing for the others.
  const std::string copy = "cp.async.cg.shared.global [%r1], [%rd0], 16;\ncp.async.commit_group;\n";
  const std::string odd = "and.b32 %r2, %r60, 1;\nsetp.eq.u32 %p1, %r2, 1;\n";
  EXPECT_EQ(findings_of(run(odd + copy + "@%p1 cp.async.wait_group 0;\n@%p1 " +
                            "ld.shared.b32 %r10, [%r1];\n" + "cp.async.wait_all;\n")),
            "");
  EXPECT_TRUE(has_finding(
      run(odd + copy + "@%p1 cp.async.wait_group 0;\nld.shared.b32 %r10, [%r1];\ncp.async.wait_all;\n"),
      FindingKind::access_in_flight));
}

TEST_F(CpAsync, TwoCopiesIntoOnePlace) {
  const std::string copy = "cp.async.cg.shared.global [%r1], [%rd0], 16;\n";
  EXPECT_TRUE(has_finding(run(copy + copy + "cp.async.wait_all;\n"), FindingKind::access_in_flight));
  EXPECT_EQ(findings_of(run(copy + "cp.async.wait_all;\n" + copy + "cp.async.wait_all;\n" + give_back)), "");
}

TEST_F(CpAsync, CompletesOnAnMbarrier) {
  const std::string declarations = ".shared .align 8 .b64 ready;\n";
  const std::string begin = init_by_first("ready", static_cast<int>(threads)) + R"(
  mov.u32 %r2, ready;
  cp.async.cg.shared.global [%r1], [%rd0], 16;
  cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r2];
)";
  // The bytes of another thread, which the mbarrier orders without any other barrier.
  const std::string end = R"(
  xor.b32 %r3, %r60, 37;
  mad.lo.u32 %r1, %r3, 16, %r0;
  mad.wide.u32 %rd1, %r3, 16, %rd61;
)" + give_back;
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    LaunchResult result = run(begin + wait_for("%r2", "0", "again") + end, seed, declarations);
    EXPECT_EQ(findings_of(result), "");
    for (std::size_t i = 0; i < 16 * threads; ++i) ASSERT_EQ(output_[i], input_[i]) << i;
    // A thread that waits for its own copies by group as well, as in an epilogue.
    result = run(begin + "cp.async.wait_all;\n" + wait_for("%r2", "0", "again") + end, seed, declarations);
    EXPECT_EQ(findings_of(result), "");
    for (std::size_t i = 0; i < 16 * threads; ++i) ASSERT_EQ(output_[i], input_[i]) << i;
    EXPECT_FALSE(run(begin + end + wait_for("%r2", "0", "again"), seed, declarations).findings.empty());
  }
}

TEST_F(CpAsync, ChecksItsSource) {
  EXPECT_TRUE(has_finding(run("cp.async.cg.shared.global [%r1], [%rd0+4096], 16;\ncp.async.wait_all;\n"),
                          FindingKind::out_of_bounds));
  EXPECT_TRUE(has_finding(run("cp.async.cg.shared.global [%r1], [%rd0+8], 16;\ncp.async.wait_all;\n"),
                          FindingKind::misaligned));
  EXPECT_TRUE(has_finding(
      run("mov.u32 %r5, 17;\ncp.async.cg.shared.global [%r1], [%rd0], 16, %r5;\ncp.async.wait_all;\n"),
      FindingKind::illegal_instruction));
  EXPECT_TRUE(has_finding(run("cp.async.cg.shared.global [%r1+16384], [%rd0], 16;\ncp.async.wait_all;\n"),
                          FindingKind::out_of_bounds));
  const std::uint64_t fresh = device_.room<std::uint8_t>(4096);
  const LaunchResult result = device_.run(
      kernel_of(addresses + "cp.async.cg.shared.global [%r1], [%rd0], 16;\ncp.async.wait_all;\n", buffer),
      {.block = {threads, 1, 1}}, {}, fresh, fresh);
  ASSERT_EQ(result.findings.size(), 1u) << findings_of(result);
  EXPECT_EQ(result.findings[0].kind, FindingKind::uninitialized_read);
}

TEST_F(CpAsync, MalformedInstructionsAreRefused) {
  for (const char* bad :
       {"cp.async.cg.shared.global [%r1], [%rd0], 8;\n", "cp.async.ca.shared.global [%r1], [%rd0], 5;\n",
        "cp.async.shared.global [%r1], [%rd0], 16;\n", "cp.async.ca.global.shared [%r1], [%rd0];\n",
        "cp.async.ca.shared.global [%r1], [%r0], 4;\n", "cp.async.wait_group;\n",
        "cp.async.wait_group %r0;\n", "cp.async.wait_group -1;\n", "cp.async.wait_all 0;\n",
        "cp.async.commit;\n", "cp.async.ca.shared.global.L2::cache_hint [%r1], [%rd0], 4;\n"}) {
    EXPECT_THROW(run(bad), PtxError) << bad;
  }
}

TEST_F(CpAsync, CountsWhatItMoves) {
  const std::string body =
      addresses +
      "mov.u32 %r2, 12;\ncp.async.cg.shared.global [%r1], [%rd0], 16, %r2;\n"
      "mad.lo.u32 %r3, %r60, 128, %r0;\ncp.async.ca.shared.global [%r3+2048], [%rd0], 4;\n"
      "cp.async.wait_all;\n";
  const std::uint64_t in = device_.upload(input_);
  const auto program = load_program(kernel_of(body, buffer), device_.arch());
  const LaunchResult result = device_.run(kernel_of(body, buffer), {.block = {threads, 1, 1}}, {}, in, in);
  EXPECT_EQ(findings_of(result), "");
  for (std::size_t i = 0; i < result.counts.size(); ++i) {
    const std::string& name = program->kernels[0].info[i].name;
    if (name == "cp.async.cg.shared.global") {
      EXPECT_EQ(result.counts[i].global_read_bytes, threads * 12);
      EXPECT_EQ(result.counts[i].shared_write_bytes, threads * 16);
      EXPECT_EQ(result.counts[i].bank_wavefronts, 8u);
    }
    if (name == "cp.async.ca.shared.global") {
      EXPECT_EQ(result.counts[i].bank_wavefronts, 64u);
    }
  }
}

}  // namespace
}  // namespace jit::emulator::testing
