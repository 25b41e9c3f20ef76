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

TEST(SplitCluster, IsRightUnmutated) {
  for (const Subject& subject : {clusters, few_keys})
    EXPECT_EQ(noticed(nullptr, subject), "") << subject.config;
}

constexpr const char* kernel = "forward_split_cluster/kernel.cuh";
constexpr const char* inbox = "forward_split_cluster/inbox.cuh";
constexpr const char* share = "forward_split_cluster/share.cuh";
constexpr const char* loads = "forward_split_cluster/loads.cuh";

INSTANTIATE_TEST_SUITE_P(
    SplitCluster, TemplateMutationTest,
    ::testing::Values(
        TemplateMutation{"NoWaitForKeys",
                         kernel,
                         "    cp_async_wait_group<groups_ahead + 1>();  // keys\n",
                         "",
                         {"data race", "access in flight", "uninitialized"},
                         clusters},
        TemplateMutation{"NoWaitForValues",
                         kernel,
                         "    cp_async_wait_group<groups_ahead>();  // values\n",
                         "",
                         {"data race", "access in flight", "uninitialized"},
                         clusters},
        TemplateMutation{"TilesOfOtherLanesWithoutBarrier",
                         kernel,
                         "    __syncwarp();\n    Products::multiply_pv",
                         "    Products::multiply_pv",
                         {"data race"},
                         clusters},
        TemplateMutation{"QueriesWithoutBarrier",
                         kernel,
                         "      __syncthreads();  // the queries of all threads are there\n",
                         "",
                         {"data race", "uninitialized"},
                         clusters},
        TemplateMutation{
            "ResultsOverTilesOfOtherWarps",
            kernel,
            "  __syncthreads();  // the other warps are done with the tiles that lie where results will\n",
            "",
            {"data race", "access in flight"},
            clusters},
        TemplateMutation{"ResultsOfOtherWarpsWithoutBarrier",
                         kernel,
                         "  parts.put(output, state, scale_log2);\n  __syncthreads();\n",
                         "  parts.put(output, state, scale_log2);\n",
                         {"data race", "uninitialized"},
                         clusters},
        TemplateMutation{"SentBeforeTheClusterHasMet",
                         kernel,
                         "    cluster_wait();  // all inboxes are there\n",
                         "",
                         {"data race"},
                         clusters},
        TemplateMutation{"InboxesWithoutFence",
                         inbox,
                         "    fence_mbarrier_init();\n",
                         "",
                         {"mbarrier", "data race"},
                         clusters},
        TemplateMutation{"NoWaitForTheOthers",
                         kernel,
                         "    inbox.wait();\n",
                         "",
                         {"data race", "access in flight", "uninitialized", "exit"},
                         clusters},
        TemplateMutation{"EndsBeforeAllHasCome",
                         inbox,
                         "own * cluster * piece_bytes",
                         "own * (cluster - 1) * piece_bytes",
                         {"mbarrier", "data race", "access in flight", "uninitialized", "exit"},
                         clusters,
                         true},
        TemplateMutation{"PiecesOfOneBlockTwice",
                         inbox,
                         "[i * places + place];\n  }\n\n private",
                         "[(i | 1) * places + place];\n  }\n\n private",
                         {},
                         clusters},
        TemplateMutation{"StatesOfAnotherBlock",
                         inbox,
                         "layout.inbox_states)[i * places + place]",
                         "layout.inbox_states)[(cluster - 1 - i) * places + place]",
                         {},
                         clusters},
        TemplateMutation{"OneOwnerForTwo",
                         inbox,
                         "place / pieces_together * cluster + rank_",
                         "place / pieces_together * cluster + (rank_ & ~1)",
                         {"data race"},
                         clusters},
        TemplateMutation{"AKeyTileOfNobody",
                         share,
                         "place * each + minimum(place, more)",
                         "place * each + minimum(place + 1, more)",
                         {},
                         few_keys},
        TemplateMutation{
            "WarpsOfOneBlockAlone", share, "warp_id() * blocks + rank;", "warp_id() * blocks;", {}, few_keys},
        TemplateMutation{"ScoresBehindTheKeys",
                         loads,
                         "    if (tiles.is_partial()) note.flags |= key_note_partial;\n",
                         "",
                         {},
                         few_keys},
        TemplateMutation{"LastTileTooSoon",
                         loads,
                         "    if (!tiles.has(0)) note.flags |= key_note_last;\n",
                         "    note.flags |= key_note_last;\n",
                         {"access in flight", "data race"},
                         clusters}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::split_cluster_mutations
