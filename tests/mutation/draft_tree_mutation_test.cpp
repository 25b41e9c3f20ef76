// Mutations of the mask of drafts: each must be noticed.
#include "tests/mutation/template_mutation.h"

namespace jit::testing::draft_tree_mutations {
namespace {

// Some tiles of rows lie in one block of bits that are all set, or none, some in two.
const Subject drafts = {.config = "tile_q=32 warps=2 tile_kv=32 stages_k=1 stages_v=1",
                        .mask = "draft_tree",
                        .batch = 2,
                        .seqlen_q = 300,
                        .seqlen_kv = 340,
                        .seed = 12};  // draws bits for each batch entry, not the same for all

TEST(DraftTree, IsRightUnmutated) { EXPECT_EQ(noticed(nullptr, drafts), ""); }

TemplateMutation mutation(const char* name, const char* from, const char* to) {
  return {.name = name, .file = "problem/draft_tree_mask.cuh", .from = from, .to = to, .subject = drafts};
}

INSTANTIATE_TEST_SUITE_P(
    DraftTree, TemplateMutationTest,
    ::testing::Values(mutation("BitsOfTheKeyBefore", "const int own = k - first_own;",
                               "const int own = k - first_own - 1;"),
                      mutation("BitsOfTheFirstBatchEntry", "context.batch * tensor.strides[0]",
                               "0 * tensor.strides[0]"),
                      mutation("FullWhereOneQuerySeesAll", "unseen |= ~bits & asked;",
                               "unseen |= q == tile.q_begin ? ~bits & asked : 0;"),
                      mutation("EmptyThoughOthersAreSeen", "(full_warp, seen) == 0 && !has_others ?",
                               "(full_warp, seen) == 0 ?"),
                      mutation("RangeEndsAWordEarly", "first_own + (i + 1) * bits_of_word",
                               "first_own + i * bits_of_word")),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::draft_tree_mutations
