// Mutations of the warps that make numbers of 16 bits of keys and values of 8: what they read must have come, and what
// they write must be read, and left alone, in time.
#include "tests/mutation/template_mutation.h"

namespace jit::testing::fp8_cache_mutations {
namespace {

// More tiles than blocks have at once.
const Subject stored = {
    .config = "family=forward_split_wgmma tile_rows=64 tile_kv=32 stages=1 stages_stored=2",
    .mask = "none",
    .head_dim = 16,
    .head_dim_v = 16,
    .kv_dtype = DType::fp8_e4m3,
    .heads = 40,
    .seqlen_q = 1,
    .seqlen_kv = 300};

// Of many queries: more work tiles than blocks, whose outputs the query loader stores; a mask with a word of each key.
const Subject many = {.config =
                          "family=forward_wgmma tile_q=64 tile_kv=32 stages_q=1 stages_k=2 stages_v=2 "
                          "stages_stored=1 converter_warps=2",
                      .mask = "document",
                      .head_dim = 32,
                      .head_dim_v = 32,
                      .kv_dtype = DType::fp8_e4m3,
                      .heads = 140,
                      .seqlen_q = 20,
                      .seqlen_kv = 90};
// By a warpgroup.
const Subject by_warpgroup = [] {
  Subject subject = many;
  subject.config =
      "family=forward_wgmma tile_q=64 tile_kv=32 stages_k=2 stages_v=2 output=separate stages_stored=1 "
      "converter_warps=4";
  return subject;
}();

// By a kernel of its own, ahead: more rows than a block widens.
const Subject ahead = [] {
  Subject subject = many;
  subject.config = "family=forward_wgmma tile_q=64 tile_kv=32 stages_k=2 stages_v=2 widen_ahead=true";
  subject.mask = "none";  // each row is seen
  subject.heads = 2;
  subject.seqlen_kv = 150;
  return subject;
}();

// Each thread of a block has more pieces of rows than it reads at once.
const Subject wide_ahead = [] {
  Subject subject = ahead;
  subject.config = "family=forward_wgmma tile_q=64 tile_kv=32 stages_k=2 output=direct widen_ahead=true";
  subject.head_dim = 256;
  return subject;
}();

TEST(Fp8Cache, IsRightUnmutated) {
  for (const Subject& subject :
       reference::some_of<Subject>({many, stored, by_warpgroup, ahead, wide_ahead}, 2))
    EXPECT_EQ(noticed(nullptr, subject), "") << subject.config;
}

constexpr const char* convert_keys = "steps/convert_keys.cuh";
constexpr const char* load_keys = "forward_split_wgmma/load_keys.cuh";
constexpr const char* load_many_keys = "forward_wgmma/load_keys.cuh";
constexpr const char* rings = "forward_wgmma/rings.cuh";
constexpr const char* loaders = "forward_wgmma/loaders.cuh";
constexpr const char* widen_keys = "widen_keys/kernel.cuh";

// What appends to the cache may be the grid in front.
TEST(Fp8Cache, WidensWhenTheCacheIsWritten) {
  const TemplateMutation mutation{
      .name = "NoWait", .file = widen_keys, .from = "  wait_for_grids_before();\n", .to = ""};
  EXPECT_THAT(noticed(&mutation, ahead), ::testing::HasSubstr("has no griddepcontrol.wait"));
}

INSTANTIATE_TEST_SUITE_P(
    Fp8Cache, TemplateMutationTest,
    ::testing::Values(
        TemplateMutation{
            "NoProxyFence", convert_keys, "    fence_proxy_async_shared();\n", "", {"proxy"}, stored},
        TemplateMutation{"WrittenWhileItIsRead",
                         convert_keys,
                         "    rings_.k.wait_empty();\n",
                         "",
                         {"data race", "access in flight", "barrier"},
                         stored},
        TemplateMutation{"ReadBeforeItHasCome",
                         convert_keys,
                         "    stored_.v.wait_full();\n",
                         "",
                         {"access in flight", "data race", "uninitialized"},
                         stored},
        TemplateMutation{"ConvertersWithoutEnd",
                         load_keys,
                         "    if constexpr (Traits::converts) note_of_keys(key_note_end);\n",
                         "",
                         {"deadlock"},
                         stored},
        TemplateMutation{"HandedOverBeforeItIsRead",
                         convert_keys,
                         "    rings_.v.wait_empty();\n",
                         "    rings_.v.wait_empty();\n    stored_.v.arrive_empty();\n",
                         {"data race", "access in flight", "barrier"},
                         many},
        TemplateMutation{"WrittenWhileManyReadIt",
                         convert_keys,
                         "    rings_.k.wait_empty();\n",
                         "",
                         {"data race", "access in flight", "barrier"},
                         by_warpgroup},
        TemplateMutation{"HalfOfTheRows",
                         convert_keys,
                         "      if (!has(group)) break;\n",
                         "      if (group == 1) break;\n",
                         {"uninitialized"},
                         many},
        TemplateMutation{"WordsOfKeysNotPassedOn",
                         rings,
                         "        store_shared(to + i * 4, load_shared(from + i * 4));\n",
                         "        load_shared(from + i * 4);\n",
                         {"uninitialized"},
                         many},
        TemplateMutation{"ConvertersOfManyWithoutEnd",
                         load_many_keys,
                         "  if constexpr (Traits::widens) note_no_keys(key_note_no_more);\n",
                         "",
                         {"deadlock"},
                         by_warpgroup},
        TemplateMutation{"QueriesOverOutputsThatWait",
                         loaders,
                         "      if (loaded++ >= kept) storer.store_next();\n",
                         "",
                         {"deadlock"},
                         many},
        TemplateMutation{"LastOutputsNotStored",
                         loaders,
                         "  while (stores && storer.store_next()) {\n  }\n",
                         "",
                         {},
                         many},
        TemplateMutation{"QueriesOfFp16NotSeen",
                         "steps/wgmma_products.cuh",
                         "    fence_proxy_async_shared();\n    bar_sync",
                         "    bar_sync",
                         {"proxy"},
                         many},
        TemplateMutation{"QueriesOfFp16WithoutFactors",
                         "forward_wgmma/consumer_queries.cuh",
                         "exponent_scale<Score>(scales_.of_scores()) * factors_[r]",
                         "exponent_scale<Score>(scales_.of_scores())",
                         {},
                         many},
        TemplateMutation{"KeysOfManyUnscaled",
                         "steps/head_scales.cuh",
                         "return this->params_.softmax_scale * keys_.exponents;",
                         "return this->params_.softmax_scale;",
                         {},
                         many},
        TemplateMutation{"LastRowOfAChunkNotWidened",
                         widen_keys,
                         "minimum(first + widened_rows,",
                         "minimum(first + widened_rows - 1,",
                         {"uninitialized"},
                         ahead},
        TemplateMutation{"PiecesBehindTheFirstOnesNotWidened",
                         widen_keys,
                         "first += ahead * widening_threads",
                         "first += 1 << 20",
                         {"uninitialized"},
                         wide_ahead},
        TemplateMutation{"KeysWidenedAheadUnscaled",
                         "base/element.cuh",
                         "keys_are_fp8<Config> || keys_were_fp8<Config>",
                         "keys_are_fp8<Config>",
                         {},
                         ahead}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::fp8_cache_mutations
