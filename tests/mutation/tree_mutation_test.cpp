// Mutations of the mask of trees: each must be noticed.
#include "tests/mutation/backward_mutation.h"
#include "tests/support/device_tensor.h"

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

// Checked calls, of which ends of 300 keys are wrong: two of them, so that the first is to be found among several.
std::string said_of_wrong_ends(const TemplateMutation* mutation) {
  constexpr int keys = 300;
  const MutatedTemplates templates(mutation);
  const Context context(templates.settings());
  const CurrentDevice scope(0);
  const DeviceTensor x(DType::bf16, {1, keys, 1, 64}), o(DType::bf16, {1, keys, 1, 64});
  DeviceTensor ends(DType::int32, {1, keys});
  ends.fill([](std::int64_t k) { return k == 7 ? 251 : k == 200 ? 190 : k < 250 ? 250 : keys; });
  ends.upload();
  AttentionArguments arguments{.q = x.view(), .k = x.view(), .v = x.view(), .o = o.view()};
  arguments.tensors.add({"tree_ends", ends.view()});
  try {
    attention_when_called({.head_dim = 64, .checked = true, .mask = mask::tree()}, context)(arguments);
  } catch (const Error& error) {
    return error.message();
  }
  return "nothing";
}

constexpr const char* first_wrong_end =
    "tree_ends: element [0, 7], of request 0, is 251; it must be from 8 to 250, where what contains key 7 "
    "ends: its "
    "sequence, or a subtree";

class TreeCheckMutation : public MutationTest {};

TEST_P(TreeCheckMutation, IsCaught) { EXPECT_NE(said_of_wrong_ends(&GetParam()), first_wrong_end); }

UNMUTATED_TEST(TreeCheck, IsRightUnmutated) { EXPECT_EQ(said_of_wrong_ends(nullptr), first_wrong_end); }

INSTANTIATE_TEST_SUITE_P(Tree, TreeCheckMutation,
                         ::testing::Values(TemplateMutation{"SubtreesMayCross", {"|| of_child > end", ""}},
                                           TemplateMutation{"FirstWrongEndLater", removed},
                                           TemplateMutation{"FirstWrongEndSoFar", removed}),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::tree_mutations
