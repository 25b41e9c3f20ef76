// Mutations of one-pass kernels of all gradients whose consumers have roles, alone and in pairs of blocks.
#include "tests/mutation/backward_mutation.h"

namespace jit::testing::backward_roles_mutations {
namespace {

// Consumers with roles: two blocks of keys, and more tiles of queries than stages, of two heads.
const AttentionCase roles_problem = {
    .spec = {.head_dim = 136, .head_dim_v = 40, .gqa_ratio = 2, .mask = mask::causal()},
    .seqlen_q = 130,
    .seqlen_kv = 100,
    .seed = 5};

UNMUTATED_TEST(BackwardWithRoles, IsRightUnmutated) {
  const bool deterministic = reference::is_in_this_run(1, 2);
  EXPECT_EQ(noticed_of_gradients(nullptr, roles_problem, BackwardWgmma{.deterministic = deterministic}), "")
      << deterministic;
}

class RolesMutationTest : public MutationTest {};

TEST_P(RolesMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_gradients(&GetParam(), roles_problem, BackwardWgmma{}));
}

INSTANTIATE_TEST_SUITE_P(
    BackwardWithRoles, RolesMutationTest,
    ::testing::Values(
        TemplateMutation{
            "NoWaitForQueries_OfRoles", removed, {"data race", "access in flight", "uninitialized read"}},
        TemplateMutation{
            "NoWaitForDo_OfRoles", removed, {"data race", "access in flight", "uninitialized read"}},
        TemplateMutation{"NoWaitForThePlaceOfW", removed, {"data race"}},
        TemplateMutation{"ScoresOfRolesAreNotWaitedFor", removed, {"access in flight"}},
        TemplateMutation{"PIsRoundedWhileDvReadsIt",
                         {"$", "tile_.pipelines.d_o.consumer_release(step);"},
                         {"access in flight"}},
        TemplateMutation{
            "DvIsNotWaitedFor", {"$", "tile_.pipelines.d_o.consumer_release(step);"}, {"access in flight"}},
        TemplateMutation{"NoWaitForW", removed, {"data race", "uninitialized read"}},
        TemplateMutation{"NoWaitForThePlaceOfDsOfRoles", removed, {"data race", "access in flight"}},
        TemplateMutation{"NoFenceBehindDs_OfRoles", removed, {"missing proxy fence"}},
        TemplateMutation{"DScoresAreNotWaitedFor", removed, {"access in flight"}},
        TemplateMutation{"QueriesAreLetGoWhileDkReadsThem", removed, {"access in flight", "data race"}},
        TemplateMutation{
            "DqDoesNotWaitForDs", removed, {"data race", "access in flight", "uninitialized read"}},
        TemplateMutation{"DqOfRolesIsNotWaitedFor", removed, {"access in flight"}},
        TemplateMutation{"QueriesAreLetGoByOneReader", {", 2 * ", ", "}, {"data race", "access in flight"}},
        TemplateMutation{"PanelsOfDqInAnotherOrder", {"+ i *", "+ (parts_.count - 1 - i) *"}},
        TemplateMutation{"DsAndKeysAreLetGoBehindTheFirstPanel",
                         {"($)", "(i == 0)"},
                         {"data race", "access in flight", "barrier"}},
        TemplateMutation{"KeysAreNeverLetGo", {"if ($ &&", "if (false &&"}, {"deadlock"}},
        TemplateMutation{"WWithoutItsPlaces", {"+ n", "+ 1 - n"}},
        TemplateMutation{"PartialTilesTakenForFull_OfRoles", {"{ $ }", "{ return false; }"}}),
    ::testing::PrintToStringParamName());

// Pairs of blocks: two tiles of keys, in one of which the second block has few; one buffer of dO.
const AttentionCase pairs_problem = {.spec = {.head_dim = 136, .head_dim_v = 200, .mask = mask::causal()},
                                     .seqlen_q = 200,
                                     .seqlen_kv = 200,
                                     .seed = 6};

UNMUTATED_TEST(BackwardInPairs, IsRightUnmutated) {
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

INSTANTIATE_TEST_SUITE_P(
    BackwardInPairs, PairsMutationTest,
    ::testing::Values(
        TemplateMutation{"DqDoesNotWaitForThePeersDs",
                         removed,
                         {"data race", "access in flight", "uninitialized read", "barrier"}},
        TemplateMutation{"DsIsSentBeforeAllWarpsHaveWritten",
                         removed,
                         {"data race", "access in flight", "uninitialized read", "missing proxy fence"}},
        TemplateMutation{
            "DsIsLetGoForTheOwnBlockAlone", {" ($) * ", " "}, {"data race", "access in flight", "barrier"}},
        TemplateMutation{"BarriersAreNotThereYet",
                         {"if$else {", "{"},
                         {"barrier", "uninitialized", "data race", "access in flight"}},
        TemplateMutation{"ABlockEndsBeforeItsPeerIsDone", removed, {"block", "ended", "exited"}},
        TemplateMutation{"DoIsLetGoWhileDvReadsIt",
                         {"$", "tile_.pipelines.d_o.consumer_release(step);\n        wgmma_wait_group<1>();"},
                         {"access in flight", "data race"}},
        TemplateMutation{
            "DoIsLetGoByOneReader", {", 2 * ", ", "}, {"access in flight", "data race", "barrier"}},
        TemplateMutation{"DoIsLoadedOverWhatIsRead", removed, {"access in flight", "data race"}},
        TemplateMutation{"TheOtherTileIsMultiplied", {" ^ 1", ""}},
        TemplateMutation{"BothAddTheFirstPanels", {"= $;", "= 0;"}},
        TemplateMutation{"BothOwnTheFirstKeys", {"+= $ *", "+= 0 *"}, {"data race"}}),
    ::testing::PrintToStringParamName());

// Blocks of a pair add to a tile of queries in any order. Here the first one never sees that it is the pair's turn before its
// peer has added, whatever the pace of the host's threads.
#define JIT_FIRST_BLOCK_IS_LATE " if (cluster_rank() == 0) while (load_acquire(additions) <= count) {}"

class PairsInTurnMutationTest : public MutationTest {
 protected:
  static std::string noticed_in_turn(const TemplateMutation& mutation) {
    return noticed_of_gradients(&mutation, pairs_problem, BackwardWgmma{.deterministic = true, .pair = true});
  }
};

TEST_P(PairsInTurnMutationTest, IsCaught) { expect_caught(GetParam(), noticed_in_turn(GetParam())); }

TEST_P(PairsInTurnMutationTest, ALateBlockIsNoFault) {
  const TemplateMutation late{"ThePeerMustNotHaveAdded_Late", {"= $;", "= $;" JIT_FIRST_BLOCK_IS_LATE}};
  EXPECT_EQ(noticed_in_turn(late), "");
}

INSTANTIATE_TEST_SUITE_P(BackwardInPairs, PairsInTurnMutationTest,
                         ::testing::Values(TemplateMutation{"ThePeerMustNotHaveAdded",
                                                            {"= $;", "= 0;" JIT_FIRST_BLOCK_IS_LATE},
                                                            {"deadlock"}}),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::backward_roles_mutations
