// Mutations of the families whose keys are split over blocks: each must be noticed.
#include "tests/mutation/template_mutation.h"

namespace jit::testing {
namespace {

// A few more units than blocks, of several tiles: blocks go from one to the next, and share them.
const Subject split_kv = {.config = "family=forward_split_kv tile_kv=64 stages=3 blocks_per_sm=1",
                          .heads = 140,
                          .seqlen_q = 5,
                          .seqlen_kv = 500,
                          .launches = 2};

const Subject split_wgmma = {.config = "family=forward_split_wgmma tile_rows=64 tile_kv=64 stages=2",
                             .heads = 140,
                             .seqlen_q = 5,
                             .seqlen_kv = 500,
                             .launches = 2};
// Many more units than blocks, which see the same keys: they are dealt.
const Subject dealt = {.config = "family=forward_split_wgmma tile_rows=64 tile_kv=64 stages=2 stages_q=2",
                       .mask = "none",
                       .heads = 16,
                       .seqlen_q = 3100,
                       .seqlen_kv = 50};
const Subject room_for_more = {.config = "family=forward_split_wgmma tile_rows=64 tile_kv=64 stages=2",
                               .mask = "none",
                               .heads = 1,
                               .seqlen_q = 2,
                               .seqlen_kv = 100,
                               .rows_behind = 2};
// One unit for all blocks: its parts are merged in groups.
const Subject many_parts = {.config = "family=forward_split_wgmma tile_rows=64 tile_kv=16 stages=2",
                            .mask = "none",
                            .heads = 1,
                            .seqlen_q = 2,
                            .seqlen_kv = 1000};

TEST(SplitKeys, AreRightUnmutated) {
  for (const Subject& subject : {split_kv, split_wgmma, dealt, room_for_more, many_parts})
    EXPECT_EQ(noticed(nullptr, subject), "");
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
                         {"data race"},
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
                         room_for_more,
                         true},
        TemplateMutation{"GroupsMergedBeforeTheyAreThere",
                         "split_keys/merge_parts.cuh",
                         "if (!is_last_of(counter, members, team, ticket)) return;",
                         "is_last_of(counter, members, team, ticket);",
                         {"data race", "uninitialized"},
                         many_parts},
        TemplateMutation{"SomeUnitsTwice",
                         "split_keys/work_list.cuh",
                         "skip(params, static_cast<int>(blockIdx.x));",
                         "skip(params, static_cast<int>(blockIdx.x) / 2);",
                         {"data race"},
                         dealt}),
    ::testing::PrintToStringParamName());

// The order of blocks by a counter broken: the numbers may well be right all the same.
class CounterMutationTest : public ::testing::TestWithParam<TemplateMutation> {};

TEST_P(CounterMutationTest, IsARaceInGlobalMemory) {
  const std::string text = noticed(&GetParam(), GetParam().subject);
  EXPECT_THAT(text, ::testing::AllOf(::testing::HasSubstr("data race"),
                                     ::testing::HasSubstr("bytes of global memory: "),
                                     ::testing::HasSubstr("and nothing orders the two")));
}

constexpr const char* atomic = "ptx/atomic.cuh";
constexpr const char* count = "atom.acq_rel.gpu.global.inc.u32";
constexpr const char* merge_parts = "split_keys/merge_parts.cuh";
constexpr const char* ends_early = "  return *ticket == last;\n";
constexpr const char* block_stores_then_counts = R"(    } else {
      BlockResults<Config, Traits::tile_rows>(split, note).put(note.part, row, column, piece);
    }
  });
  if (note.parts > 1) merge_parts<Config, Traits::tile_rows>(params, split, note, team, ticket);
)";
constexpr const char* block_counts_then_stores = R"(    }
  });
  if (note.parts == 1) return;
  merge_parts<Config, Traits::tile_rows>(params, split, note, team, ticket);
  for_each_piece<Config, Traits::tile_rows, Traits::threads>(note, team.thread, [&](int row, int column) {
    BlockResults<Config, Traits::tile_rows>(split, note).put(note.part, row, column, merge(own, row, column));
  });
)";
constexpr const char* consumers_store = R"(
  put_rows<Config>(BlockResults<Config, tile_rows>(split, note), note.part, rows, result);)";
constexpr const char* consumers_count = R"(
  merge_parts<Config, tile_rows>(params, split, note, team, ticket);)";
const std::string consumers_store_then_count = std::string(consumers_store) + consumers_count;
const std::string consumers_count_then_store = std::string(consumers_count) + consumers_store;

INSTANTIATE_TEST_SUITE_P(
    SplitKeys, CounterMutationTest,
    ::testing::Values(
        TemplateMutation{"CounterIsRelaxed", atomic, count, "atom.relaxed.gpu.global.inc.u32", {}, split_kv},
        TemplateMutation{
            "CounterAcquiresOnly", atomic, count, "atom.acquire.gpu.global.inc.u32", {}, split_kv},
        TemplateMutation{
            "CounterReleasesOnly", atomic, count, "atom.release.gpu.global.inc.u32", {}, split_kv},
        TemplateMutation{
            "CounterOfTheBlockOnly", atomic, count, "atom.acq_rel.cta.global.inc.u32", {}, split_kv},
        TemplateMutation{
            "CounterOfWgmmaIsRelaxed", atomic, count, "atom.relaxed.gpu.global.inc.u32", {}, split_wgmma},
        TemplateMutation{"NoBarrierBeforeTheCounter",
                         merge_parts,
                         "  team.sync();\n  if (team.thread == 0)",
                         "  if (team.thread == 0)",
                         {},
                         split_wgmma},
        TemplateMutation{"CountsBeforeItStores",
                         "forward_split_kv/results.cuh",
                         block_stores_then_counts,
                         block_counts_then_stores,
                         {},
                         split_kv},
        TemplateMutation{"CountsBeforeItStoresByWgmma",
                         "forward_split_wgmma/finish_part.cuh",
                         consumers_store_then_count.c_str(),
                         consumers_count_then_store.c_str(),
                         {},
                         split_wgmma},
        TemplateMutation{"MergesBeforeTheLastIsThere",
                         merge_parts,
                         ends_early,
                         "  return *ticket + 1 >= last;\n",
                         {},
                         split_kv},
        TemplateMutation{"AllMerge", merge_parts, ends_early, "  return true;\n", {}, split_kv},
        TemplateMutation{"GroupsInPlacesOfParts",
                         merge_parts,
                         "results.put(place + group, row",
                         "results.put(group, row",
                         {},
                         many_parts}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing
