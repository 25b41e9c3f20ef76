// Mutations of forward_split_cluster: each must be noticed.
#include "tests/mutation/template_mutation.h"

namespace jit::testing::split_cluster_mutations {
namespace {

// Several tiles for each warp, rows of two tiles, more clusters than the device holds at a time.
const Subject clusters = {
    .config = "family=forward_split_cluster cluster=4 block_warps=2 tile_kv=16 stages=2",
    .gqa_ratio = 3,
    .heads = 70,
    .seqlen_q = 6,
    .seqlen_kv = 500,
    .launches = 2};
// Fewer tiles than warps.
const Subject few_keys = {
    .config = "family=forward_split_cluster cluster=8 block_warps=4 tile_kv=32 stages=3",
    .mask = "none",
    .gqa_ratio = 4,
    .heads = 3,
    .seqlen_q = 1,
    .seqlen_kv = 150};

UNMUTATED_TEST(SplitCluster, IsRightUnmutated) {
  for (const Subject& subject : {clusters, few_keys})
    EXPECT_EQ(noticed(nullptr, subject), "") << subject.config;
}

INSTANTIATE_TEST_SUITE_P(
    SplitCluster, TemplateMutationTest,
    ::testing::Values(
        TemplateMutation{
            "NoWaitForKeysOfACluster", removed, {"data race", "access in flight", "uninitialized"}, clusters},
        TemplateMutation{
            "NoWaitForValues", removed, {"data race", "access in flight", "uninitialized"}, clusters},
        TemplateMutation{"TilesOfOtherLanesWithoutBarrier", removed, {"data race"}, clusters},
        TemplateMutation{"QueriesWithoutBarrier", removed, {"data race", "uninitialized"}, clusters},
        TemplateMutation{
            "ResultsOverTilesOfOtherWarps", removed, {"data race", "access in flight"}, clusters},
        TemplateMutation{
            "ResultsOfOtherWarpsWithoutBarrier", removed, {"data race", "uninitialized"}, clusters},
        TemplateMutation{"SentBeforeTheClusterHasMet", removed, {"data race"}, clusters},
        TemplateMutation{"ReceiveBuffersWithoutFence", removed, {"mbarrier", "data race"}, clusters},
        TemplateMutation{"NoWaitForTheOthers",
                         removed,
                         {"data race", "access in flight", "uninitialized", "exit"},
                         clusters},
        TemplateMutation{"EndsBeforeAllHasCome",
                         {"cluster", "(cluster - 1)"},
                         {"mbarrier", "data race", "access in flight", "uninitialized", "exit"},
                         clusters,
                         true},
        TemplateMutation{"PiecesOfOneBlockTwice", {"i *", "(i | 1) *"}, {}, clusters},
        TemplateMutation{"StatesOfAnotherBlock", {"i *", "(cluster - 1 - i) *"}, {}, clusters},
        TemplateMutation{"OneOwnerForTwo", {"rank_", "(rank_ & ~1)"}, {"data race"}, clusters},
        TemplateMutation{"AKeyTileOfNobody", {";", " + 1;"}, {}, few_keys},
        TemplateMutation{"WarpsOfOneBlockAlone", {" + $;", ";"}, {}, few_keys},
        TemplateMutation{"ScoresBehindTheKeys", removed, {}, few_keys},
        TemplateMutation{"LastTileTooSoon", {"if $ ", ""}, {"access in flight", "data race"}, clusters}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::split_cluster_mutations
