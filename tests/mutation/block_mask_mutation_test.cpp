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

TEST(BlockMask, IsRightUnmutated) { EXPECT_EQ(noticed(nullptr, blocks), ""); }

TemplateMutation mutation(const char* name, const char* from, const char* to) {
  return {.name = name, .file = "problem/block_mask.cuh", .from = from, .to = to, .subject = blocks};
}

INSTANTIATE_TEST_SUITE_P(
    BlockMask, TemplateMutationTest,
    ::testing::Values(
        mutation("FullBitsForSeenOnes", "return __ldg(table + row * row_stride + 2 * i);",
                 "return __ldg(table + row * row_stride + 2 * i + 1);"),
        mutation("TableOfTheFirstBatchEntry",
                 "table = static_cast<const unsigned*>(tensor.data) + context.batch *",
                 "table = static_cast<const unsigned*>(tensor.data) + 0 *"),
        mutation("CoveredThoughABlockIsMissing", "is_covered &= seen_blocks == asked;",
                 "is_covered &= seen_blocks != 0;"),
        mutation("EmptyByTheLastRow", "is_seen |= seen_blocks != 0;", "is_seen = seen_blocks != 0;"),
        mutation("NextKeyOfTheFirstRow", "word |= seen(row, i);",
                 "word |= row == q_begin / block_q ? seen(row, i) : 0;"),
        mutation("NextKeyABlockLate", "(i * bits_of_word + __ffs(static_cast<int>(word)) - 1) * block_kv",
                 "(i * bits_of_word + __ffs(static_cast<int>(word))) * block_kv"),
        mutation("RangeEndsABlockEarly", "last = (i + 1) * bits_of_word - 1 -",
                 "last = (i + 1) * bits_of_word - 2 -"),
        mutation("KeptByTheBlockBefore", "const int block = k / block_kv;",
                 "const int block = maximum(k - 1, 0) / block_kv;")),
    ::testing::PrintToStringParamName());

// Known scores of tiles that are a part of their block in both directions, the last of which ends behind the keys.
const Subject scores = {
    .config = "family=forward_wgmma tile_q=128 tile_kv=64 stages_q=2 stages_k=2 stages_v=2",
    .mask = "block_scores(256, 128)",
    .head_dim = 32,
    .head_dim_v = 32,
    .batch = 2,
    .seqlen_q = 500,
    .seqlen_kv = 420,
    .seed = 15};

TEST(KnownScores, AreRightUnmutated) { EXPECT_EQ(noticed(nullptr, scores), ""); }

constexpr const char *known = "forward_wgmma/known_scores.cuh", *words = "base/score_words.cuh",
                     *consumer = "forward_wgmma/consumer_scores.cuh";

INSTANTIATE_TEST_SUITE_P(
    KnownScores, TemplateMutationTest,
    ::testing::Values(TemplateMutation{"QueriesOfTheFirstTile",
                                       known,
                                       "first_score_word(q_begin % Mask::queries_of_block,",
                                       "first_score_word(0,",
                                       {},
                                       scores},
                      TemplateMutation{
                          "KeysOfTheFirstTile", known, "k_begin % Mask::keys_of_block,", "0,", {}, scores},
                      TemplateMutation{"ColumnsOfATile",
                                       words,
                                       "(block_q / score_word_queries) + q / score_word_queries)",
                                       "(block_q / score_word_queries / 2) + q / score_word_queries)",
                                       {},
                                       scores},
                      TemplateMutation{"NobodyWaitsForTheBits",
                                       known,
                                       "  mbarrier_expect_tx(full,",
                                       "  if (false) mbarrier_expect_tx(full,",
                                       {"expect_tx", "data race", "access in flight", "barrier"},
                                       scores},
                      TemplateMutation{"TheFirstConsumersQueries",
                                       consumer,
                                       "(consumer_ * warpgroup_size + thread) * 4",
                                       "thread * 4",
                                       {},
                                       scores},
                      TemplateMutation{"RowsForColumns",
                                       "steps/apply_functors.cuh",
                                       "kept.at(n, i / 2, i % 2)",
                                       "kept.at(n, i % 2, i / 2)",
                                       {},
                                       scores},
                      TemplateMutation{"BitsOfKeysThatDoNotExist",
                                       "steps/apply_functors.cuh",
                                       "place.k + Asked::Bits::columns > context.seqlen_kv",
                                       "false",
                                       {},
                                       scores},
                      TemplateMutation{"AskedThoughKnown",
                                       "forward_wgmma/load_keys.cuh",
                                       "flags |= key_note_known;",
                                       "flags |= 0;",
                                       {},
                                       scores},
                      TemplateMutation{"PlacesThatAreNone",
                                       "problem/block_scores.cuh",
                                       "place >= 0 && place < room",
                                       "place >= 0",
                                       {"outside", "bounds", "memory"},
                                       scores,
                                       true}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::block_mask_mutations
