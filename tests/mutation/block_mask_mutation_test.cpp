// Mutations of masks within blocks: each must be noticed.
#include "tests/mutation/template_mutation.h"

namespace jit::testing {
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

}  // namespace
}  // namespace jit::testing
