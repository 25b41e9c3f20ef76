// Mutations of where rows stand in whole sequences: each must be noticed.
#include "tests/mutation/backward_mutation.h"

namespace jit::testing::positions_mutations {
namespace {

enum class Kernel { forward, split, cluster, backward };

/// The problem that the broken kernel computes.
struct PositionsMutation {
  TemplateMutation mutation;
  AttentionCase problem;
  Kernel kernel = Kernel::forward;
};
std::ostream& operator<<(std::ostream& out, const PositionsMutation& subject) {
  return out << subject.mutation;
}

AttentionCase parts(const Mask& mask, const Score& score = {}) {
  AttentionCase problem = {
      .spec = {.head_dim = 64, .q_positions = true, .k_positions = true, .mask = mask, .score = score},
      .batch = 2,
      .heads_kv = 1,
      .seqlen_q = 150,
      .seqlen_kv = 212};
  problem.seed = 7;
  return problem;
}
const AttentionCase causal = parts(mask::causal());

// Blocks go from one entry's tile to another's.
const AttentionCase many_entries = [] {
  AttentionCase problem = parts(mask::causal());
  problem.batch = 200;
  problem.seqlen_q = 40;
  problem.seqlen_kv = 150;
  return problem;
}();
const AttentionCase biased = parts(mask::causal(), score::bias());
// Parts of a mask, one of which compares words.
const AttentionCase documents = parts(mask::causal() && mask::document());
// A text that is asked for each score.
const AttentionCase striped = parts(parse_mask("text(stripes)", reference::mask_texts()));

AttentionCase few_queries(const Mask& mask) {
  AttentionCase problem = parts(mask);
  problem.spec.q_positions = false;
  problem.seqlen_q = 5;
  return problem;
}

// Queries between the first and the last see fewer keys than both.
const AttentionCase valley = few_queries(parse_mask("text(valley)", reference::mask_texts()));

AttentionCase with_dropout(bool k_positions = true) {
  AttentionCase problem = causal;
  problem.spec.k_positions = k_positions;
  problem.spec.dropout = true;
  problem.dropout_p = 0.4f;
  return problem;
}

std::string noticed_of(const TemplateMutation* mutation, const AttentionCase& problem,
                       const KernelConfig& config) {
  const MutatedTemplates templates(mutation);
  const Context context(templates.settings());
  AttentionRun run(problem);
  try {
    run.poison_outputs();
    attention(problem.spec, config, context)(run.arguments());
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
  return run.check().failure;
}
std::string noticed_of(const TemplateMutation* mutation, const AttentionCase& problem, Kernel kernel) {
  if (kernel == Kernel::backward) return noticed_of_gradients(mutation, problem, BackwardWgmma{.stages = 2});
  if (kernel == Kernel::split) return noticed_of(mutation, problem, ForwardSplitKv{});
  if (kernel == Kernel::cluster) return noticed_of(mutation, problem, ForwardSplitCluster{});
  return noticed_of(mutation, problem, ForwardWgmma{.tile_q = 64, .tile_kv = 64});
}

class PositionsMutationTest : public MutationTestOf<PositionsMutation> {};

TEST_P(PositionsMutationTest, IsCaught) {
  const auto& [mutation, problem, kernel] = GetParam();
  expect_caught(mutation, noticed_of(&mutation, problem, kernel));
}

UNMUTATED_TEST(Positions, AreRightUnmutated) {
  EXPECT_EQ(noticed_of(nullptr, causal, Kernel::forward), "");
  EXPECT_EQ(noticed_of(nullptr, many_entries, Kernel::forward), "");
  EXPECT_EQ(noticed_of(nullptr, biased, Kernel::split), "");
  EXPECT_EQ(noticed_of(nullptr, valley, Kernel::cluster), "");
  EXPECT_EQ(noticed_of(nullptr, with_dropout(), Kernel::backward), "");
  EXPECT_EQ(noticed_of(nullptr, documents, Kernel::backward), "");
}

INSTANTIATE_TEST_SUITE_P(
    Positions, PositionsMutationTest,
    ::testing::Values(
        PositionsMutation{{"PositionsOfTheFirstEntry", {"batch *", "0 *"}}, causal},
        PositionsMutation{{"StridesAreForgotten", {"+= $;", "+= 0;"}}, causal},
        PositionsMutation{{"RowsBeforeByStrides", {"minimum($, run)", "$"}}, causal},
        PositionsMutation{{"HullOfKeys", {"key(end - 1) + 1", "key(begin) + 1"}}, causal, Kernel::backward},
        PositionsMutation{{"HullOfNearKeys", {"key(end - 1, last)", "first"}}, causal},
        PositionsMutation{{"StretchesOfTheEntryBefore", removed}, many_entries},
        PositionsMutation{{"MaskOfRows", {"places.query(q, last), places.key(k, last)", "q, k"}}, striped},
        PositionsMutation{{"RangesOfRows", {"places.query(q)", "q"}}, causal},
        PositionsMutation{
            {"ScoresOfRows", {"places.query(q, last), places.key(k, last)", "q, k"}}, biased, Kernel::split},
        PositionsMutation{
            {"SeenKeysAreNotAsked", {"== TileClass::full", "!= TileClass::empty"}}, valley, Kernel::cluster},
        PositionsMutation{{"SeenTilesGoFurther", {"tile.k_end <=", "tile.k_begin <="}},
                          few_queries(mask::prefix(40)),
                          Kernel::cluster},
        PositionsMutation{{"PositionsOfOtherLanes", {"lane_column_ + ", ""}}, biased, Kernel::backward},
        PositionsMutation{
            {"ColumnsOfTheNextBlock", {"n, value % 2", "n ^ 1, value % 2"}}, causal, Kernel::backward},
        PositionsMutation{
            {"HullOfQueriesInTheTable", {"queries.end - 1", "queries.begin"}}, causal, Kernel::backward},
        PositionsMutation{{"WordsOfRowsInTheTable", {"queries.begin, queries.end", "q_begin, q_end"}},
                          documents,
                          Kernel::backward},
        PositionsMutation{{"WordsOfOtherLanes", {"own_, i", "own_, 0"}}, documents, Kernel::backward},
        PositionsMutation{{"GroupsThatAreNone", {"queries.shift % dropout_group_queries == 0", "true"}},
                          with_dropout(false),
                          Kernel::backward},
        PositionsMutation{
            {"DrawnForTheFirstRow", {"places.query(own_query, last)", "places.query(query, last)"}},
            with_dropout(),
            Kernel::backward}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::positions_mutations
