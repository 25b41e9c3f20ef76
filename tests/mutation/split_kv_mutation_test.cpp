// Mutations of forward_split_kv: each must be noticed.
#include "tests/mutation/template_mutation.h"

namespace jit::testing {
namespace {

// More units than blocks, of several tiles: blocks go from one to the next, and share some.
const Subject split_kv = {.config = "family=forward_split_kv tile_kv=64 stages=3 blocks_per_sm=1",
                          .heads = 70,
                          .seqlen_q = 5,
                          .seqlen_kv = 500,
                          .launches = 2};

TEST(SplitKv, IsRightUnmutated) { EXPECT_EQ(noticed(nullptr, split_kv), ""); }

class SplitKvMutationTest : public ::testing::TestWithParam<TemplateMutation> {};

TEST_P(SplitKvMutationTest, IsCaught) { expect_caught(GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    ForwardSplitKv, SplitKvMutationTest,
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
                         "forward_split_kv/results.cuh",
                         "atomic_inc_acq_rel(split.counters + note.first_block, note.parts - 1)",
                         "atomic_inc_acq_rel(split.counters + note.first_block, 0xffffffffu)",
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
                         split_kv}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing
