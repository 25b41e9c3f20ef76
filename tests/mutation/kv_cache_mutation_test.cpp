// Mutations of the warp that copies scales of tokens by cp.async beside boxes of keys: consumers wait for both, and so do
// converters, which multiply numbers by them.
#include "tests/mutation/template_mutation.h"

namespace jit::testing::kv_cache_mutations {
namespace {

// More tiles than stages, and more splits than one of each block.
const Subject tokens = {.config = "family=forward_split_kv copies=tma tile_kv=64 stages=2 blocks_per_sm=1",
                        .head_dim = 32,
                        .head_dim_v = 32,
                        .kv_dtype = DType::fp8_e4m3,
                        .descale_per = ScaleKind::token,
                        .heads = 140,
                        .seqlen_q = 3,
                        .seqlen_kv = 300,
                        .launches = 2};

// Warps of 8 rows, whose sums and maxima of rows are spread over eight lanes.
const Subject few_rows = [] {
  Subject subject = tokens;
  subject.config = "family=forward_split_kv warp_rows=8 key_warps=2 tile_kv=64 stages=2 blocks_per_sm=1";
  subject.heads = 4;
  return subject;
}();

// Converters, which multiply numbers by scales of tokens.
const Subject converted = [] {
  Subject subject = tokens;
  subject.config = "family=forward_split_wgmma tile_rows=64 tile_kv=64 stages=1 stages_stored=2";
  subject.head_dim = subject.head_dim_v = 64;
  subject.heads = 4;
  return subject;
}();

UNMUTATED_TEST(KvCaches, IsRightUnmutated) {
  EXPECT_EQ(noticed(nullptr, converted), "");
  EXPECT_EQ(noticed(nullptr, tokens), "");
  EXPECT_EQ(noticed(nullptr, few_rows), "");
}

INSTANTIATE_TEST_SUITE_P(
    KvCaches, TemplateMutationTest,
    ::testing::Values(
        TemplateMutation{"ScalesBesideBoxesWithoutWait",
                         {"cp_async_$(", "mbarrier_arrive("},
                         {"data race", "access in flight", "unfinished copy"},
                         tokens},
        TemplateMutation{"LanesMissATransposedShuffle", {"distance = 4;", "distance = 8;"}, {}, few_rows},
        TemplateMutation{"ScalesOfTheBoxesFirstRow", {" + row % Traits::box_rows", ""}, {}, tokens},
        TemplateMutation{"ScalesWithoutWait",
                         {"cp_async_$(", "mbarrier_arrive("},
                         {"data race", "access in flight", "unfinished copy"},
                         converted},
        TemplateMutation{"ScalesOfTheFirstBox", {"own = $;", "own = box;"}, {}, converted},
        TemplateMutation{"ScalesBehindTheSequence", {"= $;", "= true;"}, {"out of bounds"}, converted},
        TemplateMutation{"EveryRowTheFirst", removed, {}, converted}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::kv_cache_mutations
