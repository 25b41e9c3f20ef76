#include <jit/arch.h>
#include <jit/device.h>
#include <jit/error.h>

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace jit {
namespace {

TEST(Arch, EveryKnownArchSurvivesPrintingAndParsing) {
  for (Arch arch : known_archs()) {
    EXPECT_EQ(parse_arch(to_string(arch)), arch);
    EXPECT_EQ(parse_arch(to_string(arch).substr(3)), arch);
  }
  EXPECT_EQ(to_string(parse_arch("sm_90a")), "sm_90a");
  EXPECT_EQ(parse_arch("80"), (Arch{8, 0}));
  EXPECT_EQ(parse_arch("sm_120f"), (Arch{12, 0, 'f'}));
}

TEST(Arch, KnownArchsAscendWithoutRepetition) {
  const std::vector<Arch>& archs = known_archs();
  EXPECT_TRUE(std::is_sorted(archs.begin(), archs.end()));
  EXPECT_EQ(std::adjacent_find(archs.begin(), archs.end()), archs.end());
}

TEST(Arch, RefusesWhatItDoesNotKnowAndNamesWhatItDoes) {
  for (const char* text :
       {"", "sm_", "sm_75", "sm_9", "sm_90b", "sm_90aa", "SM_90", "compute_90", " sm_90", "90 a"}) {
    try {
      parse_arch(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.message(), testing::HasSubstr("sm_80, sm_86"));
      EXPECT_THAT(error.message(), testing::HasSubstr("sm_90a"));
    }
  }
}

TEST(Arch, CubinsRunWhereTheDriverLoadsThem) {
  EXPECT_TRUE(runs_on({8, 0}, {8, 0}));
  EXPECT_TRUE(runs_on({8, 0}, {8, 9}));
  EXPECT_FALSE(runs_on({8, 9}, {8, 6}));
  EXPECT_FALSE(runs_on({8, 0}, {9, 0}));
  EXPECT_TRUE(runs_on({9, 0, 'a'}, {9, 0}));
  EXPECT_TRUE(runs_on({9, 0, 'a'}, {9, 0, 'a'}));
  EXPECT_FALSE(runs_on({10, 0, 'a'}, {10, 3}));
  EXPECT_TRUE(runs_on({10, 0, 'f'}, {10, 3}));
  EXPECT_FALSE(runs_on({10, 3, 'f'}, {10, 0}));
  EXPECT_FALSE(runs_on({10, 0, 'f'}, {11, 0}));
}

TEST(Arch, SharedMemoryLimits) {
  EXPECT_EQ(smem_per_block_optin({8, 0}), 163 * 1024);
  EXPECT_EQ(smem_per_block_optin({8, 7}), 163 * 1024);
  EXPECT_EQ(smem_per_block_optin({8, 6}), 99 * 1024);
  EXPECT_EQ(smem_per_block_optin({8, 8}), 99 * 1024);
  EXPECT_EQ(smem_per_block_optin({8, 9}), 99 * 1024);
  EXPECT_EQ(smem_per_block_optin({9, 0, 'a'}), 232448);  // what cuDeviceGetAttribute answers on an H200
  EXPECT_EQ(smem_per_block_optin({10, 3}), 227 * 1024);
  EXPECT_EQ(smem_per_block_optin({11, 0}), 227 * 1024);
  EXPECT_EQ(smem_per_block_optin({12, 1}), 99 * 1024);
  EXPECT_EQ(smem_per_block_optin({99, 0}), 48 * 1024);
  EXPECT_EQ(smem_per_sm({8, 0}), 164 * 1024);
  EXPECT_EQ(smem_per_sm({8, 9}), 100 * 1024);
  EXPECT_EQ(smem_per_sm({9, 0}), 228 * 1024);
  EXPECT_EQ(smem_per_sm({12, 0}), 100 * 1024);
}

Arch native_arch_of(Arch arch) {
  DeviceInfo device;
  device.arch = arch;
  return native_arch(device);
}

TEST(Device, NativeArchIsTheRichestThatRuns) {
  EXPECT_EQ(native_arch_of({8, 0}), (Arch{8, 0}));
  EXPECT_EQ(native_arch_of({8, 9}), (Arch{8, 9}));
  EXPECT_EQ(native_arch_of({9, 0}), (Arch{9, 0, 'a'}));
  EXPECT_EQ(native_arch_of({10, 0}), (Arch{10, 0, 'a'}));
  EXPECT_EQ(native_arch_of({11, 0}), (Arch{11, 0, 'a'}));
  EXPECT_EQ(native_arch_of({12, 1}), (Arch{12, 1, 'a'}));
  EXPECT_EQ(native_arch_of({12, 4}), (Arch{12, 1, 'f'}));
  EXPECT_EQ(native_arch_of({13, 0}), (Arch{13, 0}));
}

}  // namespace
}  // namespace jit
