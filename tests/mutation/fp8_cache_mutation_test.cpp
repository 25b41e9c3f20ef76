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

// Many queries: more work tiles than blocks, whose outputs the query producer stores; a mask with a word of
// each key.
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

// By a kernel of its own, ahead: more rows than a block upcasts.
const Subject ahead = [] {
  Subject subject = many;
  subject.config = "family=forward_wgmma tile_q=64 tile_kv=32 stages_k=2 stages_v=2 upcast_ahead=true";
  subject.mask = "none";  // each row is seen
  subject.heads = 2;
  subject.seqlen_kv = 150;
  return subject;
}();

// Each thread of a block has more pieces of rows than it reads at once.
const Subject wide_ahead = [] {
  Subject subject = ahead;
  subject.config = "family=forward_wgmma tile_q=64 tile_kv=32 stages_k=2 output=direct upcast_ahead=true";
  subject.head_dim = 256;
  return subject;
}();

TEST(Fp8Cache, IsRightUnmutated) {
  for (const Subject& subject :
       reference::some_of<Subject>({many, stored, by_warpgroup, ahead, wide_ahead}, 2))
    EXPECT_EQ(noticed(nullptr, subject), "") << subject.config;
}

// The grid before may be the append to the cache.
TEST(Fp8Cache, UpcastsWhenTheCacheIsWritten) {
  const TemplateMutation mutation{.name = "UpcastingDoesNotWait", .change = removed};
  EXPECT_THAT(noticed(&mutation, ahead), ::testing::HasSubstr("has no griddepcontrol.wait"));
}

INSTANTIATE_TEST_SUITE_P(
    Fp8Cache, TemplateMutationTest,
    ::testing::Values(
        TemplateMutation{"NoProxyFence", removed, {"proxy"}, stored},
        TemplateMutation{
            "WrittenWhileItIsRead", removed, {"data race", "access in flight", "barrier"}, stored},
        TemplateMutation{
            "ReadBeforeItHasCome", removed, {"access in flight", "data race", "uninitialized"}, stored},
        TemplateMutation{"ConvertersWithoutEnd", removed, {"deadlock"}, stored},
        TemplateMutation{"HandedOverBeforeItIsRead",
                         {"$", "$\n    stored_.v.consumer_release();"},
                         {"data race", "access in flight", "barrier"},
                         many},
        TemplateMutation{"WrittenWhileItIsRead_ByMany",
                         removed,
                         {"data race", "access in flight", "barrier"},
                         by_warpgroup},
        TemplateMutation{"HalfOfTheRows", {"!has($)", "$ == 1"}, {"uninitialized"}, many},
        TemplateMutation{
            "WordsOfKeysNotPassedOn", {"$", "load_shared(from + i * 4);"}, {"uninitialized"}, many},
        TemplateMutation{"ConvertersOfManyWithoutEnd", removed, {"deadlock"}, by_warpgroup},
        TemplateMutation{"QueriesOverOutputsThatWait", removed, {"deadlock"}, many},
        TemplateMutation{"LastOutputsNotStored", {"$\n  }", ""}, {}, many},
        TemplateMutation{"QueriesOfFp16NotSeen", removed, {"proxy"}, many},
        TemplateMutation{"QueriesOfFp16WithoutFactors", {" * $,", ","}, {}, many},
        TemplateMutation{"KeysOfManyUnscaled", {" * $;", ";"}, {}, many},
        TemplateMutation{"LastRowOfAChunkNotUpcast", {", $ +", " - 1, $ +"}, {"uninitialized"}, ahead},
        TemplateMutation{
            "PiecesBehindTheFirstOnesNotUpcast", {"+= $)", "+= 1 << 20)"}, {"uninitialized"}, wide_ahead},
        TemplateMutation{"KeysUpcastAheadUnscaled", {"> $>", ">"}, {}, ahead}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::fp8_cache_mutations
