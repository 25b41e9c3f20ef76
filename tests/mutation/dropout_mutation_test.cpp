// Mutations of dropout: each must be noticed.
#include <fmt/format.h>

#include "tests/mutation/backward_mutation.h"
#include "tests/support/backward_run.h"
#include "tests/support/varlen_backward_run.h"

namespace jit::testing::dropout_mutations {
namespace {

// Two heads that share keys, several groups on both sides, halves of them, partial tiles.
const AttentionCase problem = {
    .spec = {.head_dim = 16, .gqa_ratio = 2, .dropout = true, .mask = mask::causal()},
    .seqlen_q = 70,
    .seqlen_kv = 83,
    .seed = 5,
    .dropout_p = 0.25f};

// Two sequences with rows of nobody before, between and behind them.
const VarlenBackwardCase varlen_problem = {.spec = {.head_dim = 16,
                                                    .gqa_ratio = 2,
                                                    .sequences_q = SequenceKind::varlen,
                                                    .sequences_kv = SequenceKind::varlen,
                                                    .dropout = true,
                                                    .mask = mask::causal()},
                                           .q = {.lengths = {40, 70}, .spare = {3, 1}, .around = 70},
                                           .kv = {.lengths = {83, 30}, .spare = {20, 2}},
                                           .seed = 5,
                                           .dropout_p = 0.25f};

std::string noticed_of_lengths(const TemplateMutation* mutation) {
  const MutatedTemplates templates(mutation);
  const CurrentDevice scope(0);
  return VarlenBackwardRun(varlen_problem)
      .check_forward(Context(templates.settings()), ForwardMmaSync{.tile_q = 32, .tile_kv = 64, .warps = 2});
}

std::string noticed_of_dropout(const TemplateMutation* mutation) {
  const MutatedTemplates templates(mutation);
  const Context context(templates.settings());
  const CurrentDevice scope(0);
  BackwardRun run(problem);
  if (std::string trouble =
          run.check_forward(context, ForwardMmaSync{.tile_q = 32, .tile_kv = 64, .warps = 2});
      !trouble.empty())
    return trouble;
  run.compute(context, BackwardDqMmaSync{.tile_q = 32, .tile_kv = 32, .warps = 2},
              BackwardDkvMmaSync{.tile_q = 32, .tile_kv = 32, .warps = 2});
  return run.check();
}

// Several steps of 64 queries, two pairs of warps in each of two consumers.
const AttentionCase one_pass_problem = {.spec = {.head_dim = 64, .gqa_ratio = 2, .dropout = true},
                                        .seqlen_q = 150,
                                        .seqlen_kv = 130,
                                        .seed = 5,
                                        .dropout_p = 0.25f};

std::string noticed_in_one_pass(const TemplateMutation* mutation) {
  return noticed_of_gradients(mutation, one_pass_problem, BackwardWgmma{});
}

// More tiles than a warp draws at once, words of two groups of keys and of one, two heads, a mask that leaves ranges.
const AttentionCase drawn_problem = {
    .spec = {.head_dim = 16, .dropout = true, .mask = mask::sliding_window(100, 0, Alignment::top_left)},
    .batch = 2,
    .heads_kv = 2,
    .seqlen_q = 150,
    .seqlen_kv = 201,
    .seed = 5,
    .dropout_p = 0.25f};

std::string noticed_of_drawn(const TemplateMutation* mutation) {
  const MutatedTemplates templates(mutation);
  const CurrentDevice scope(0);
  try {
    return BackwardRun(drawn_problem)
        .check_forward(Context(templates.settings()),
                       ForwardWgmma{.tile_q = 128, .tile_kv = 96, .stages_v = 2, .dropout_mask_ahead = true});
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
}

std::string noticed_of_drawn_gradients(const TemplateMutation* mutation) {
  const MutatedTemplates templates(mutation);
  const CurrentDevice scope(0);
  BackwardRun run(one_pass_problem);
  try {
    run.compute(Context(templates.settings()), BackwardWgmma{.dropout_mask_ahead = true});
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
  return run.check();
}

UNMUTATED_TEST(Dropout, IsRightUnmutated) {
  EXPECT_EQ(noticed_of_dropout(nullptr), "");
  EXPECT_EQ(noticed_in_one_pass(nullptr), "");
  EXPECT_EQ(noticed_of_lengths(nullptr), "");
  EXPECT_EQ(noticed_of_drawn(nullptr), "");
  EXPECT_EQ(noticed_of_drawn_gradients(nullptr), "");
}

class DropoutMutationTest : public MutationTest {};

TEST_P(DropoutMutationTest, IsCaught) { expect_caught(GetParam(), noticed_of_dropout(&GetParam())); }

class VarlenDropoutMutationTest : public MutationTest {};

TEST_P(VarlenDropoutMutationTest, IsCaught) { expect_caught(GetParam(), noticed_of_lengths(&GetParam())); }

class SharedDrawsMutationTest : public MutationTest {};

TEST_P(SharedDrawsMutationTest, IsCaught) { expect_caught(GetParam(), noticed_in_one_pass(&GetParam())); }

class DrawnMutationTest : public MutationTest {};

TEST_P(DrawnMutationTest, IsCaught) { expect_caught(GetParam(), noticed_of_drawn(&GetParam())); }

class DrawnGradientsMutationTest : public MutationTest {};

TEST_P(DrawnGradientsMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_drawn_gradients(&GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Dropout, VarlenDropoutMutationTest,
                         ::testing::Values(TemplateMutation{"PlacesOfNobodyAreComputed",
                                                            {"&& ($)", "&& false"}},
                                           TemplateMutation{"EntriesAlike", {"batch", "0"}},
                                           TemplateMutation{"KeysOfAnotherEntry", {"batch)}", "0)}"}}),
                         ::testing::PrintToStringParamName());

INSTANTIATE_TEST_SUITE_P(
    Dropout, DropoutMutationTest,
    ::testing::Values(TemplateMutation{"FewerRounds", {"<7>", "<6>"}},
                      TemplateMutation{"AllHeadsAlike", {" + head", ""}},
                      TemplateMutation{"TheThresholdItselfIsDropped", {"- $;", "- $ - 0x01010101u;"}},
                      TemplateMutation{"TheThresholdItselfIsDroppedOfPairs", {".le", ".lt"}},
                      TemplateMutation{"RowsOfPairsExchanged", {"0x4140 : 0x4342", "0x4342 : 0x4140"}},
                      TemplateMutation{"RowsAndColumnsExchanged", {"16 $ 8", "8 $ 16"}},
                      TemplateMutation{"SignsOfAnotherBlock", {"0xbb99", "0xaa88"}},
                      TemplateMutation{"BitsOfAnotherKey", {"row $ 0x7531", "0x6420"}},
                      TemplateMutation{"TheLowerHalfOfEachGroup", {"? $ 8", "? 0"}},
                      TemplateMutation{"WhatIsKeptStandsForItself", {"* $ :", ":"}},
                      TemplateMutation{"DsOfWhatIsDroppedIsZero", {"-$;", "0;"}},
                      TemplateMutation{"DeltaUnscaled", {"*= $;", "*= 1;"}},
                      TemplateMutation{"FactorsOfDv_AllProbabilities", {", kept", ""}}),
    ::testing::PrintToStringParamName());

INSTANTIATE_TEST_SUITE_P(
    Dropout, SharedDrawsMutationTest,
    ::testing::Values(TemplateMutation{"TakenBeforeTheyAreThere", removed, {"data race", "uninitialized"}},
                      TemplateMutation{"AllPairsInOnePlace", {"pair $,", "0,"}, {"data race"}},
                      TemplateMutation{"BothDrawTheSameHalf", {"half $ i", "i"}, {"uninitialized"}},
                      TemplateMutation{"KeysOfTheOtherWarp", {"half", "2 - half"}}),
    ::testing::PrintToStringParamName());

INSTANTIATE_TEST_SUITE_P(
    Dropout, DrawnMutationTest,
    ::testing::Values(
        TemplateMutation{"WhatIsSeenIsLeftOut", {"rounded_up_quotient($,", "($ /"}, {"uninitialized"}},
        TemplateMutation{"RowsBehindTheLastQuery", {"tile", "q"}, {"uninitialized"}},
        TemplateMutation{
            "ChunksOfOne", {", ($) * own_blocks", ", chunk * own_blocks + 1"}, {"uninitialized"}},
        TemplateMutation{"GroupsOfAWordExchanged", {"| $ << 4", "<< 4 | $"}},
        TemplateMutation{"RowsOfAWordAlike", {"0xbbaa", "0x9988"}},
        TemplateMutation{"WordsAlike", {"[$]", "[0]"}}, TemplateMutation{"HeadsAlike", {", head", ", 0"}}),
    ::testing::PrintToStringParamName());

INSTANTIATE_TEST_SUITE_P(
    Dropout, DrawnGradientsMutationTest,
    ::testing::Values(TemplateMutation{"DrawnKeysOfTheOtherWarp", {"= $ %", "= ($ + 1) %"}},
                      TemplateMutation{"PairsExchanged", {"[1]", "[0]"}},
                      TemplateMutation{"DrawnBitsOfAnotherKey", {"row $ 0x7531", "0x6420"}},
                      TemplateMutation{"BlocksAlike", {"n / 4 % 2 * 2 + r", "r"}},
                      TemplateMutation{"DrawnSignsOfAnotherBlock", {"0xbb99", "0xaa88"}},
                      TemplateMutation{"DrawnHeadsAlike", {" + $,", ","}}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::dropout_mutations
