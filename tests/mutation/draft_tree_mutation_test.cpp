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

UNMUTATED_TEST(DraftTree, IsRightUnmutated) { EXPECT_EQ(noticed(nullptr, drafts), ""); }

TemplateMutation mutation(const char* name, const LineChange& change) {
  return {.name = name, .change = change, .subject = drafts};
}

INSTANTIATE_TEST_SUITE_P(DraftTree, TemplateMutationTest,
                         ::testing::Values(mutation("BitsOfTheKeyBefore", {"= $;", "= $ - 1;"}),
                                           mutation("BitsOfTheFirstBatchEntry", {"+ $ *", "+ 0 *"}),
                                           mutation("FullWhereOneQuerySeesAll",
                                                    {"~$;", "q == tile.q_begin ? ~$ : 0;"}),
                                           mutation("EmptyThoughOthersAreSeen", {"&& $ ?", "?"}),
                                           mutation("RangeEndsAWordEarly", {"(i + 1)", "i"})),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::draft_tree_mutations
