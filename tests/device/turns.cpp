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
  one_arch,  ///< on sm_80 in a run, on sm_90a in another, in four more on neither
  eighths,   ///< every eighth case in each run
};

struct Row {
  std::string_view cases;  ///< how their names begin
  Turn turn;
};

// The first row that fits decides.
constexpr Row rows[] = {
    // Cases that one of the two architectures has alone.
    {"BackwardTest.Blocks", Turn::eighths},
    {"BackwardTest.Configs", Turn::eighths},
    {"BackwardTest.Pairs", Turn::eighths},
    {"BlockScoresTest.ElementsOf8Bits", Turn::eighths},
    {"BlockScoresTest.Forward", Turn::eighths},
    {"QuantizeTest.Equal", Turn::eighths},
    {"QuantizeTest.HeadDims", Turn::eighths},
    {"QuantizeTest.Layouts", Turn::eighths},
    {"QuantizeTest.Means", Turn::eighths},
    {"QuantizeTest.Norm", Turn::eighths},
    {"QuantizeTest.Rotates", Turn::eighths},
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
    {"AttentionTest.", Turn::eighths},
    {"BackwardTcgen05Test.", Turn::eighths},
    {"BackwardTensorsTest.", Turn::eighths},
    {"BackwardTuningTest.", Turn::eighths},
    {"DropoutMaskAheadTest.", Turn::eighths},
    {"DropoutTest.", Turn::eighths},
    {"ForwardMmaTmaTest.", Turn::eighths},
    {"ForwardTcgen05Test.", Turn::eighths},
    {"ForwardWgmmaTest.", Turn::eighths},
    {"Fp8CacheTest.", Turn::eighths},
    {"Fp8CacheWgmmaTest.", Turn::eighths},
    {"Fp8InterpolationTest.", Turn::eighths},
    {"Fp8MmaTest.", Turn::eighths},
    {"Fp8Test.", Turn::eighths},
    {"KeyExchangeTest.", Turn::eighths},
    {"KeylessRowsTest.", Turn::eighths},
    {"LaunchTest.", Turn::eighths},
    {"MatmulTest.", Turn::eighths},
    {"MixedTest.", Turn::eighths},
    {"MlaTest.", Turn::eighths},
    {"QuantizeResidentTest.", Turn::eighths},
    {"SplitKeysTest.", Turn::eighths},
    {"SplitSpansTest.", Turn::eighths},
    {"UpcastAheadTest.", Turn::eighths},
    {"VarlenBackwardTest.", Turn::eighths},
    {"VarlenTurnsTest.", Turn::eighths},
    {"WideBackwardTest.", Turn::eighths},
    {"WideHeadsTest.", Turn::eighths},
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
      return !(is_sm_80 || is_sm_90a) || reference::is_turn(place_in_suite() + (is_sm_90a ? 1 : 0), 6);
    case Turn::eighths:
      return reference::is_turn(place_in_suite(), 8);
  }
  return true;
}

}  // namespace jit::testing
