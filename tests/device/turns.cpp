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
  one_arch,  ///< on sm_80 and sm_90a: one of the two in each run
  halves,    ///< every second case in each run
};

struct Row {
  std::string_view cases;  ///< how their names begin
  Turn turn;
};

// The first row that fits decides.
constexpr Row rows[] = {
    // Cases that one of the two architectures has alone.
    {"BackwardTest.Configs", Turn::each_run},
    {"BackwardTest.Pairs", Turn::each_run},
    {"BackwardTest.Blocks", Turn::each_run},
    {"BlockScoresTest.Forward", Turn::each_run},
    {"BlockScoresTest.ElementsOf8Bits", Turn::each_run},
    {"QuantizeTest.HeadDims", Turn::each_run},
    {"QuantizeTest.Means", Turn::each_run},
    {"QuantizeTest.Rotates", Turn::each_run},
    {"QuantizeTest.Norm", Turn::each_run},
    {"QuantizeTest.Layouts", Turn::each_run},
    {"QuantizeTest.Equal", Turn::each_run},
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
    // Variants of one feature.
    {"BackwardTcgen05Test.", Turn::halves},
    {"BackwardTensorsTest.", Turn::halves},
    {"BackwardTuningTest.", Turn::halves},
    {"DropoutMaskAheadTest.", Turn::halves},
    {"ForwardMmaTmaTest.", Turn::halves},
    {"ForwardTcgen05Test.", Turn::halves},
    {"Fp8CacheWgmmaTest.", Turn::halves},
    {"Fp8InterpolationTest.", Turn::halves},
    {"Fp8MmaTest.", Turn::halves},
    {"Fp8Test.", Turn::halves},
    {"KeylessRowsTest.", Turn::halves},
    {"MixedTest.", Turn::halves},
    {"MlaTest.", Turn::halves},
    {"QuantizeResidentTest.", Turn::halves},
    {"UpcastAheadTest.", Turn::halves},
    {"VarlenBackwardTest.", Turn::halves},
    {"VarlenTurnsTest.", Turn::halves},
    {"WideBackwardTest.", Turn::halves},
    {"WideHeadsTest.", Turn::halves},
};

Turn turn_of(std::string_view name) {
  for (const Row& row : rows) {
    if (name.starts_with(row.cases)) return row.turn;
  }
  return Turn::each_run;
}

// The place of the running case in its suite: neighbors, which are alike, take turns.
std::uint64_t place_in_suite() {
  const auto* const unit = ::testing::UnitTest::GetInstance();
  const ::testing::TestSuite& suite = *unit->current_test_suite();
  int place = 0;
  while (suite.GetTestInfo(place) != unit->current_test_info()) ++place;
  return static_cast<std::uint64_t>(place);
}

TEST(Turns, EachRowNamesCases) {
  const auto* const unit = ::testing::UnitTest::GetInstance();
  for (const Row& row : rows) {
    int count = 0;
    for (int i = 0; i < unit->total_test_suite_count(); ++i) {
      const ::testing::TestSuite& suite = *unit->GetTestSuite(i);
      for (int j = 0; j < suite.total_test_count(); ++j)
        count += (std::string(suite.name()) + "." + suite.GetTestInfo(j)->name()).starts_with(row.cases);
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
  switch (turn_of(std::string(info.test_suite_name()) + "." + info.name())) {
    case Turn::each_run:
      return true;
    case Turn::one_arch:
      return !(is_sm_80 || is_sm_90a) || reference::is_turn(place_in_suite() + (is_sm_90a ? 1 : 0), 2);
    case Turn::halves:
      return reference::is_turn(place_in_suite(), 2);
  }
  return true;
}

}  // namespace jit::testing
