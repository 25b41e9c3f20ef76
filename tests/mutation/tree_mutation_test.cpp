// Mutations of the mask of trees: each must be noticed.
#include "tests/mutation/backward_mutation.h"

namespace jit::testing::tree_mutations {
namespace {

// Blocks look at each tile of keys, or have a table of the ranges of ends.
const Subject looks = {.config = "tile_q=32 warps=2 tile_kv=32 stages_k=1 stages_v=1",
                       .mask = "tree",
                       .batch = 2,
                       .seqlen_q = 300,
                       .seqlen_kv = 340,
                       .seed = 12};  // draws ends for each batch entry, not the same for all
const Subject has_table = {.config = "family=forward_wgmma tile_q=64 tile_kv=32 stages_q=2 stages_v=2",
                           .mask = "tree",
                           .batch = 3,
                           .heads = 16,
                           .seqlen_q = 400,
                           .seqlen_kv = 400,
                           .seed = 7};

UNMUTATED_TEST(Tree, IsRightUnmutated) {
  EXPECT_EQ(noticed(nullptr, looks), "");
  EXPECT_EQ(noticed(nullptr, has_table), "");
}

TemplateMutation mutation(const char* name, const LineChange& change, const Subject& subject) {
  return {.name = name, .change = change, .subject = subject};
}

const LineChange early = {"<= $)", "<= queries.high)"}, few = {"> $ ?", "> queries.low ?"};

INSTANTIATE_TEST_SUITE_P(
    Tree, TemplateMutationTest,
    ::testing::Values(mutation("EndsOfTheFirstSequence", {"context.batch *", "0 *"}, looks),
                      mutation("SubtreesEndWithTheTile", early, looks),
                      mutation("SubtreesEndWithTheTile_InATable", early, has_table),
                      mutation("FullThoughASubtreeEnds", few, looks),
                      mutation("FullThoughASubtreeEnds_InATable", few, has_table),
                      mutation("SubtreesSeeTheNextOne", {"< end", "<= end"}, looks),
                      mutation("LastTileOfASubtreeIsLeftOut", {"+ $;", "+ __ffs(seen) - 1;"}, has_table)),
    ::testing::PrintToStringParamName());

// Blocks of keys, of which each goes through the queries.
class TreeBackwardMutation : public MutationTest {};

TEST_P(TreeBackwardMutation, IsCaught) {
  const AttentionCase problem{.spec = {.head_dim = 64, .gqa_ratio = 2, .mask = mask::tree()},
                              .seqlen_q = 400,
                              .seqlen_kv = 400,
                              .seed = 12};
  expect_caught(GetParam(), noticed_of_gradients(&GetParam(), problem, BackwardWgmma{}));
}

INSTANTIATE_TEST_SUITE_P(Tree, TreeBackwardMutation,
                         ::testing::Values(TemplateMutation{"SubtreesEndWithTheTile_InTheBackward", early},
                                           TemplateMutation{"FullThoughASubtreeEnds_InTheBackward", few}),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::tree_mutations
