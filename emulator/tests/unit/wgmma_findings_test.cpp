// Findings of the emulator about wgmma: each kernel that breaks a rule beside the one that keeps it.
#include <string>

#include <gtest/gtest.h>

#include "tests/unit/wgmma_run.h"

namespace jit::emulator {
namespace {

using namespace testing;

const std::string fence = "wgmma.fence.sync.aligned;\n";
const std::string commit = "wgmma.commit_group.sync.aligned;\n";
const std::string wait = "wgmma.wait_group.sync.aligned 0;\n";
const std::string proxy_fence = "fence.proxy.async;\n";

class WgmmaFindings : public ::testing::Test {
 protected:
  WgmmaProblem problem{.n = 16, .steps = 2};
  std::string ptx = wgmma_kernel(problem);

  void use(const WgmmaProblem& other) {
    problem = other;
    ptx = wgmma_kernel(problem);
  }
  void replace(const std::string& from, const std::string& to) {
    const std::size_t at = ptx.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    ptx.replace(at, from.size(), to);
  }
  void insert_after(const std::string& line, const std::string& what) { replace(line, line + what); }
  void insert_before(const std::string& line, const std::string& what) { replace(line, what + line); }

  WgmmaRun run(unsigned threads = 128) const { return {problem, WgmmaData(problem, 1), ptx, {}, threads}; }
  void expect(FindingKind kind, const std::string& text) const {
    const WgmmaRun result = run();
    EXPECT_TRUE(result.found(kind)) << "no " << to_string(kind) << " among\n" << result.findings();
    EXPECT_NE(result.findings().find(text), std::string::npos) << text << " is not in\n" << result.findings();
  }
  void expect_none() const { EXPECT_EQ(run().findings(), ""); }
};

TEST_F(WgmmaFindings, NothingAboutAGoodKernel) {
  expect_none();
  use({.n = 16, .steps = 2, .a_in_registers = true});
  expect_none();
}

TEST_F(WgmmaFindings, MissingProxyFence) {
  replace(proxy_fence, "");
  expect(FindingKind::missing_proxy_fence, "fence.proxy.async");
}

TEST_F(WgmmaFindings, MissingBarrierIsARace) {
  replace("bar.sync 0;\n", "");
  expect(FindingKind::data_race, "st.shared.b32");
}

TEST_F(WgmmaFindings, OverwritingAnOperandInFlightIsARace) {
  const std::string store = "bar.sync 0;\nmov.u32 %r7, 0;\nst.shared.b32 [%r1], %r7;\n";
  insert_before(wait, store);
  EXPECT_TRUE(run().found(FindingKind::data_race) || run().found(FindingKind::missing_proxy_fence))
      << run().findings();
}

TEST_F(WgmmaFindings, OverwritingAnOperandAfterTheWaitNeedsABarrier) {
  const std::string store =
      "setp.ne.u32 %p2, %r60, 0;\n@%p2 bra after;\nmov.u32 %r7, 0;\nst.shared.b32 [%r1], %r7;\nafter:\n";
  insert_after(wait, store);
  expect_none();  // thread 0 overwrites what its own warp alone has read: a row of A
  ptx = wgmma_kernel(problem);
  const std::string b = std::to_string(problem.b_begin());
  const std::string store_b =
      "setp.ne.u32 %p2, %r60, 0;\n@%p2 bra after;\nmov.u32 %r7, 0;\nst.shared.b32 [%r1+" + b +
      "], %r7;\nafter:\n";
  insert_after(wait, store_b);
  expect(FindingKind::data_race, "writes");
  replace(store_b, "bar.sync 0;\n" + store_b);
  expect_none();
}

TEST_F(WgmmaFindings, MissingWgmmaFence) {
  replace(fence, "");
  expect(FindingKind::access_in_flight, "no wgmma.fence");
}

TEST_F(WgmmaFindings, AccumulatorWrittenAfterTheFence) {
  insert_after(fence, "mov.b32 %d3, 0;\n");
  expect(FindingKind::access_in_flight, "register of D was written after the last wgmma.fence");
}

TEST_F(WgmmaFindings, RegisterOfAWrittenAfterTheFence) {
  use({.n = 16, .steps = 2, .a_in_registers = true});
  insert_after(fence, "mov.b32 %a5, 0;\n");
  expect(FindingKind::access_in_flight, "register of A was written after the last wgmma.fence");
}

TEST_F(WgmmaFindings, AnotherShapeOnTheSameAccumulatorNeedsAFence) {
  const std::string more = "wgmma.mma_async.sync.aligned.m64n16k8.f32.tf32.tf32 " + registers("%d", 0, 8) +
                           ", %rd50, %rd51, 1, 1, 1;\n";
  insert_after(wait, more + commit + wait);
  expect(FindingKind::access_in_flight, "of the same shape");
  replace(more, fence + more);
  expect_none();
}

TEST_F(WgmmaFindings, AccumulatorReadBeforeTheWait) {
  insert_before(wait, "add.u32 %r7, %d5, 1;\n");
  expect(FindingKind::access_in_flight, "is read before wgmma.wait_group");
}

TEST_F(WgmmaFindings, AccumulatorInFlightIsPoisoned) {
  const std::string store = "st.global.b32 [%rd3], %d0;\n";
  replace(wait, "wgmma.wait_group.sync.aligned 1;\n" + store + "bra end;\n");
  replace("\n  ret;", "\nend:\n" + wait + "  ret;");
  const WgmmaRun result = run();
  EXPECT_TRUE(result.found(FindingKind::access_in_flight));
  EXPECT_EQ(result.words[0], 0xffffffffu);
}

TEST_F(WgmmaFindings, AccumulatorWrittenBeforeTheWait) {
  insert_before(wait, "mov.b32 %d5, 0;\n");
  expect(FindingKind::access_in_flight, "is written before wgmma.wait_group");
}

TEST_F(WgmmaFindings, RegisterOfAWrittenBeforeTheWait) {
  use({.n = 16, .a_in_registers = true});
  insert_before(wait, "mov.b32 %a2, 0;\n");
  expect(FindingKind::access_in_flight, "is written before wgmma.wait_group");
  ptx = wgmma_kernel(problem);
  insert_before(wait, "add.u32 %r7, %a2, 1;\n");
  insert_after(wait, "mov.b32 %a2, 0;\n");
  expect_none();  // reading it, and writing it after the wait
}

TEST_F(WgmmaFindings, AccumulatorOfOneGroupAsOperandOfAnother) {
  use({.n = 16, .a_in_registers = true});
  const std::string more =
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%e0, %e1, %e2, %e3, %e4, "
      "%e5, %e6, %e7}, {%d0, %d1, %d2, %d3}, %rd53, 0, 1, 1, 0;\n";
  insert_before(commit, ".reg .b32 %e<8>;\n" + more);
  expect(FindingKind::access_in_flight, "is in A here");
  ptx = wgmma_kernel(problem);
  insert_before(commit,
                ".reg .b32 %e<8>;\n"
                "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%d4, %d5, %d6, %d7}, {%a0, %a1, "
                "%a2, %a3}, %rd53, 1, 1, 1, 0;\n");
  expect(FindingKind::access_in_flight, "is in D here");
}

TEST_F(WgmmaFindings, NobodyWaits) {
  replace(wait, "bra end;\n");
  replace("\n  ret;", "\nend:\n  ret;");
  expect(FindingKind::unfinished_copy, "2 wgmma.mma_async");
}

TEST_F(WgmmaFindings, OneWarpDoesNotTakePart) {
  const std::string body = ptx.substr(ptx.find(fence), ptx.find(wait) + wait.size() - ptx.find(fence));
  replace(body, "setp.ge.u32 %p2, %r60, 96;\n@%p2 bra skip;\n" + body + "skip:\n");
  const WgmmaRun result = run();
  EXPECT_TRUE(result.found(FindingKind::barrier_divergence)) << result.findings();
  EXPECT_TRUE(result.found(FindingKind::deadlock)) << result.findings();
  EXPECT_NE(result.findings().find("warp 3 of its warpgroup has not issued"), std::string::npos)
      << result.findings();
}

TEST_F(WgmmaFindings, WarpsTakeDifferentInstructions) {
  const std::string product = product_text(problem, 0);
  replace(product, "setp.ge.u32 %p2, %r60, 96;\n@%p2 bra other;\n" + product + "bra both;\nother:\n" +
                       product + "both:\n");
  expect(FindingKind::barrier_divergence, "must execute it together");
}

TEST_F(WgmmaFindings, WarpsTakeDifferentDescriptors) {
  const std::string shift =
      "setp.ge.u32 %p2, %r60, 96;\nmov.b64 %rd7, 0;\n@%p2 mov.b64 %rd7, 64;\nadd.s64 %rd51, %rd51, %rd7;\n";
  insert_before(fence, shift);
  expect(FindingKind::bad_descriptor, "must be the same in the four warps");
}

TEST_F(WgmmaFindings, LanesHoldDifferentDescriptors) {
  insert_before(fence, "cvt.u64.u32 %rd7, %r60;\nshl.b64 %rd7, %rd7, 1;\nadd.s64 %rd51, %rd51, %rd7;\n");
  expect(FindingKind::bad_descriptor, "must be the same in all threads");
}

TEST_F(WgmmaFindings, LanesScaleDifferently) {
  insert_before(fence, "setp.ne.u32 %p9, %r60, 17;\n");
  expect(FindingKind::illegal_instruction, "scale-d must be the same");
}

TEST_F(WgmmaFindings, ReservedBitsOfTheDescriptor) {
  insert_before(fence, "or.b64 %rd50, %rd50, 0x0000400000000000;\n");
  expect(FindingKind::bad_descriptor, "the descriptor of A");
  expect(FindingKind::bad_descriptor, "must be 0");
}

TEST_F(WgmmaFindings, StepBeyondTheRowOfTheSwizzle) {
  insert_before(fence, "add.s64 %rd51, %rd51, 7;\n");
  expect(FindingKind::bad_descriptor, "the descriptor of B");
  expect(FindingKind::bad_descriptor, "128-byte swizzle");
}

TEST_F(WgmmaFindings, OperandBeyondSharedMemory) {
  insert_before(fence, "or.b64 %rd51, %rd51, 0x00003f0000000000;\n");
  expect(FindingKind::out_of_bounds, "shared memory");
}

TEST_F(WgmmaFindings, BlockWithoutAWholeWarpgroup) {
  const WgmmaRun result = run(96);
  EXPECT_TRUE(result.found(FindingKind::illegal_instruction)) << result.findings();
  EXPECT_NE(result.findings().find("128 threads"), std::string::npos) << result.findings();
}

}  // namespace
}  // namespace jit::emulator
