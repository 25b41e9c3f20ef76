// Mutations of the quantizer's two looks at a sequence, and of what blocks leave for one another: each must be noticed.
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

// Sequences of batch entries.
QuantizeCase lengths() {
  return {.spec = {.head_dim = 64, .center_values = true},
          .batch = 2,
          .seqlen_kv = 70,
          .heads_q = 1,
          .heads_kv = 1,
          .offset = 3,
          .keys = {.seqused = {40, 99}}};
}

std::string noticed_of_quantizer(const TemplateMutation* mutation, const QuantizeCase& problem) {
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

UNMUTATED_TEST(Quantizer, IsRightUnmutated) {
  EXPECT_EQ(noticed_of_quantizer(nullptr, two_looks()), "");
  EXPECT_EQ(noticed_of_quantizer(nullptr, blocks()), "");
  EXPECT_EQ(noticed_of_quantizer(nullptr, sequences()), "");
  EXPECT_EQ(noticed_of_quantizer(nullptr, lengths()), "");
}

class QuantizerMutationTest : public MutationTest {};

TEST_P(QuantizerMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_quantizer(&GetParam(), two_looks()));
}

INSTANTIATE_TEST_SUITE_P(
    Quantizer, QuantizerMutationTest,
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

// Rows that belong to no sequence.
class QuantizerSequencesMutationTest : public MutationTest {};

TEST_P(QuantizerSequencesMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_quantizer(&GetParam(), sequences()));
}

INSTANTIATE_TEST_SUITE_P(Quantizer, QuantizerSequencesMutationTest,
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

class QuantizerLengthsMutationTest : public MutationTest {};

TEST_P(QuantizerLengthsMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_quantizer(&GetParam(), lengths()));
}

INSTANTIATE_TEST_SUITE_P(
    Quantizer, QuantizerLengthsMutationTest,
    ::testing::Values(TemplateMutation{"AllRowsAreASequences", {"return $ : ", "return "}},
                      TemplateMutation{"Lengths_AreNotCut", {"cut($, room)", "$"}, {"out of bounds"}}),
    ::testing::PrintToStringParamName());

// Scales of blocks of rows.
class QuantizerBlockMutationTest : public MutationTest {};

TEST_P(QuantizerBlockMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_quantizer(&GetParam(), blocks()));
}

INSTANTIATE_TEST_SUITE_P(
    Quantizer, QuantizerBlockMutationTest,
    ::testing::Values(TemplateMutation{"ScaleOfTheFirstBlock", {"[$ / scale_block_rows]", "[0 * $]"}},
                      TemplateMutation{"MagnitudesReadEarly", removed, {"data race", "uninitialized"}}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::quantize_mutations
