#include "runtime/resource_usage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace jit {
namespace {

constexpr std::string_view spilling_log =
    R"(ptxas info    : Overriding maximum register limit 256 for 'k' with  24 of maxrregcount option
ptxas warning : Local memory used for function 'k', size of stack frame: 1792 bytes
ptxas warning : Registers are spilled to local memory in function 'k', 1700 bytes spill stores, 1984 bytes spill loads
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k' for 'sm_90a'
ptxas info    : Function properties for k
ptxas         .     1792 bytes stack frame, 1700 bytes spill stores, 1984 bytes spill loads
ptxas info    : Used 24 registers, used 1 barriers, 1792 bytes cumulative stack size
ptxas info    : Compile time = 91.313 ms
)";

constexpr std::string_view two_entries_log =
    R"(/jit-attention/kernel.cu(3): warning #177-D: variable "unused" was declared but never referenced
  extern "C" __global__ void k2(int*p){int unused; 77 bytes smem

ptxas info    : 0 bytes gmem
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized in function 'k2'
ptxas info    : Compiling entry function 'k2' for 'sm_80'
ptxas info    : Function properties for k2
    160 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers, 160 bytes cumulative stack size, 360 bytes cmem[0]
ptxas info    : Function properties for _Z1gPii
    0 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Compiling entry function 'k1' for 'sm_80'
ptxas info    : Function properties for k1
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, used 3 barriers, 400 bytes smem, 360 bytes cmem[0]
)";

TEST(ResourceUsage, ReadsSpillsAndStack) {
  const ResourceUsage usage = parse_resource_usage(spilling_log, "k");
  EXPECT_EQ(usage.registers, 24);
  EXPECT_EQ(usage.spill_store_bytes, 1700);
  EXPECT_EQ(usage.spill_load_bytes, 1984);
  EXPECT_EQ(usage.spill_bytes(), 3684);
  EXPECT_EQ(usage.stack_bytes, 1792);
  EXPECT_EQ(usage.barriers, 1);
  EXPECT_EQ(usage.static_smem_bytes, 0);
  EXPECT_THAT(usage.remarks, testing::ElementsAre(testing::HasSubstr("Local memory used"),
                                                  testing::HasSubstr("Registers are spilled")));
}

TEST(ResourceUsage, TakesTheNamedEntry) {
  const ResourceUsage usage = parse_resource_usage(two_entries_log, "k1");
  EXPECT_EQ(usage.registers, 40);
  EXPECT_EQ(usage.barriers, 3);
  EXPECT_EQ(usage.static_smem_bytes, 400);
  EXPECT_EQ(usage.stack_bytes, 0);
  EXPECT_EQ(usage.spill_bytes(), 0);
}

TEST(ResourceUsage, ChargesAnEntryWithTheFunctionsThatItCalls) {
  const ResourceUsage usage = parse_resource_usage(two_entries_log, "k2");
  EXPECT_EQ(usage.registers, 32);
  EXPECT_EQ(usage.barriers, 0);
  EXPECT_EQ(usage.stack_bytes, 160);
  EXPECT_EQ(usage.spill_store_bytes, 8);
  EXPECT_EQ(usage.spill_load_bytes, 12);
}

TEST(ResourceUsage, TakesTheLargestOfAllWithoutAName) {
  for (const char* name : {"", "absent"}) {
    const ResourceUsage usage = parse_resource_usage(two_entries_log, name);
    EXPECT_EQ(usage.registers, 40);
    EXPECT_EQ(usage.stack_bytes, 160);
    EXPECT_EQ(usage.static_smem_bytes, 400);
    EXPECT_EQ(usage.spill_bytes(), 20);
  }
}

TEST(ResourceUsage, KeepsAdviceOfTheAssemblerAndNoneOfTheFrontEnd) {
  EXPECT_THAT(parse_resource_usage(two_entries_log, "").remarks,
              testing::ElementsAre(testing::HasSubstr("(C7510)")));
}

TEST(ResourceUsage, LocalMemoryOfTheProgramIsNoSpill) {
  ResourceUsage usage;
  usage.stack_bytes = 32;
  EXPECT_TRUE(usage.is_clean());
  usage.spill_load_bytes = 8;
  EXPECT_FALSE(usage.is_clean());
  EXPECT_FALSE(parse_resource_usage(spilling_log, "k").is_clean());
  EXPECT_FALSE(parse_resource_usage(two_entries_log, "k1").is_clean()) << "C7510";
}

TEST(ResourceUsage, SkipsWhatItDoesNotUnderstand) {
  EXPECT_EQ(parse_resource_usage("", "k"), ResourceUsage());
  EXPECT_EQ(parse_resource_usage("ptxas info : Used many registers\n bytes smem", "k"), ResourceUsage());
  EXPECT_EQ(parse_resource_usage("ptxas info : Used 99999999999999 registers", "").registers, 0);
  EXPECT_EQ(parse_resource_usage("ptxas info : Compiling entry function '", ""), ResourceUsage());
}

}  // namespace
}  // namespace jit
