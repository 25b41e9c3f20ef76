// Mutations of the families whose keys are split over blocks: each must be noticed.
#include "tests/mutation/template_mutation.h"

namespace jit::testing {
namespace {

// More units than blocks, of several tiles: blocks go from one to the next, and share some.
const Subject split_kv = {.config = "family=forward_split_kv tile_kv=64 stages=3 blocks_per_sm=1",
                          .heads = 70,
                          .seqlen_q = 5,
                          .seqlen_kv = 500,
                          .launches = 2};

const Subject split_wgmma = {.config = "family=forward_split_wgmma tile_rows=64 tile_kv=64 stages=2",
                             .heads = 70,
                             .seqlen_q = 5,
                             .seqlen_kv = 500,
                             .launches = 2};
// Many more units than blocks, which see the same keys: they are dealt.
const Subject dealt = {.config = "family=forward_split_wgmma tile_rows=64 tile_kv=64 stages=2 stages_q=2",
                       .heads = 8,
                       .seqlen_q = 1100,
                       .seqlen_kv = 100};

TEST(SplitKeys, AreRightUnmutated) {
  for (const Subject& subject : {split_kv, split_wgmma, dealt}) EXPECT_EQ(noticed(nullptr, subject), "");
}

class SplitKeysMutationTest : public ::testing::TestWithParam<TemplateMutation> {};

TEST_P(SplitKeysMutationTest, IsCaught) { expect_caught(GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    SplitKeys, SplitKeysMutationTest,
    ::testing::Values(
        TemplateMutation{"NoWaitForTiles",
                         "forward_split_kv/kernel.cuh",
                         "    if (step >= 0) cp_async_wait_group<loads_ahead - 1>();\n",
                         "",
                         {"data race", "access in flight"},
                         split_kv},
        TemplateMutation{"NoBarrierBeforeResults",
                         "forward_split_kv/results.cuh",
                         "  __syncthreads();  // the other warps are done with the tiles that lie here\n",
                         "",
                         {"data race"},
                         split_kv},
        TemplateMutation{"NoBarrierBehindResults",
                         "forward_split_kv/results.cuh",
                         "  state = {};\n  __syncthreads();\n",
                         "  state = {};\n",
                         {"data race"},
                         split_kv},
        TemplateMutation{"StateOfThePartBefore",
                         "forward_split_kv/results.cuh",
                         "  output.clear();\n  state = {};\n",
                         "  output.clear();\n",
                         {},
                         split_kv},
        TemplateMutation{"CountersStayWhereTheyAre",
                         "split_keys/merge_parts.cuh",
                         "atomic_inc_acq_rel(counter, last)",
                         "atomic_inc_acq_rel(counter, 0xffffffffu)",
                         {},
                         split_kv},
        TemplateMutation{"PartialResultsOfTwoUnitsInOnePlace",
                         "split_keys/block_results.cuh",
                         "2ll * note.first_block + 1",
                         "1ll * note.first_block + 1",
                         {},
                         split_kv},
        TemplateMutation{"OneTileOfKeysTwice",
                         "scheduling/key_shares.cuh",
                         "const int before = (place + tile_cost - 1) / tile_cost;",
                         "const int before = place / tile_cost;",
                         {},
                         split_kv},
        TemplateMutation{"QueriesWithoutWait",
                         "forward_split_wgmma/load_queries.cuh",
                         "    cp_async_wait_group<0>();\n",
                         "",
                         {"data race", "access in flight"},
                         split_wgmma},
        TemplateMutation{"QueriesWithoutProxyFence",
                         "forward_split_wgmma/load_queries.cuh",
                         "    fence_proxy_async_shared();\n    ring.arrive_full();",
                         "    ring.arrive_full();",
                         {"proxy"},
                         split_wgmma},
        TemplateMutation{"QueriesReleasedTooEarly",
                         "forward_split_wgmma/consumer.cuh",
                         "      rings_.q.wait_full();\n",
                         "      rings_.q.wait_full();\n      rings_.q.arrive_empty();\n",
                         {"data race", "access in flight", "mbarrier"},
                         dealt,
                         true},
        TemplateMutation{"RowsBehindTheSequence",
                         "forward_split_wgmma/consumer.cuh",
                         "if (keys < Config::tile_kv) clear_rows<Config>(rings_.v.tile(), keys, thread());",
                         "",
                         {"uninitialized", "not a number", "data race"},
                         {.config = "family=forward_split_wgmma tile_rows=64 tile_kv=64 stages=2",
                          .mask = "none",
                          .heads = 3,
                          .seqlen_q = 2,
                          .seqlen_kv = 100}},
        TemplateMutation{"PartsNotCountedBehindTheirRows",
                         "split_keys/merge_parts.cuh",
                         "  team.sync();\n  if (team.thread == 0)",
                         "  if (team.thread == 0)",
                         {"data race"},
                         split_wgmma,
                         true},
        TemplateMutation{"SomeUnitsTwice",
                         "split_keys/work_list.cuh",
                         "skip(params, static_cast<int>(blockIdx.x));",
                         "skip(params, static_cast<int>(blockIdx.x) / 2);",
                         {},
                         dealt}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing
