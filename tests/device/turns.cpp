#include "tests/device/turns.h"

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "tests/support/seed.h"

namespace jit::testing {
namespace {

enum class Turn {
  each_run,  ///< also what has no row
  one_arch,  ///< on sm_80 in a run, on sm_90a in another, in a third on neither
  thirds,    ///< every third case in each run
};

struct Row {
  std::string_view cases;  ///< how their names begin
  Turn turn;
};

// The first row that fits decides.
constexpr Row rows[] = {
    // Cases that one of the two architectures has alone.
    {"BackwardTest.Blocks", Turn::thirds},
    {"BackwardTest.Configs", Turn::thirds},
    {"BackwardTest.Pairs", Turn::thirds},
    {"BlockScoresTest.ElementsOf8Bits", Turn::thirds},
    {"BlockScoresTest.Forward", Turn::thirds},
    {"QuantizeTest.Equal", Turn::thirds},
    {"QuantizeTest.HeadDims", Turn::thirds},
    {"QuantizeTest.Layouts", Turn::thirds},
    {"QuantizeTest.Means", Turn::thirds},
    {"QuantizeTest.Norm", Turn::thirds},
    {"QuantizeTest.Rotates", Turn::thirds},
    // Cases of both.
    {"AppendTest.", Turn::one_arch},
    {"AttentionTest.MasksAndScores", Turn::one_arch},
    {"BackwardTest.", Turn::one_arch},
    {"BlockMaskTest.", Turn::one_arch},
    {"BlockScoresTest.", Turn::one_arch},
    {"CheckedTest.", Turn::one_arch},
    {"DropoutTest.VarlenSequencesOfEqual", Turn::one_arch},
    {"Fp8CacheTest.TypesScales", Turn::one_arch},
    {"GraphTest.", Turn::one_arch},
    {"MergeTest.", Turn::one_arch},
    {"QuantizeTest.", Turn::one_arch},
    {"ThreadsTest.", Turn::one_arch},
    {"VarlenBackwardTest.RowsInUse", Turn::one_arch},
    // Many cases for one feature, or one family of kernels.
    {"AttentionTest.", Turn::thirds},
    {"BackwardTcgen05Test.", Turn::thirds},
    {"BackwardTensorsTest.", Turn::thirds},
    {"BackwardTuningTest.", Turn::thirds},
    {"DropoutMaskAheadTest.", Turn::thirds},
    {"DropoutTest.", Turn::thirds},
    {"ForwardMmaTmaTest.", Turn::thirds},
    {"ForwardTcgen05Test.", Turn::thirds},
    {"ForwardWgmmaTest.", Turn::thirds},
    {"Fp8CacheWgmmaTest.", Turn::thirds},
    {"Fp8InterpolationTest.", Turn::thirds},
    {"Fp8MmaTest.", Turn::thirds},
    {"Fp8Test.", Turn::thirds},
    {"KeylessRowsTest.", Turn::thirds},
    {"MixedTest.", Turn::thirds},
    {"MlaTest.", Turn::thirds},
    {"QuantizeResidentTest.", Turn::thirds},
    {"SplitKeysTest.", Turn::thirds},
    {"UpcastAheadTest.", Turn::thirds},
    {"VarlenBackwardTest.", Turn::thirds},
    {"VarlenTurnsTest.", Turn::thirds},
    {"WideBackwardTest.", Turn::thirds},
    {"WideHeadsTest.", Turn::thirds},
};

Turn turn_of(std::string_view name) {
  for (const Row& row : rows) {
    if (name.starts_with(row.cases)) return row.turn;
  }
  return Turn::each_run;
}

// "Suite.Case" without the names of sets of parameters and of parameters.
std::string name_of(const ::testing::TestInfo& info) {
  const std::string suite = info.test_suite_name(), test = info.name();
  return suite.substr(suite.find('/') + 1) + "." + test.substr(0, test.find('/'));
}

// The place of the running case in its suite: neighbors, which are alike, take turns. So do parameters of a case.
std::uint64_t place_in_suite() {
  const auto* const unit = ::testing::UnitTest::GetInstance();
  const ::testing::TestSuite& suite = *unit->current_test_suite();
  std::uint64_t number = 0, parameter = 0;
  for (int i = 0; suite.GetTestInfo(i) != unit->current_test_info(); ++i) {
    const bool is_next = name_of(*suite.GetTestInfo(i)) != name_of(*suite.GetTestInfo(i + 1));
    number += is_next;
    parameter = is_next ? 0 : parameter + 1;
  }
  return number + parameter;
}

TEST(Turns, EachRowNamesCases) {
  const auto* const unit = ::testing::UnitTest::GetInstance();
  for (const Row& row : rows) {
    int count = 0;
    for (int i = 0; i < unit->total_test_suite_count(); ++i) {
      const ::testing::TestSuite& suite = *unit->GetTestSuite(i);
      for (int j = 0; j < suite.total_test_count(); ++j)
        count += name_of(*suite.GetTestInfo(j)).starts_with(row.cases);
    }
    EXPECT_GT(count, 0) << row.cases;
  }
}

}  // namespace

bool is_turn_of_case(Arch arch) {
  const char* const seed = std::getenv("JIT_ATTENTION_TEST_SEED");
  if (seed == nullptr || *seed == 0) return true;
  const ::testing::TestInfo& info = *::testing::UnitTest::GetInstance()->current_test_info();
  const bool is_sm_80 = arch == Arch{8, 0}, is_sm_90a = arch == Arch{9, 0, 'a'};
  switch (turn_of(name_of(info))) {
    case Turn::each_run:
      return true;
    case Turn::one_arch:
      return !(is_sm_80 || is_sm_90a) || reference::is_turn(place_in_suite() + (is_sm_90a ? 1 : 0), 3);
    case Turn::thirds:
      return reference::is_turn(place_in_suite(), 3);
  }
  return true;
}

}  // namespace jit::testing
