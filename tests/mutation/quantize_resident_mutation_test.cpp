// Mutations of the quantizer that keeps its rows: of its pipeline, and of the words that blocks leave for one another.
#include "tests/mutation/template_mutation.h"
#include "tests/support/resident_quantize_run.h"

namespace jit::testing::quantize_resident_mutations {
namespace {

// Two blocks, whose pipelines come round, of units of columns that share their room, and of some with one magnitude.
constexpr int blocks = 2;
QuantizeCase resident() {
  return {
      .spec = {.head_dim = 64, .scales = QuantizedScales::head, .center_keys = true, .center_values = true},
      .batch = 3,
      .seqlen_q = 300,
      .seqlen_kv = 270,
      .heads_q = 2,
      .heads_kv = 2,
      .offset = 3};
}

std::string noticed_of_resident(const TemplateMutation* mutation, int launches) {
  const MutatedTemplates templates(mutation);
  const Context context(templates.settings());
  QuantizeRun run(resident(), 7);
  try {
    return keep_rows_by(context, run, blocks, launches);
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
}

TEST(QuantizerThatKeeps, IsRightUnmutated) { EXPECT_EQ(noticed_of_resident(nullptr, 3), ""); }

// Numbers of launches begin anew behind one that is soon reached: words are set back, and nothing goes wrong.
TEST(QuantizerThatKeeps, NumbersBeginAnew) {
  const TemplateMutation soon{"NumbersBeginAnewSoon", {"0x7fff0000", "3"}};
  EXPECT_EQ(noticed_of_resident(&soon, 5), "");
}

class QuantizerResidentMutationTest : public MutationTest {};

TEST_P(QuantizerResidentMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_resident(&GetParam(), GetParam().subject.launches));
}

INSTANTIATE_TEST_SUITE_P(
    Quantizer, QuantizerResidentMutationTest,
    ::testing::Values(
        TemplateMutation{"RoundsBeforeAllIsKnown", removed, {"data race", "uninitialized"}},
        TemplateMutation{"LoadsBeforeRowsAreRounded", removed, {"data race", "mbarrier"}, {}, true},
        TemplateMutation{"WordsOfAnyLaunch", {"$", "return true;"}, {"uninitialized"}, {}, true},
        TemplateMutation{
            "EachLaunchHasOneNumber", {", $)", ", number - 1)"}, {"deadlock"}, {.launches = 2}, true},
        TemplateMutation{"WordsStayWhereNumbersBeginAnew",
                         {" = $;\n  if (begins_anew)", " = true;\n  if (false)"},
                         {"deadlock"},
                         {.launches = 2},
                         true},
        TemplateMutation{"IterationsOfTheWindowHaveOneNumber", {" + $;", ";"}},
        TemplateMutation{"ResidentTicketsLeftBehind", removed, {"deadlock"}, {.launches = 2}, true},
        TemplateMutation{"StatisticsOfWarpsReadEarly", removed, {"data race", "uninitialized"}},
        TemplateMutation{"StatisticsWrittenEarly", removed, {"data race"}},
        TemplateMutation{"ResidentMagnitudesOfWarpsReadEarly", removed, {"data race", "uninitialized"}},
        TemplateMutation{"MagnitudesInOnePlace", removed, {"data race"}},
        TemplateMutation{
            "PiecesAreReadyBeforeTheyAreRead", {"1 $)", "1)"}, {"data race", "mbarrier", "uninitialized"}}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::quantize_resident_mutations
