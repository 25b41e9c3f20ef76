// Findings about tcgen05: each kernel that breaks a rule beside the one that keeps it.
#include <string>

#include <gtest/gtest.h>

#include "tests/tcgen05/tcgen05_run.h"

namespace jit::emulator::testing {
namespace {

class Tcgen05Findings : public ::testing::Test {
 protected:
  Tcgen05Problem problem{.n = 16, .steps = 2, .a_in_tensor_memory = true};
  std::string ptx = tcgen05_kernel(problem);
  LaunchOptions options;

  void use(const Tcgen05Problem& other) {
    problem = other;
    ptx = tcgen05_kernel(problem);
  }
  void replace(const std::string& from, const std::string& to, bool last = false) {
    const std::size_t at = last ? ptx.rfind(from) : ptx.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    ptx.replace(at, from.size(), to);
  }
  LaunchResult run() const { return Tcgen05Run(problem, Tcgen05Data(problem, 1), ptx, options).result; }
  void expect(FindingKind kind, const std::string& text) const {
    const std::string all = findings_of(run());
    EXPECT_NE(all.find(std::string(to_string(kind)) + " in"), std::string::npos)
        << "no " << to_string(kind) << " among\n"
        << all;
    EXPECT_NE(all.find(text), std::string::npos) << text << " is not in\n" << all;
  }
  void expect_at_both(FindingKind kind, const std::string& text) {
    for (const Level order : {Level::strict, Level::silicon}) {
      options.level = order;
      expect(kind, text);
    }
  }
  void expect_none() const { EXPECT_EQ(findings_of(run()), ""); }
};

TEST_F(Tcgen05Findings, NothingAboutAGoodKernel) {
  expect_none();
  use({.n = 16, .steps = 2});
  expect_none();
}

// Order among threads.

TEST_F(Tcgen05Findings, StoresThatNobodyWaitedFor) {
  replace(stores_over, "");
  expect_at_both(FindingKind::data_race, "tcgen05.st");
}

TEST_F(Tcgen05Findings, MissingFences) {
  replace(before + "bar.sync 1;\n" + after, "bar.sync 1;\n" + after);
  expect(FindingKind::missing_proxy_fence, "tcgen05.fence::before_thread_sync");
  options.level = Level::silicon;
  expect_none();
  use(problem);
  options = {};
  replace(before + "bar.sync 1;\n" + after, before + "bar.sync 1;\n");
  expect(FindingKind::missing_proxy_fence, "tcgen05.fence::after_thread_sync");
  use(problem);
  replace("wait;\n" + after, "wait;\n");
  expect(FindingKind::missing_proxy_fence, "tcgen05.mma");
  options.level = Level::silicon;
  expect_none();
}

TEST_F(Tcgen05Findings, MissingBarrierBehindStores) {
  replace("bar.sync 1;\n", "");
  expect_at_both(FindingKind::data_race, "tcgen05.st");
}

TEST_F(Tcgen05Findings, LoadsThatDoNotWaitForTheProduct) {
  replace(wait_for("%r14", "0", "wait"), "");
  expect_at_both(FindingKind::data_race, "tcgen05.mma");
}

TEST_F(Tcgen05Findings, LoadsThatWaitForTheOtherParity) {
  replace("], 0;\n  @!%p31 bra wait", "], 1;\n  @!%p31 bra wait");
  expect_at_both(FindingKind::data_race, "tcgen05.mma");
}

TEST_F(Tcgen05Findings, MissingCommitIsADeadlock) {
  replace(commit_line, "");
  expect_at_both(FindingKind::deadlock, "no warp can go on");
}

TEST_F(Tcgen05Findings, CommitBeforeTheLastProduct) {
  replace(commit_line, "");
  const std::string last = product_text(problem, 1);
  replace(last, commit_line + last);
  expect_at_both(FindingKind::data_race, "tcgen05.mma");
  expect(FindingKind::unfinished_copy, "no tcgen05.commit covers");
}

TEST_F(Tcgen05Findings, CommitOfAnotherThread) {
  std::string other = commit_line;
  other.replace(0, 4, "@%p8");
  replace(commit_line, "setp.eq.u32 %p8, %r60, 40;\n" + other);
  expect_at_both(FindingKind::barrier_misuse, "has issued no tcgen05 operation");
  expect(FindingKind::data_race, "tcgen05.mma");
}

TEST_F(Tcgen05Findings, RegistersArriveBeforeTheyAreLoaded) {
  // A second product overwrites D, which the loads may still be reading.
  const std::string loads = "tcgen05.wait::ld.sync.aligned;\n";
  while (ptx.find(loads) != std::string::npos) replace(loads, "");
  const std::string bar = before + "bar.sync 2;\n" + after;
  const std::string again = "@%p5 tcgen05.mma.cta_group::1.kind::f16 [%r12], [%r12+16], %rd51, %r13, 0;\n" +
                            commit_line + wait_for("%r14", "1", "again") + after;
  const std::string unread = "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r20}, [%r11];\n";
  replace(bar, unread + bar + again + "add.u32 %r21, %r20, 0;\n");
  expect_at_both(FindingKind::data_race, "read with tcgen05.ld");
  // On silicon a register that was used in front of the barrier has been loaded.
  replace(unread, unread + "add.u32 %r21, %r20, 0;\n");
  options.level = Level::silicon;
  expect_none();
  options.level = Level::strict;
  expect(FindingKind::data_race, "read with tcgen05.ld");
  replace(unread, unread + loads);
  const std::string first = "%r11+8];\n";
  replace(first, first + loads);
  expect_none();
}

TEST_F(Tcgen05Findings, MissingProxyFence) {
  replace("fence.proxy.async;\n", "");
  expect_at_both(FindingKind::missing_proxy_fence, "fence.proxy.async");
}

TEST_F(Tcgen05Findings, OperandsOverwrittenInFlight) {
  use({.n = 16, .steps = 2});
  replace(commit_line, commit_line + "@%p5 st.shared.b32 [%r1], %r1;\n");
  expect_at_both(FindingKind::data_race, "shared memory");
}

TEST_F(Tcgen05Findings, SumsRescaledInFlight) {
  replace(commit_line, commit_line + "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r11], {%r1};\n");
  expect_at_both(FindingKind::data_race, "is still to write");
}

TEST_F(Tcgen05Findings, CopyByAnotherThread) {
  use({.n = 16, .steps = 1});
  // Over the columns of D, which the product adds to.
  const std::string copy = "tcgen05.cp.cta_group::1.128x128b [%r12], %rd50;\n";
  const std::string first = product_text(problem, 0);
  replace(first, "@%p5 " + copy + first);
  expect_none();
  replace("@%p5 " + copy, "setp.eq.u32 %p8, %r60, 33;\n@%p8 " + copy);
  expect_at_both(FindingKind::data_race, "tcgen05.cp");
}

TEST_F(Tcgen05Findings, StoresOverWhatAProductReads) {
  // P of the next tile over P that the tensor cores have not read.
  replace(commit_line, commit_line + "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r11+16], {%r1};\n");
  expect_at_both(FindingKind::data_race, "read with tcgen05.mma");
}

// The product in front of it has written the columns of A, and no store has since.
TEST_F(Tcgen05Findings, SumsAreNoElements) {
  const std::string product = product_text(problem, 0), place = "[%r12+" + std::to_string(problem.n) + "]";
  std::string other = product;
  other.replace(other.find("[%r12]"), 6, place);
  replace(product, other + product);
  expect_at_both(FindingKind::uninitialized_read, "which holds sums of tcgen05.mma");
}

TEST_F(Tcgen05Findings, ProductOfNothing) {
  use({.n = 16, .steps = 1, .accumulate = false});
  replace("setp.ne.u32 %p9, 0, 0", "setp.ne.u32 %p9, 1, 0");
  expect_at_both(FindingKind::uninitialized_read, "never written");
}

// Addresses.

TEST_F(Tcgen05Findings, LanesOfAnotherWarp) {
  replace("and.b32 %r10, %r60, 96", "and.b32 %r10, %r60, 64");
  expect_at_both(FindingKind::illegal_instruction, "of the block reaches lanes");
}

TEST_F(Tcgen05Findings, AddressThatDiffers) {
  replace("add.u32 %r11, %r16, %r10", "add.u32 %r11, %r60, %r10");
  expect_at_both(FindingKind::illegal_instruction, "must be the same in all lanes");
}

TEST_F(Tcgen05Findings, ColumnsOfNobody) {
  replace("[%r11+8]", "[%r11+25]");
  expect_at_both(FindingKind::out_of_bounds, "column 32 is not allocated");
  use(problem);
  replace("[%r11+8]", "[%r11+510]");
  expect_at_both(FindingKind::out_of_bounds, "column 510 is not allocated");
  use(problem);
  replace("[%r12]", "[%r12+20]");
  expect_at_both(FindingKind::out_of_bounds, "D takes columns 20 to 35");
}

// Allocation.

TEST_F(Tcgen05Findings, SizesThatAreNotHandedOut) {
  for (const char* const size : {"96", "16", "1024", "0"}) {
    use(problem);
    replace(alloc_line + "32", alloc_line + size);
    expect_at_both(FindingKind::illegal_instruction, "powers of 2 from 32 to 512");
  }
}

TEST_F(Tcgen05Findings, AllocationBehindThePermit) {
  replace(relinquish_line, relinquish_line + alloc_line + "32;\n");
  expect_at_both(FindingKind::illegal_instruction, "behind tcgen05.relinquish_alloc_permit");
}

TEST_F(Tcgen05Findings, GrowingAllocations) {
  replace(alloc_line + "32;\n", alloc_line + "32;\n" + alloc_line + "64;\n");
  expect_at_both(FindingKind::illegal_instruction, "may not grow");
}

TEST_F(Tcgen05Findings, ColumnsThatAreNotGivenBack) {
  replace(dealloc_line + "32;\n", "");
  expect_at_both(FindingKind::unfinished_copy, "no tcgen05.dealloc");
  use(problem);
  replace(dealloc_line + "32", dealloc_line + "64");
  expect_at_both(FindingKind::illegal_instruction, "has not given out: it gave 32");
}

TEST_F(Tcgen05Findings, ColumnsGivenBackTooEarly) {
  replace("bar.sync 2;\n", "");
  expect_at_both(FindingKind::data_race, "gives back");
}

TEST_F(Tcgen05Findings, AllocationThatNeverComes) {
  replace(alloc_line + "32;\n", alloc_line + "512;\n" + alloc_line + "32;\n");
  expect_at_both(FindingKind::deadlock, "columns of tensor memory, of which 512 are taken");
}

// Descriptors.

TEST_F(Tcgen05Findings, MatrixDescriptors) {
  use({.n = 16, .steps = 2});
  const std::uint64_t good = tcgen05_descriptor(problem.b_layout());
  const auto with = [&](std::uint64_t bits, const std::string& text) {
    use(problem);
    replace(std::to_string(good), std::to_string(bits));
    expect_at_both(FindingKind::bad_descriptor, text);
  };
  with(good ^ std::uint64_t{1} << 46, "bits 46 to 48 must be 1");
  with(good ^ std::uint64_t{1} << 55, "must be 0");
  with(good ^ std::uint64_t{1} << 61, "swizzle 3 is none");
  with((good & ~(std::uint64_t{7} << 61)) | std::uint64_t{1} << 61, "swizzle 1");
}

TEST_F(Tcgen05Findings, InstructionDescriptors) {
  const std::uint32_t good = problem.instruction();
  const auto with = [&](std::uint32_t bits, const std::string& text) {
    use(problem);
    replace("mov.u32 %r13, " + std::to_string(good), "mov.u32 %r13, " + std::to_string(bits));
    expect_at_both(FindingKind::illegal_instruction, text);
  };
  with(good ^ 1u << 6, "must be 0");
  with(good ^ 1u << 29, "must be 0");
  with(good ^ 1u << 17, "N 24 is none");
  with(good ^ 1u << 24, "M 144 is none");
  with(good ^ 2u << 7, "types");
  with(good ^ 2u << 4, "type 3 of D");
  with(good ^ 3u << 4, "type 2 of D");
  with(good | 1u << 15, "its transpose bit is set");
}

TEST_F(Tcgen05Findings, LanesOfDAndA) {
  use({.m = 64, .n = 8, .steps = 1, .a_in_tensor_memory = true});
  replace("[%r12+8]", "[%r12+1048584]");
  expect_at_both(FindingKind::illegal_instruction, "A lies in the lanes of D");
  use({.n = 16});
  replace("add.u32 %r12, %r16, 0", "add.u32 %r12, %r16, 1048576");
  expect_at_both(FindingKind::illegal_instruction, "begins at lane 0 of tensor memory, not at 16");
}

TEST_F(Tcgen05Findings, ProductByAllLanes) {
  replace("setp.eq.u32 %p5, %r60, 0;\n@%p5 mbar",
          "setp.lt.u32 %p5, %r60, 32;\nsetp.eq.u32 %p8, %r60, 0;\n@%p8 mbar");
  expect_at_both(FindingKind::illegal_instruction, "32 lanes issue it");
}

TEST_F(Tcgen05Findings, MixedGroups) {
  replace("alloc.cta_group::1", "alloc.cta_group::2");
  expect_at_both(FindingKind::illegal_instruction, "takes a pair of blocks");
  use(problem);
  replace("relinquish_alloc_permit.cta_group::1", "relinquish_alloc_permit.cta_group::2");
  expect_at_both(FindingKind::illegal_instruction, "the same .cta_group");
}

}  // namespace
}  // namespace jit::emulator::testing
