// Mutations of the quantiser that keeps its rows: of its ring, and of the words that blocks leave for one another.
#include "tests/mutation/template_mutation.h"
#include "tests/support/kept_quantize_run.h"

namespace jit::testing::quantize_kept_mutations {
namespace {

// Two blocks, whose rings come round, of units of columns that share their room, and of some with one magnitude.
constexpr int blocks = 2;
QuantizeCase kept() {
  return {
      .spec = {.head_dim = 64, .scales = QuantizedScales::head, .center_keys = true, .center_values = true},
      .batch = 3,
      .seqlen_q = 300,
      .seqlen_kv = 270,
      .heads_q = 2,
      .heads_kv = 2,
      .offset = 3};
}

std::string noticed_of_kept(const TemplateMutation* mutation, int launches) {
  const MutatedTemplates templates(mutation);
  const Context context(templates.settings());
  QuantizeRun run(kept(), 7);
  try {
    return keep_rows_by(context, run, blocks, launches);
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
}

constexpr const char* exchange = "quantize_kept/exchange.cuh";
constexpr const char* rounding = "quantize_kept/rounding.cuh";
constexpr const char* statistics = "quantize_kept/statistics.cuh";

TEST(QuantiserThatKeeps, IsRightUnmutated) { EXPECT_EQ(noticed_of_kept(nullptr, 3), ""); }

// Numbers of launches begin anew behind one that is soon reached: words are set back, and nothing goes wrong.
TEST(QuantiserThatKeeps, NumbersBeginAnew) {
  const TemplateMutation soon{"Soon", exchange, "kept_last_number = 0x7fff0000", "kept_last_number = 3"};
  EXPECT_EQ(noticed_of_kept(&soon, 5), "");
}

class QuantiserKeptMutationTest : public MutationTest {};

TEST_P(QuantiserKeptMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_kept(&GetParam(), GetParam().subject.launches));
}

INSTANTIATE_TEST_SUITE_P(
    Quantiser, QuantiserKeptMutationTest,
    ::testing::Values(
        TemplateMutation{"RoundsBeforeAllIsKnown",
                         rounding,
                         "      ring.wait_ready();\n",
                         "",
                         {"data race", "uninitialized"}},
        TemplateMutation{"LoadsBeforeRowsAreRounded",
                         "quantize_kept/kernel.cuh",
                         "    ring.wait_empty();\n",
                         "",
                         {"data race", "mbarrier"},
                         {},
                         true},
        TemplateMutation{"WordsOfAnyLaunch",
                         exchange,
                         "return static_cast<unsigned>(found >> 32) == number;",
                         "return true;",
                         {"uninitialized"},
                         {},
                         true},
        TemplateMutation{"EachLaunchHasOneNumber",
                         exchange,
                         "begins_anew ? ~0u : last",
                         "number - 1",
                         {"deadlock"},
                         {.launches = 2},
                         true},
        TemplateMutation{"WordsStayWhereNumbersBeginAnew",
                         exchange,
                         "  const bool begins_anew = last >= kept_last_number;\n  if (begins_anew) {",
                         "  const bool begins_anew = true;\n  if (false) {",
                         {"deadlock"},
                         {.launches = 2},
                         true},
        TemplateMutation{"TurnsOfTheWindowHaveOneNumber", exchange,
                         "number_ + static_cast<unsigned>(unit / params_.window)", "number_"},
        TemplateMutation{"TicketsLeftBehind",
                         exchange,
                         "  store_relaxed(params.control, ~0u);\n",
                         "",
                         {"deadlock"},
                         {.launches = 2},
                         true},
        TemplateMutation{"StatisticsOfWarpsReadEarly",
                         statistics,
                         "    ring.arrive_ready();\n    meet();\n",
                         "    ring.arrive_ready();\n",
                         {"data race", "uninitialized"}},
        TemplateMutation{"StatisticsWrittenEarly",
                         statistics,
                         "    meet();  // all have read what the piece before has left\n",
                         "",
                         {"data race"}},
        TemplateMutation{"MagnitudesOfWarpsReadEarly",
                         statistics,
                         "= found;\n    meet();\n",
                         "= found;\n",
                         {"data race", "uninitialized"}},
        TemplateMutation{"MagnitudesInOnePlace", statistics, "    turn_ ^= 1;\n", "", {"data race"}},
        TemplateMutation{"PiecesAreReadyBeforeTheyAreRead",
                         "quantize_kept/ring.cuh",
                         "1 + kept_statistics_warps);",
                         "1);",
                         {"data race", "mbarrier"}}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::quantize_kept_mutations
