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

constexpr const char* kernel = "quantize/kernel.cuh";
constexpr const char* statistics = "quantize/statistics.cuh";
constexpr const char* work = "quantize/work.cuh";

class QuantiserMutationTest : public MutationTest {};

TEST_P(QuantiserMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_quantiser(&GetParam(), two_looks()));
}

INSTANTIATE_TEST_SUITE_P(
    Quantiser, QuantiserMutationTest,
    ::testing::Values(TemplateMutation{"WaitsForAllButTheResults",
                                       work,
                                       "return static_cast<unsigned>(items) + 1",
                                       "return static_cast<unsigned>(items)",
                                       {"data race", "uninitialized", "deadlock"},
                                       {},
                                       true},
                      TemplateMutation{"OnlyOneThreadWaits",
                                       work,
                                       "    }\n  }\n  __syncthreads();\n",
                                       "    }\n  }\n",
                                       {"data race", "uninitialized"},
                                       {},
                                       true},
                      TemplateMutation{"CounterLeftBehind", work,
                                       "== ready_count(items) + static_cast<unsigned>(waiting)",
                                       "== ready_count(items) + static_cast<unsigned>(waiting) + 1"},
                      TemplateMutation{"TicketsLeftBehind", work,
                                       "ticket + 1 == static_cast<unsigned>(params.pieces)",
                                       "ticket == static_cast<unsigned>(params.pieces)"},
                      TemplateMutation{"TicketReadBeforeItIsDrawn",
                                       kernel,
                                       "drawn[turn % 2] = piece;\n    __syncthreads();\n",
                                       "drawn[turn % 2] = piece;\n",
                                       {"data race", "uninitialized"}},
                      TemplateMutation{"StatisticsOfTheLastButOne",
                                       statistics,
                                       "(threadIdx.x == 0) is_last = count_one(counter) + 1 ==",
                                       "(threadIdx.x == 0) is_last = count_one(counter) + 2 ==",
                                       {"data race", "uninitialized"},
                                       {},
                                       true},
                      TemplateMutation{"MagnitudesOfAllButTheLast",
                                       statistics,
                                       "    is_last = count_one(counter) + 1 ==",
                                       "    is_last = count_one(counter) + 2 ==",
                                       {"data race", "uninitialized"},
                                       {},
                                       true},
                      TemplateMutation{"MagnitudesOfWarpsReadEarly",
                                       statistics,
                                       "= found;\n  __syncthreads();\n",
                                       "= found;\n",
                                       {"data race", "uninitialized"}},
                      TemplateMutation{"CountedBeforeAllHaveStored",
                                       statistics,
                                       "item) * numbers);\n    __syncthreads();\n",
                                       "item) * numbers);\n",
                                       {"data race"}},
                      TemplateMutation{"ResultsBeforeTheyAreThere",
                                       statistics,
                                       "work.unit, of_unit);\n    __syncthreads();\n",
                                       "work.unit, of_unit);\n",
                                       {"data race"}},
                      TemplateMutation{"ShiftsDoNotWaitForMeans",
                                       kernel,
                                       "  if (is_shifted) wait_for_results(params",
                                       "  if (false) wait_for_results(params",
                                       {"data race", "uninitialized"},
                                       {},
                                       true}),
    ::testing::PrintToStringParamName());

// Of rows that belong to no sequence.
class QuantiserSequencesMutationTest : public MutationTest {};

TEST_P(QuantiserSequencesMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_quantiser(&GetParam(), sequences()));
}

constexpr const char* rows_of_sequences = "quantize/sequences.cuh";

INSTANTIATE_TEST_SUITE_P(
    Quantiser, QuantiserSequencesMutationTest,
    ::testing::Values(
        TemplateMutation{
            "RowsBeforeTheFirstSequence", rows_of_sequences, "sequence >= 0 && ", "", {"out of bounds"}},
        TemplateMutation{"LengthsAreNotRead", rows_of_sequences, "own_.seqused != nullptr", "false"},
        TemplateMutation{"TheSequenceBefore", rows_of_sequences, "return before - 1", "return before - 2"},
        TemplateMutation{"ASequenceBeginsLate", rows_of_sequences, "(middle) <= token", "(middle) < token"},
        TemplateMutation{"RowsOfOneLaneAreCounted", rows_of_sequences, "offset = warp_size / 2; offset > 0",
                         "offset = 0; offset > 0"},
        TemplateMutation{"MeansOverAllRows", statistics, "rows.sequences().count()", "own.seqlen"}),
    ::testing::PrintToStringParamName());

class QuantiserLengthsMutationTest : public MutationTest {};

TEST_P(QuantiserLengthsMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_quantiser(&GetParam(), lengths()));
}

INSTANTIATE_TEST_SUITE_P(
    Quantiser, QuantiserLengthsMutationTest,
    ::testing::Values(TemplateMutation{"AllRowsAreASequences", rows_of_sequences,
                                       "kind == SequenceKind::padded ? length_ : own_.seqlen", "own_.seqlen"},
                      TemplateMutation{"LengthsAreNotCut",
                                       rows_of_sequences,
                                       "cut(own_.seqused[sequence], room)",
                                       "own_.seqused[sequence]",
                                       {"out of bounds"}}),
    ::testing::PrintToStringParamName());

// Of scales of blocks of rows.
class QuantiserBlockMutationTest : public MutationTest {};

TEST_P(QuantiserBlockMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_quantiser(&GetParam(), blocks()));
}

INSTANTIATE_TEST_SUITE_P(Quantiser, QuantiserBlockMutationTest,
                         ::testing::Values(TemplateMutation{"ScaleOfTheFirstBlock", "quantize/rounding.cuh",
                                                            "[rows.place(step) / scale_block_rows]",
                                                            "[0 * rows.place(step)]"},
                                           TemplateMutation{"MagnitudesReadEarly",
                                                            kernel,
                                                            "factors.means, shared);\n    __syncthreads();\n",
                                                            "factors.means, shared);\n",
                                                            {"data race", "uninitialized"}}),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::quantize_mutations
