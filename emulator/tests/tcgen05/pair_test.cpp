// Products by a pair of blocks, .cta_group::2.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/tcgen05/tcgen05_run.h"

namespace jit::emulator::testing {
namespace {

const std::string meet = "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n";
const std::string commit =
    "@%p6 tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r14], "
    "%h1;\n";

/// Each block holds half of A's rows and of B's columns.
struct PairProblem {
  int m = 256, n = 64, steps = 2;
  int k() const { return 16 * steps; }
  TileLayout a() const { return {true, 128, 2, m / 2, 64}; }
  TileLayout b() const { return {true, 128, 2, n / 2, 64}; }
  int smem_bytes() const { return a().bytes() + (b().bytes() + 1023) / 1024 * 1024; }
  /// D's columns in tensor memory.
  int columns() const { return m == 256 ? n : n / 2; }
};

std::string pair_kernel(const PairProblem& problem) {
  const std::string size = std::to_string(problem.smem_bytes());
  const std::uint32_t instruction = 1u << 4 | 1u << 7 | 1u << 10 |
                                    static_cast<std::uint32_t>(problem.n / 8) << 17 |
                                    static_cast<std::uint32_t>(problem.m / 16) << 24;
  std::string body =
      "mov.u32 %r61, %cluster_ctarank;\nmul.wide.u32 %rd1, %r60, 4;\nmul.wide.u32 %rd5, %r61, " + size +
      ";\nadd.s64 %rd2, %rd60, %rd1;\nadd.s64 %rd2, %rd2, %rd5;\nmov.u32 %r1, tile;\nshl.b32 %r2, %r60, 2;\n"
      "add.u32 %r3, %r1, %r2;\nadd.u32 %r4, %r1, " +
      size +
      ";\nfill:\nld.global.b32 %r5, [%rd2];\nst.shared.b32 [%r3], %r5;\nadd.s64 %rd2, %rd2, 512;\n"
      "add.u32 %r3, %r3, 512;\nsetp.lt.u32 %p1, %r3, %r4;\n@%p1 bra fill;\n"
      "mov.u32 %r14, done;\nmov.u32 %r15, place;\nsetp.lt.u32 %p4, %r60, 32;\nsetp.eq.u32 %p5, %r60, 0;\n"
      "setp.eq.and.u32 %p6, %r61, 0, %p5;\nmov.b16 %h1, 3;\n"
      "@%p5 mbarrier.init.shared::cta.b64 [%r14], 1;\nfence.mbarrier_init.release.cluster;\n"
      "@%p4 tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r15], 128;\n"
      "@%p4 tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;\nfence.proxy.async;\n" +
      meet + "ld.shared.b32 %r16, [%r15];\nmov.u32 %r13, " + std::to_string(instruction) +
      ";\nand.b32 %r6, %r1, 262143;\nshr.u32 %r6, %r6, 4;\ncvt.u64.u32 %rd4, %r6;\nor.b64 %rd50, %rd4, " +
      std::to_string(tcgen05_descriptor(problem.a())) + ";\nadd.s64 %rd4, %rd4, " +
      std::to_string(problem.a().bytes() / 16) + ";\nor.b64 %rd51, %rd4, " +
      std::to_string(tcgen05_descriptor(problem.b())) + ";\n";
  for (int step = 0; step < problem.steps; ++step) {
    body += "add.s64 %rd52, %rd50, " + std::to_string(2 * step) + ";\nadd.s64 %rd53, %rd51, " +
            std::to_string(2 * step) +
            ";\n@%p6 tcgen05.mma.cta_group::2.kind::f16 [%r16], %rd52, %rd53, %r13, " +
            (step == 0 ? "0" : "1") + ";\n";
  }
  body += commit + wait_for("%r14", "0", "wait") + after +
          "and.b32 %r10, %r60, 96;\nshl.b32 %r10, %r10, 16;\nadd.u32 %r11, %r16, %r10;\nmul.wide.u32 %rd6, "
          "%r61, " +
          std::to_string(512 * problem.columns()) +
          ";\nadd.s64 %rd3, %rd61, %rd1;\nadd.s64 %rd3, %rd3, %rd6;\n";
  for (int i = 0; i < problem.columns(); ++i) {
    body += "tcgen05.ld.sync.aligned.32x32b.x1.b32 %r20, [%r11+" + std::to_string(i) +
            "];\ntcgen05.wait::ld.sync.aligned;\nst.global.b32 [%rd3+" + std::to_string(512 * i) +
            "], %r20;\n";
  }
  body += before + meet + "@%p4 tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r16, 128;\n";
  return kernel_of(body,
                   ".shared .align 1024 .b8 tile[" + size +
                       "];\n.shared .align 8 .b64 done;\n.shared .align 4 .b32 place;\n",
                   "sm_100a");
}

struct PairRun {
  std::vector<std::uint32_t> a, b, words;
  LaunchResult result;

  PairRun(const PairProblem& problem, const std::string& ptx, std::uint64_t seed = 0) {
    std::mt19937 random(5);
    a.resize(static_cast<std::size_t>(problem.m * problem.k()));
    b.resize(static_cast<std::size_t>(problem.n * problem.k()));
    for (auto* const list : {&a, &b}) {
      for (std::uint32_t& x : *list) x = random_element(bf16_numbers, random, false);
    }
    std::vector<std::uint32_t> image(static_cast<std::size_t>(problem.smem_bytes() / 2), 0);
    const auto put = [&](int begin, const TileLayout& layout, const std::vector<std::uint32_t>& from,
                         int lines) {
      for (int line = 0; line < lines; ++line) {
        for (int i = 0; i < problem.k(); ++i) {
          const int half = line / (lines / 2);
          const int at = half * problem.smem_bytes() + begin + layout.offset(line % (lines / 2), i);
          image[static_cast<std::size_t>(at / 4)] |= from[static_cast<std::size_t>(line * problem.k() + i)]
                                                     << (at % 4 * 8);
        }
      }
    };
    put(0, problem.a(), a, problem.m);
    put(problem.a().bytes(), problem.b(), b, problem.n);
    TestDevice device({10, 0, 'a'});
    const std::uint64_t in = device.upload(image);
    const auto count = static_cast<std::size_t>(256 * problem.columns());
    const std::uint64_t out = device.upload(std::vector<std::uint32_t>(count, 0));
    LaunchOptions options;
    options.seed = seed;
    result =
        device.run(ptx, {.grid = {2, 1, 1}, .block = {128, 1, 1}, .cluster = {2, 1, 1}}, options, in, out);
    words = device.download<std::uint32_t>(out, count);
  }
};

TEST(Tcgen05Pair, Multiplies) {
  for (const int m : {256, 128}) {
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      const PairProblem problem{.m = m};
      const PairRun run(problem, pair_kernel(problem), seed);
      ASSERT_EQ(findings_of(run.result), "");
      for (int row = 0; row < m; ++row) {
        for (int column = 0; column < problem.n; ++column) {
          std::uint32_t sum = 0;
          for (int step = 0; step < problem.steps; ++step) {
            std::vector<std::uint32_t> x, y;
            for (int i = 16 * step; i < 16 * step + 16; ++i) {
              x.push_back(run.a[static_cast<std::size_t>(row * problem.k() + i)]);
              y.push_back(run.b[static_cast<std::size_t>(column * problem.k() + i)]);
            }
            sum = reference_sum({.group = 16, .fraction_bits = 25}, bf16_numbers, bf16_numbers, x, y, sum);
          }
          // Each block has 64 of 128 rows, and the second half of the columns in the upper lanes.
          const int block = row / (m / 2), half = m == 256 ? 0 : column / (problem.n / 2);
          const int lane = row % (m / 2) + 64 * half, at = column - half * problem.n / 2;
          ASSERT_EQ(run.words[static_cast<std::size_t>((block * problem.columns() + at) * 128 + lane)], sum)
              << "m " << m << " row " << row << " column " << column;
        }
      }
    }
  }
}

class PairFindings : public ::testing::Test {
 protected:
  const PairProblem problem{.n = 32};
  std::string ptx = pair_kernel(problem);

  void replace(const std::string& from, const std::string& to, bool last = false) {
    const std::size_t at = last ? ptx.rfind(from) : ptx.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    ptx.replace(at, from.size(), to);
  }
  void expect(FindingKind kind, const std::string& text) const {
    const std::string all = findings_of(PairRun(problem, ptx).result);
    EXPECT_NE(all.find(std::string(to_string(kind)) + " in"), std::string::npos) << all;
    EXPECT_NE(all.find(text), std::string::npos) << text << " is not in\n" << all;
  }
};

TEST_F(PairFindings, CommitWithNothingToWaitFor) {
  replace(after, after + commit, false);
  expect(FindingKind::barrier_misuse, "silicon arrives in the own block alone");
}

TEST_F(PairFindings, CommitToTheLeaderAlone) {
  replace("mov.b16 %h1, 3", "mov.b16 %h1, 1");
  expect(FindingKind::deadlock, "block 1");
}

TEST_F(PairFindings, OperandsThatThePeerHasNotWritten) {
  replace("fence.proxy.async;\n" + meet, "fence.proxy.async;\nbar.sync 0;\n");
  expect(FindingKind::data_race, "");
}

TEST_F(PairFindings, AllocationWithoutThePeer) {
  replace("@%p4 tcgen05.alloc", "setp.lt.and.u32 %p7, %r61, 1, %p4;\n@%p7 tcgen05.alloc");
  expect(FindingKind::deadlock, "together with the other block of the pair");
}

TEST_F(PairFindings, PeerThatExits) {
  replace(meet, meet + "setp.ne.u32 %p8, %r61, 0;\n@%p8 exit;\n");
  expect(FindingKind::access_in_flight, "exits before this product is complete");
}

TEST_F(PairFindings, LessThanAColumnForEach) {
  replace("mov.u32 %r13, ", "mov.u32 %r13, 131072;\nxor.b32 %r13, %r13, ");
  expect(FindingKind::illegal_instruction, "N 40 is none of a product with M 256");
}

TEST_F(PairFindings, ProductsOfTheOtherBlock) {
  replace("setp.eq.and.u32 %p6, %r61, 0, %p5", "setp.eq.and.u32 %p6, %r61, 1, %p5");
  expect(FindingKind::illegal_instruction, "the leader of a pair");
}

}  // namespace
}  // namespace jit::emulator::testing
