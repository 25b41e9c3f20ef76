// Mutations of masks within blocks: each must be noticed.
#include "tests/mutation/template_mutation.h"

namespace jit::testing::block_mask_mutations {
namespace {

// Tiles of several blocks, and blocks that end in the midst of tiles.
const Subject blocks = {.config = "tile_q=32 warps=2 tile_kv=32 stages_k=1 stages_v=1",
                        .mask = "block_mask(16, 48)",
                        .batch = 2,
                        .seqlen_q = 150,
                        .seqlen_kv = 1800,
                        .seed = 14};  // draws a table for each batch entry

UNMUTATED_TEST(BlockMask, IsRightUnmutated) { EXPECT_EQ(noticed(nullptr, blocks), ""); }

TemplateMutation mutation(const char* name, const LineChange& change) {
  return {.name = name, .change = change, .subject = blocks};
}

INSTANTIATE_TEST_SUITE_P(
    BlockMask, TemplateMutationTest,
    ::testing::Values(mutation("FullBitsForSeenOnes", {"2 * i", "2 * i + 1"}),
                      mutation("TableOfTheFirstBatchEntry", {"+ $ *", "+ 0 *"}),
                      mutation("CoveredThoughABlockIsMissing", {"== $;", "!= 0;"}),
                      mutation("EmptyByTheLastRow", {"|=", "="}),
                      mutation("NextKeyOfTheFirstRow", {"|= $;", "|= row == q_begin / block_q ? $ : 0;"}),
                      mutation("NextKeyABlockLate", {" - 1", ""}),
                      mutation("RangeEndsABlockEarly", {"- 1 -", "- 2 -"}),
                      mutation("KeptByTheBlockBefore", {"= k /", "= maximum(k - 1, 0) /"})),
    ::testing::PrintToStringParamName());

// Mask bits of tiles that are a part of their block in both directions, the last of which ends behind the keys.
const Subject scores = {
    .config = "family=forward_wgmma tile_q=128 tile_kv=64 stages_q=2 stages_k=2 stages_v=2",
    .mask = "block_scores(256, 128)",
    .head_dim = 32,
    .head_dim_v = 32,
    .batch = 2,
    .seqlen_q = 500,
    .seqlen_kv = 420,
    .seed = 15};

UNMUTATED_TEST(MaskBits, AreRightUnmutated) { EXPECT_EQ(noticed(nullptr, scores), ""); }

INSTANTIATE_TEST_SUITE_P(
    MaskBits, TemplateMutationTest,
    ::testing::Values(
        TemplateMutation{"KnownTile_OfTheFirstQueries", {"($,", "(0,"}, {}, scores},
        TemplateMutation{"KnownTile_OfTheFirstKeys", {", $,", ", 0,"}, {}, scores},
        TemplateMutation{"ColumnsOfATile", {") + q", " / 2) + q"}, {}, scores},
        TemplateMutation{"NobodyWaitsForTheBits",
                         {"$", "if (false) $"},
                         {"expect_tx", "data race", "access in flight", "barrier"},
                         scores},
        TemplateMutation{"TheFirstConsumersQueries", {"($)", "thread"}, {}, scores},
        TemplateMutation{"RowsForColumns", {"/ 2, i %", "% 2, i /"}, {}, scores},
        TemplateMutation{"BitsOfKeysThatDoNotExist", {"place.k $,", "false,"}, {}, scores},
        TemplateMutation{"AskedThoughKnown", {"|= $;", "|= 0;"}, {}, scores},
        TemplateMutation{
            "PlacesThatAreNone", {"&& $ ?", "?"}, {"outside", "bounds", "memory"}, scores, true}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::block_mask_mutations
