// setmaxnreg: registers that change hands between warpgroups.
#include <string>

#include <gtest/gtest.h>

#include "tests/support/ptx_run.h"

namespace jit::emulator {
namespace {

using namespace testing;

LaunchResult run(const std::string& body, unsigned threads, int registers_per_thread) {
  TestDevice device;
  return device.run(kernel_of(body), {.block = {threads, 1, 1}},
                    {.registers_per_thread = registers_per_thread}, std::uint64_t{0}, std::uint64_t{0});
}

bool found(const LaunchResult& result, FindingKind kind, const std::string& text) {
  for (const Finding& finding : result.findings) {
    if (finding.kind == kind && finding.message.find(text) != std::string::npos) return true;
  }
  return false;
}
std::string all_of(const LaunchResult& result) {
  std::string text;
  for (const Finding& finding : result.findings) text += to_string(finding) + "\n";
  return text;
}

/// The first warpgroup executes `first`, the others `rest`.
std::string two_roles(const std::string& first, const std::string& rest) {
  return "setp.ge.u32 %p1, %r60, 128;\n@%p1 bra rest;\n" + first + "bra end;\nrest:\n" + rest + "end:\n";
}

std::string increase(int count) { return "setmaxnreg.inc.sync.aligned.u32 " + std::to_string(count) + ";\n"; }
std::string decrease(int count) { return "setmaxnreg.dec.sync.aligned.u32 " + std::to_string(count) + ";\n"; }

TEST(SetMaxRegisters, WhatOneGroupFreesAnotherTakes) {
  // 3 · 168 = 24 + 2 · 240
  const LaunchResult result = run(two_roles(decrease(24), increase(240)), 384, 168);
  EXPECT_EQ(all_of(result), "");
}

TEST(SetMaxRegisters, TheDefaultIsWhatTheThreadsLeave) {
  // 65536 / 1024 = 64 registers for each thread.
  EXPECT_EQ(all_of(run(two_roles(decrease(56), increase(72)), 256, 0)), "");
  EXPECT_TRUE(found(run(decrease(72), 256, 0), FindingKind::register_limit, "has 64 registers"));
}

TEST(SetMaxRegisters, TakesInitialCountsInEights) {
  EXPECT_EQ(all_of(run(two_roles(decrease(160), increase(176)), 256, 161)), "");
}

TEST(SetMaxRegisters, WaitingForMoreThanThereIsIsADeadlock) {
  const LaunchResult result = run(two_roles(decrease(32), increase(240)), 384, 168);
  EXPECT_TRUE(found(result, FindingKind::deadlock, "registers of the block's pool")) << all_of(result);
}

TEST(SetMaxRegisters, DirectionMustFit) {
  EXPECT_TRUE(found(run(decrease(176), 128, 168), FindingKind::register_limit, ".dec cannot"));
  EXPECT_TRUE(found(run(increase(160), 128, 168), FindingKind::register_limit, ".inc cannot"));
  EXPECT_EQ(all_of(run(decrease(168) + increase(168), 128, 168)), "");
}

TEST(SetMaxRegisters, FreedRegistersMayNotHoldValues) {
  std::string values = ".reg .b32 %held<160>;\n", sum = "mov.u32 %r60, 0;\n";
  for (int i = 0; i < 160; ++i) {
    values += "add.u32 %held" + std::to_string(i) + ", %r60, " + std::to_string(i) + ";\n";
    sum += "add.u32 %r60, %r60, %held" + std::to_string(i) + ";\n";
  }
  sum += "setp.eq.u32 %p1, %r60, 1;\n@%p1 trap;\n";
  const LaunchResult result = run(values + decrease(32) + sum, 128, 168);
  EXPECT_TRUE(found(result, FindingKind::register_limit, "setmaxnreg left 32")) << all_of(result);
  EXPECT_EQ(all_of(run(values + decrease(88) + sum, 128, 168)), "");
}

TEST(SetMaxRegisters, AllWarpsOfTheGroupMustExecuteIt) {
  const LaunchResult result =
      run(two_roles(decrease(32), "setp.ge.u32 %p2, %r60, 224;\n@%p2 bra end;\n" + decrease(40)), 256, 168);
  EXPECT_TRUE(found(result, FindingKind::barrier_divergence, "warp 7 exits without it")) << all_of(result);
  EXPECT_TRUE(found(run(decrease(32), 192, 168), FindingKind::illegal_instruction, "128 threads"));
}

TEST(SetMaxRegisters, RefusesOtherCounts) {
  for (const int count : {16, 23, 100, 264}) {
    try {
      run(decrease(count), 128, 168);
      ADD_FAILURE() << count << " was accepted";
    } catch (const PtxError& error) {
      EXPECT_NE(std::string(error.what()).find("multiple of 8"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace jit::emulator
