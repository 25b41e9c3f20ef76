// Mutations of one-pass kernels of all gradients whose consumers have roles, alone and in pairs of blocks.
#include "tests/mutation/backward_mutation.h"

namespace jit::testing::backward_roles_mutations {
namespace {

// Consumers with roles: two blocks of keys, and more tiles of queries than stages, of two heads.
const BackwardCase roles_problem = {
    .spec = {.head_dim = 136, .head_dim_v = 40, .gqa_ratio = 2, .mask = mask::causal()},
    .seqlen_q = 130,
    .seqlen_kv = 100,
    .seed = 5};

TEST(BackwardWithRoles, IsRightUnmutated) {
  const bool deterministic = reference::is_in_this_run(1, 2);
  EXPECT_EQ(noticed_of_gradients(nullptr, roles_problem, BackwardWgmma{.deterministic = deterministic}), "")
      << deterministic;
}

class RolesMutationTest : public MutationTest {};

TEST_P(RolesMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_gradients(&GetParam(), roles_problem, BackwardWgmma{}));
}

constexpr const char* of_values = "backward_wgmma/value_consumer.cuh";
constexpr const char* of_keys = "backward_wgmma/key_consumer.cuh";
constexpr const char* of_queries = "backward_wgmma/query_consumer.cuh";

INSTANTIATE_TEST_SUITE_P(
    BackwardWithRoles, RolesMutationTest,
    ::testing::Values(
        TemplateMutation{"ScoresDoNotWaitForQueries",
                         of_values,
                         "    rings_.q.wait_full(step);\n",
                         "",
                         {"data race", "access in flight", "uninitialized read"}},
        TemplateMutation{"DvDoesNotWaitForDo",
                         of_values,
                         "    rings_.d_o.wait_full(step);\n",
                         "",
                         {"data race", "access in flight", "uninitialized read"}},
        TemplateMutation{
            "NoWaitForThePlaceOfW", of_values, "    rings_.w.wait_empty(step);\n", "", {"data race"}},
        TemplateMutation{"ScoresAreNotWaitedFor",
                         of_values,
                         "      wgmma_wait_group<1>();  // dV\n",
                         "",
                         {"access in flight"}},
        TemplateMutation{"PIsRoundedWhileDvReadsIt",
                         of_values,
                         "        finish_dv<0>(step);\n",
                         "        rings_.d_o.arrive_empty(step);\n",
                         {"access in flight"}},
        TemplateMutation{"DvIsNotWaitedFor",
                         of_values,
                         "    start_dv(step);\n    finish_dv<0>(step);",
                         "    start_dv(step);\n    rings_.d_o.arrive_empty(step);",
                         {"access in flight"}},
        TemplateMutation{"DkDoesNotWaitForQueries",
                         of_keys,
                         "    rings_.q.wait_full(step);\n",
                         "",
                         {"data race", "access in flight", "uninitialized read"}},
        TemplateMutation{"DScoresDoNotWaitForDo",
                         of_keys,
                         "    rings_.d_o.wait_full(step);\n",
                         "",
                         {"data race", "access in flight", "uninitialized read"}},
        TemplateMutation{"NoWaitForW",
                         of_keys,
                         "    rings_.w.wait_full(step);\n",
                         "",
                         {"data race", "uninitialized read"}},
        TemplateMutation{"NoWaitForThePlaceOfDs",
                         of_keys,
                         "    rings_.ds.wait_empty(step);\n",
                         "",
                         {"data race", "access in flight"}},
        TemplateMutation{
            "NoFenceBehindDs", of_keys, "    fence_proxy_async_shared();\n", "", {"missing proxy fence"}},
        TemplateMutation{"DScoresAreNotWaitedFor",
                         of_keys,
                         "      wgmma_wait_group<0>();\n      step = uniform(step + 1);",
                         "      step = uniform(step + 1);",
                         {"access in flight"}},
        TemplateMutation{"QueriesAreLetGoWhileDkReadsThem",
                         of_keys,
                         "    wgmma_wait_group<running>();\n",
                         "",
                         {"access in flight", "data race"}},
        TemplateMutation{"DqDoesNotWaitForDs",
                         of_queries,
                         "      rings_.ds.wait_full(step);\n",
                         "",
                         {"data race", "access in flight", "uninitialized read"}},
        TemplateMutation{
            "DqIsNotWaitedFor", of_queries, "      wgmma_wait_group<0>();\n", "", {"access in flight"}},
        TemplateMutation{"QueriesAreLetGoByOneReader",
                         "backward_wgmma/rings.cuh",
                         "Config::stages, 2 * warps + (",
                         "Config::stages, warps + (",
                         {"data race", "access in flight"}},
        TemplateMutation{"PanelsOfDqInAnotherOrder", "backward_wgmma/loader.cuh",
                         "+ i * Traits::dq_part_floats;",
                         "+ (parts_.count - 1 - i) * Traits::dq_part_floats;"},
        TemplateMutation{"DsAndKeysAreLetGoBehindTheFirstPanel",
                         of_queries,
                         "      if (i + 1 == panels_.count) {\n        arrive_ds_empty",
                         "      if (i == 0) {\n        arrive_ds_empty",
                         {"data race", "access in flight", "barrier"}},
        TemplateMutation{
            "KeysAreNeverLetGo", of_queries, "(lets_keys_go_early && (load", "(false && (load", {"deadlock"}},
        TemplateMutation{"WWithoutItsPlaces", of_values, "store_shared(w + (i * Part::column_blocks + n)",
                         "store_shared(w + (i * Part::column_blocks + 1 - n)"},
        TemplateMutation{"PartialTilesTakenForFull", of_values, "return (flags_ & query_note_partial) != 0;",
                         "return false;"}),
    ::testing::PrintToStringParamName());

// Pairs of blocks: two tiles of keys, in one of which the second block has few; one buffer of dO.
const BackwardCase pairs_problem = {.spec = {.head_dim = 136, .head_dim_v = 200, .mask = mask::causal()},
                                    .seqlen_q = 200,
                                    .seqlen_kv = 200,
                                    .seed = 6};

TEST(BackwardInPairs, IsRightUnmutated) {
  const bool deterministic = reference::is_in_this_run(1, 2);
  EXPECT_EQ(noticed_of_gradients(nullptr, pairs_problem,
                                 BackwardWgmma{.deterministic = deterministic, .pair = true}),
            "")
      << deterministic;
}

class PairsMutationTest : public MutationTest {};

TEST_P(PairsMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_gradients(&GetParam(), pairs_problem, BackwardWgmma{.pair = true}));
}

constexpr const char* pairs = "backward_wgmma/pair.cuh";

INSTANTIATE_TEST_SUITE_P(
    BackwardInPairs, PairsMutationTest,
    ::testing::Values(
        TemplateMutation{"DqDoesNotWaitForThePeersDs",
                         pairs,
                         "  if (sends) mbarrier_expect_tx(rings.ds.full_at(step), bytes);\n",
                         "",
                         {"data race", "access in flight", "uninitialized read", "barrier"}},
        TemplateMutation{"DsIsSentBeforeAllWarpsHaveWritten",
                         pairs,
                         "  bar_sync(Traits::ds_barrier, warpgroup_size);\n",
                         "",
                         {"data race", "access in flight", "uninitialized read", "missing proxy fence"}},
        TemplateMutation{"DsIsLetGoForTheOwnBlockAlone",
                         "backward_wgmma/rings.cuh",
                         "init(Traits::layout.ds_empty, Traits::stages_ds, (Config::pair ? 2 : 1) * warps);",
                         "init(Traits::layout.ds_empty, Traits::stages_ds, warps);",
                         {"data race", "access in flight", "barrier"}},
        TemplateMutation{"BarriersAreNotThereYet",
                         "backward_wgmma/kernel.cuh",
                         "  if constexpr (Config::pair) {\n    meet_pair();\n  } else {",
                         "  {",
                         {"barrier", "uninitialized", "data race", "access in flight"}},
        TemplateMutation{"ABlockEndsBeforeItsPeerIsDone",
                         "backward_wgmma/kernel.cuh",
                         "  if constexpr (Config::pair) meet_pair();\n}",
                         "}",
                         {"block", "ended", "exited"}},
        TemplateMutation{"DoIsLetGoWhileDvReadsIt",
                         of_values,
                         "        finish_dv<1>(step);  // S\n",
                         "        rings_.d_o.arrive_empty(step);\n        wgmma_wait_group<1>();\n",
                         {"access in flight", "data race"}},
        TemplateMutation{"DoIsLetGoByOneReader",
                         "backward_wgmma/rings.cuh",
                         "init(Traits::layout.do_empty, Traits::stages_do, 2 * warps);",
                         "init(Traits::layout.do_empty, Traits::stages_do, warps);",
                         {"access in flight", "data race", "barrier"}},
        TemplateMutation{"DoIsLoadedOverWhatIsRead",
                         "backward_wgmma/loader.cuh",
                         "    if constexpr (Traits::has_roles) rings.d_o.wait_empty(step);\n",
                         "",
                         {"access in flight", "data race"}},
        TemplateMutation{"TheOtherTileIsMultiplied", "backward_wgmma/loader.cuh", "box_of(rank ^ 1)",
                         "box_of(rank)"},
        TemplateMutation{"BothAddTheFirstPanels", pairs, "const int begin = rank * Traits::own_dq_parts;",
                         "const int begin = 0;"},
        TemplateMutation{
            "BothOwnTheFirstKeys", pairs, "keys.k_begin += rank *", "keys.k_begin += 0 *", {"data race"}}),
    ::testing::PrintToStringParamName());

// Blocks of a pair add to a tile of queries in any order.
class PairsInTurnMutationTest : public MutationTest {};

TEST_P(PairsInTurnMutationTest, IsCaught) {
  BackwardCase many = pairs_problem;  // so that each warp of a pair is once held back
  many.heads_kv = 33;
  expect_caught(GetParam(),
                noticed_of_gradients(&GetParam(), many, BackwardWgmma{.deterministic = true, .pair = true}));
}

INSTANTIATE_TEST_SUITE_P(BackwardInPairs, PairsInTurnMutationTest,
                         ::testing::Values(TemplateMutation{"ThePeerMustNotHaveAdded",
                                                            "backward_wgmma/turns.cuh",
                                                            "constexpr int of_peer = Config::pair ? 1 : 0;",
                                                            "constexpr int of_peer = 0;",
                                                            {"deadlock"}}),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::backward_roles_mutations
