// Mutations of the quantiser's two looks at a sequence, and of what blocks leave for one another: each must be noticed.
#include "tests/mutation/template_mutation.h"
#include "tests/support/quantize_run.h"

namespace jit::testing::quantize_mutations {
namespace {

// Several units of several pieces of work, of which some wait for others' means; or scales of blocks, in one look.
QuantizeCase two_looks() {
  return {.spec = {.head_dim = 8,
                   .head_dim_v = 16,
                   .scales = QuantizedScales::head,
                   .center_keys = true,
                   .center_values = true},
          .batch = 2,
          .seqlen_q = 40,
          .seqlen_kv = 2100,
          .heads_q = 4,
          .heads_kv = 2,
          .offset = 3};
}
QuantizeCase blocks() {
  return {.spec = {.head_dim = 128, .head_dim_v = 8, .scales = QuantizedScales::block},
          .batch = 1,
          .seqlen_q = 130,
          .seqlen_kv = 140,
          .heads_q = 2,
          .heads_kv = 1,
          .outliers = 30};
}

// Rows of a sequence and others in one piece of work, and pieces that have none.
QuantizeCase sequences() {
  return {
      .spec = {.head_dim = 64, .scales = QuantizedScales::head, .center_keys = true, .center_values = true},
      .batch = 0,
      .seqlen_q = 40,
      .seqlen_kv = 1200,
      .heads_q = 2,
      .heads_kv = 1,
      .offset = 3,
      .queries = {.cu_seqlens = {2, 20, 20, 30}},
      .keys = {.cu_seqlens = {1, 20, 20, 300}, .seqused = {9, 3, 270}}};
}

// Of batch entries.
QuantizeCase lengths() {
  return {.spec = {.head_dim = 64, .center_values = true},
          .batch = 2,
          .seqlen_kv = 70,
          .heads_q = 1,
          .heads_kv = 1,
          .offset = 3,
          .keys = {.seqused = {40, 99}}};
}

std::string noticed_of_quantiser(const TemplateMutation* mutation, const QuantizeCase& problem) {
  const MutatedTemplates templates(mutation);
  const Context context(templates.settings());
  QuantizeRun run(problem, 7);
  try {
    quantize_qkv(run.spec(), context)(run.arguments());
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
  const std::string failure = run.check();
  return failure.empty() ? disorder(context, nullptr) : failure;
}

TEST(Quantiser, IsRightUnmutated) {
  EXPECT_EQ(noticed_of_quantiser(nullptr, two_looks()), "");
  EXPECT_EQ(noticed_of_quantiser(nullptr, blocks()), "");
  EXPECT_EQ(noticed_of_quantiser(nullptr, sequences()), "");
  EXPECT_EQ(noticed_of_quantiser(nullptr, lengths()), "");
}

class QuantiserMutationTest : public MutationTest {};

TEST_P(QuantiserMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_quantiser(&GetParam(), two_looks()));
}

INSTANTIATE_TEST_SUITE_P(
    Quantiser, QuantiserMutationTest,
    ::testing::Values(
        TemplateMutation{
            "WaitsForAllButTheResults", {" + 1;", ";"}, {"data race", "uninitialized", "deadlock"}, {}, true},
        TemplateMutation{"OnlyOneThreadWaits", removed, {"data race", "uninitialized"}, {}, true},
        TemplateMutation{"CounterLeftBehind", {">($)", ">($) + 1"}},
        TemplateMutation{"TicketsLeftBehind", {"+ 1 ==", "=="}},
        TemplateMutation{"TicketReadBeforeItIsDrawn", removed, {"data race", "uninitialized"}},
        TemplateMutation{
            "StatisticsOfTheLastButOne", {"1 ==", "2 =="}, {"data race", "uninitialized"}, {}, true},
        TemplateMutation{
            "MagnitudesOfAllButTheLast", {"1 ==", "2 =="}, {"data race", "uninitialized"}, {}, true},
        TemplateMutation{"MagnitudesOfWarpsReadEarly", removed, {"data race", "uninitialized"}},
        TemplateMutation{"CountedBeforeAllHaveStored", removed, {"data race"}},
        TemplateMutation{"ResultsBeforeTheyAreThere", removed, {"data race"}},
        TemplateMutation{
            "ShiftsDoNotWaitForMeans", {"if ($)", "if (false)"}, {"data race", "uninitialized"}, {}, true}),
    ::testing::PrintToStringParamName());

// Of rows that belong to no sequence.
class QuantiserSequencesMutationTest : public MutationTest {};

TEST_P(QuantiserSequencesMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_quantiser(&GetParam(), sequences()));
}

INSTANTIATE_TEST_SUITE_P(Quantiser, QuantiserSequencesMutationTest,
                         ::testing::Values(TemplateMutation{"RowsBeforeTheFirstSequence",
                                                            {"return $ && ", "return "},
                                                            {"out of bounds"}},
                                           TemplateMutation{"Lengths_AreNotRead",
                                                            {"return $ ?", "return false ?"}},
                                           TemplateMutation{"TheSequenceBefore", {"- 1;", "- 2;"}},
                                           TemplateMutation{"ASequenceBeginsLate", {"<=", "<"}},
                                           TemplateMutation{"RowsOfOneLaneAreCounted", {" = $ 2", " = 0"}},
                                           TemplateMutation{"MeansOverAllRows", {"? $ :", "? own.seqlen :"}}),
                         ::testing::PrintToStringParamName());

class QuantiserLengthsMutationTest : public MutationTest {};

TEST_P(QuantiserLengthsMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_quantiser(&GetParam(), lengths()));
}

INSTANTIATE_TEST_SUITE_P(
    Quantiser, QuantiserLengthsMutationTest,
    ::testing::Values(TemplateMutation{"AllRowsAreASequences", {"return $ : ", "return "}},
                      TemplateMutation{"Lengths_AreNotCut", {"cut($, room)", "$"}, {"out of bounds"}}),
    ::testing::PrintToStringParamName());

// Of scales of blocks of rows.
class QuantiserBlockMutationTest : public MutationTest {};

TEST_P(QuantiserBlockMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_quantiser(&GetParam(), blocks()));
}

INSTANTIATE_TEST_SUITE_P(
    Quantiser, QuantiserBlockMutationTest,
    ::testing::Values(TemplateMutation{"ScaleOfTheFirstBlock", {"[$ / scale_block_rows]", "[0 * $]"}},
                      TemplateMutation{"MagnitudesReadEarly", removed, {"data race", "uninitialized"}}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::quantize_mutations
