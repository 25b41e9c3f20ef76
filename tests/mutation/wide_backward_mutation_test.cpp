// Mutations of the kernels of gradients of wide heads: each must be noticed.
#include "tests/mutation/backward_mutation.h"

namespace jit::testing::wide_backward_mutations {
namespace {

// Several tiles on both sides, partial ones and empty ones, two heads that share keys; few buffers, so that all are filled
// again and again.
std::string noticed(const TemplateMutation* mutation) {
  const AttentionCase problem = {.spec = {.head_dim = 264, .gqa_ratio = 2, .mask = mask::causal()},
                                 .seqlen_q = 200,
                                 .seqlen_kv = 150,
                                 .seed = 5};
  return noticed_of_gradients(mutation, problem, BackwardDqWideWgmma{.panels = 3, .parts = 2},
                              BackwardDkvWideWgmma{.panels = 3, .parts = 4});
}

UNMUTATED_TEST(WideBackward, IsRightUnmutated) { EXPECT_EQ(noticed(nullptr), ""); }

class WideBackwardMutationTest : public MutationTest {};

TEST_P(WideBackwardMutationTest, IsCaught) { expect_caught(GetParam(), noticed(&GetParam())); }

INSTANTIATE_TEST_SUITE_P(
    BackwardWide, WideBackwardMutationTest,
    ::testing::Values(
        TemplateMutation{"StageOfAWideGradientIsOverwritten",
                         removed,
                         {"data race", "access in flight", "barrier", "wrong transaction count", "deadlock"}},
        TemplateMutation{
            "NoWaitForAPanelOfAGradient", removed, {"data race", "access in flight", "uninitialized read"}},
        TemplateMutation{"PanelOfAGradientReleasedEarly", moved_up(1), {"data race", "access in flight"}},
        TemplateMutation{"NoWaitForScoresOfAGradient", {"<0>", "<2>"}, {"access in flight"}},
        TemplateMutation{
            "NoWaitForAPartOfAGradient", removed, {"data race", "access in flight", "uninitialized read"}},
        TemplateMutation{"PartOfAGradientReleasedEarly", moved_up(1), {"data race", "access in flight"}},
        TemplateMutation{"WeightsReleasedUnderTheirProduct", moved_up(4), {"data race", "access in flight"}},
        TemplateMutation{
            "WeightsOverWeightsThatAreMultiplied", removed, {"data race", "access in flight", "deadlock"}},
        TemplateMutation{"WeightsTakenBeforeTheyAreThere",
                         removed,
                         {"data race", "access in flight", "uninitialized read", "deadlock"}},
        TemplateMutation{"WeightsWithoutProxyFence", removed, {"missing proxy fence"}},
        TemplateMutation{
            "NoWaitForTheOwnTiles", removed, {"data race", "access in flight", "uninitialized read"}},
        TemplateMutation{"ExchangeIsOverwritten",
                         removed,
                         {"data race", "access in flight", "barrier", "wrong transaction count"}},
        TemplateMutation{"TileOfTheGroupTwice", {"/ group;", "/ (group + 1);"}, {"data race"}},
        TemplateMutation{"DsOfWideKeysWithoutDelta", {" - number", ""}},
        TemplateMutation{"DqOfWideHeadsUnscaled", {"(params.softmax_scale", "(1.0f"}},
        TemplateMutation{"DkOfWideHeadsUnscaled", {"(own.params.softmax_scale", "(1.0f"}}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::wide_backward_mutations
