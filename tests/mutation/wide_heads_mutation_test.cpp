// Mutations of what warps do that share out the columns of what they sum.
#include "tests/mutation/backward_mutation.h"

namespace jit::testing::wide_heads_mutations {
namespace {

// Parts of 192 columns, the second of which has 72.
const Subject dense = {
    .config = "family=forward_mma_sync tile_q=32 tile_kv=16 warps=2 stages_k=1 stages_v=1 blocks_per_sm=1",
    .head_dim = 264,
    .head_dim_v = 264,
    .seqlen_q = 40,
    .seqlen_kv = 50};
const Subject split = {
    .config = "family=forward_split_kv row_warps=1 key_warps=1 tile_kv=16 stages=2 blocks_per_sm=1",
    .head_dim = 264,
    .head_dim_v = 264,
    .heads = 40,  // so that blocks have several tiles of keys
    .seqlen_q = 1,
    .seqlen_kv = 200};

// Some queries are large rows.
std::string noticed_of_wide_gradients(const TemplateMutation* mutation) {
  AttentionCase problem = {
      .spec = {.head_dim = 264,
               .score =
                   score::text({.name = "far_away", .body = "return q % 3 == 0 ? score - 1e9f : score;"})},
      .seqlen_q = 20,
      .seqlen_kv = 24,
      .seed = 5};
  problem.score = [](double score, int, int, int q, int) { return q % 3 == 0 ? score - 1e9 : score; };
  return noticed_of_gradients(
      mutation, problem,
      BackwardDqMmaSync{.tile_q = 32, .tile_kv = 16, .warps = 2, .stages = 1, .blocks_per_sm = 1},
      BackwardDkvMmaSync{
          .tile_q = 16, .tile_kv = 32, .warps = 2, .stages = 1, .separate = true, .blocks_per_sm = 1});
}

UNMUTATED_TEST(WideHeads, AreRightUnmutated) {
  EXPECT_EQ(noticed(nullptr, dense), "");
  EXPECT_EQ(noticed(nullptr, split), "");
  EXPECT_EQ(noticed_of_wide_gradients(nullptr), "");
}

INSTANTIATE_TEST_SUITE_P(
    WideHeads, TemplateMutationTest,
    ::testing::Values(TemplateMutation{.name = "ColumnsOfTheFirstWarp",
                                       .change = {"warp_id() / Config::warps * warp_columns", "0"},
                                       .caught_by = {"data race"},
                                       .subject = dense,
                                       .or_by_numbers = true},
                      TemplateMutation{.name = "StoresPastTheLastColumn",
                                       .change = removed,
                                       .caught_by = {"data race", "out of bounds"},
                                       .subject = dense,
                                       .or_by_numbers = true},
                      TemplateMutation{.name = "QueriesOfTheStageBefore",
                                       .change = removed,
                                       .caught_by = {"data race", "access in flight"},
                                       .subject = split,
                                       .or_by_numbers = true}),
    ::testing::PrintToStringParamName());

class WideGradientsMutationTest : public MutationTest {};

TEST_P(WideGradientsMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_wide_gradients(&GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Backward, WideGradientsMutationTest,
                         ::testing::Values(TemplateMutation{.name = "GradientsOfTheFirstPart",
                                                            .change = {"warp_id() / warps", "0"},
                                                            .caught_by = {"data race"},
                                                            .or_by_numbers = true},
                                           TemplateMutation{
                                               "PartsOfLargeRowsAreStoredLater", removed, {"data race"}}),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::wide_heads_mutations
