// Mutations of backward_tcgen05, on an emulated sm_100a: what its warps hand over must be there, in tensor memory, too.
#include "tests/mutation/backward_mutation.h"

namespace jit::testing::backward_tcgen05_mutations {
namespace {

constexpr BackwardTcgen05 any_order = {.stages = 2}, in_turn = {.stages = 2, .deterministic = true};

// Several steps of a tile of keys, several parts of dQ, several tiles that add to it.
const AttentionCase steps = {
    .spec = {.head_dim = 64, .gqa_ratio = 2}, .seqlen_q = 270, .seqlen_kv = 200, .seed = 5};
// Blocks with several tiles of keys, of which no query sees the first ones.
const AttentionCase tiles = {.spec = {.head_dim = 16, .mask = mask::sliding_window(60, 0)},
                             .heads_kv = 70,
                             .seqlen_q = 140,
                             .seqlen_kv = 390,
                             .seed = 5};

const std::vector<const char*> race = {"data race", "access in flight", "uninitialized",
                                       "mbarrier",  "unfinished copy",  "proxy"};

UNMUTATED_TEST(BackwardTcgen05, IsRightUnmutated) {
  EXPECT_EQ(noticed_of_gradients(nullptr, steps, any_order), "");
  EXPECT_EQ(noticed_of_gradients(nullptr, steps, in_turn), "");
  EXPECT_EQ(noticed_of_gradients(nullptr, tiles, any_order), "");
}

class BackwardTcgen05MutationTest : public MutationTest {};
TEST_P(BackwardTcgen05MutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_gradients(&GetParam(), steps, any_order));
}

INSTANTIATE_TEST_SUITE_P(
    BackwardTcgen05, BackwardTcgen05MutationTest,
    ::testing::Values(
        TemplateMutation{"ScoresDoNotWaitForQueries", removed, race},
        TemplateMutation{"DpDoesNotWaitForDo", removed, race},
        TemplateMutation{"DvDoesNotWaitForP", removed, race},
        TemplateMutation{"DkDoesNotWaitForDs", removed, race},
        TemplateMutation{"DqIsOverwrittenBeforeItIsRead", removed, race},
        TemplateMutation{"DoIsNeverReleased", removed, {"deadlock"}},
        TemplateMutation{"StagesAreReleasedAtOnce", {"tcgen05_commit", "mbarrier_arrive"}, race},
        TemplateMutation{"SumsBeginWithThoseOfOtherKeys", {"accumulates || i > 0", "true"}, race},
        TemplateMutation{"NoFenceBehindAWaitOfBackward", removed, race},
        TemplateMutation{"NoFenceBeforeTelling", removed, race},
        TemplateMutation{"SIsReadBeforeItIsThere", removed, race},
        TemplateMutation{"DpIsReadBeforeItIsThere", removed, race},
        TemplateMutation{"NoWaitForScores", removed, race},
        TemplateMutation{"PIsToldBeforeItIsThere", removed, race},
        TemplateMutation{"DsIsToldBeforeItIsThere", removed, race},
        TemplateMutation{"NoFenceBehindDsOfKeys", removed, {"missing proxy fence"}},
        TemplateMutation{"PackedOverOthersQueries", {"/ part_queries * part_queries", "/ tile_q"}, race},
        TemplateMutation{"SumsAreReadTooEarly", removed, race},
        TemplateMutation{"NoWaitForSums", removed, race},
        TemplateMutation{"DqIsReadBeforeItIsThere", removed, race},
        TemplateMutation{"NoWaitForDqColumns", removed, race},
        TemplateMutation{"NoFenceBehindDqOfStep", removed, race},
        TemplateMutation{"NoWaitForTheAdderOfParts", removed, race},
        TemplateMutation{"NoFenceBehindDqParts", removed, {"missing proxy fence"}},
        TemplateMutation{"DsLiesAlongColumns", {"true, true)", "true, false)"}, {}},
        TemplateMutation{"GradientsOfOneWarp", {" % 4 * warp_size", " * 0"}, {"illegal", "tensor memory"}},
        TemplateMutation{"DkOfTcgen05Unscaled", {"params_.softmax_scale", "1.0f"}},
        TemplateMutation{"DqOfTcgen05Unscaled", {"params.softmax_scale", "1.0f"}},
        TemplateMutation{"ColumnsOfSumsKept", removed, {"tensor memory", "unfinished"}}),
    ::testing::PrintToStringParamName());

// Blocks with several tiles of keys.
class TilesOfTcgen05MutationTest : public MutationTest {};
TEST_P(TilesOfTcgen05MutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_gradients(&GetParam(), tiles, any_order));
}

INSTANTIATE_TEST_SUITE_P(BackwardTcgen05, TilesOfTcgen05MutationTest,
                         ::testing::Values(TemplateMutation{"SumsAreReadTooEarly_TheyCountAllTiles",
                                                            {"summed++", "keys.round"},
                                                            {"data race", "deadlock"}},
                                           TemplateMutation{
                                               "KeysOfTcgen05AreNeverReleased", removed, {"deadlock"}}),
                         ::testing::PrintToStringParamName());

// The first of several parts of dQ takes the turn, and the last one passes it on.
class TurnsOfTcgen05MutationTest : public MutationTest {};
TEST_P(TurnsOfTcgen05MutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_gradients(&GetParam(), steps, in_turn));
}

INSTANTIATE_TEST_SUITE_P(BackwardTcgen05, TurnsOfTcgen05MutationTest,
                         ::testing::Values(TemplateMutation{
                             "TurnsArePassedOnByEachPart", {"i + 1 == parts_.count && ", ""}, {"deadlock"}}),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::backward_tcgen05_mutations
