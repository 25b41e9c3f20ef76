// Mutations of dropout: each must be noticed.
#include <fmt/format.h>

#include "tests/mutation/backward_mutation.h"
#include "tests/support/backward_run.h"
#include "tests/support/ragged_backward_run.h"

namespace jit::testing::dropout_mutations {
namespace {

// Two heads that share keys, several groups on both sides, halves of them, partial tiles.
const BackwardCase problem = {
    .spec = {.head_dim = 16, .gqa_ratio = 2, .dropout = true, .mask = mask::causal()},
    .seqlen_q = 70,
    .seqlen_kv = 83,
    .seed = 5,
    .dropout_p = 0.25f};

// Two sequences with rows of nobody before, between and behind them.
const RaggedBackwardCase ragged_problem = {.spec = {.head_dim = 16,
                                                    .gqa_ratio = 2,
                                                    .sequences_q = SequenceKind::ragged,
                                                    .sequences_kv = SequenceKind::ragged,
                                                    .dropout = true,
                                                    .mask = mask::causal()},
                                           .q = {.lengths = {40, 70}, .spare = {3, 1}, .around = 70},
                                           .kv = {.lengths = {83, 30}, .spare = {20, 2}},
                                           .seed = 5,
                                           .dropout_p = 0.25f};

std::string noticed_of_lengths(const TemplateMutation* mutation) {
  const MutatedTemplates templates(mutation);
  const CurrentDevice scope(0);
  return RaggedBackwardRun(ragged_problem)
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
  run.compute(context, {.tile_q = 32, .tile_kv = 32, .warps = 2}, {.tile_q = 32, .tile_kv = 32, .warps = 2});
  return run.check();
}

// Several steps of 64 queries, two pairs of warps in each of two consumers.
const BackwardCase one_pass_problem = {.spec = {.head_dim = 64, .gqa_ratio = 2, .dropout = true},
                                       .seqlen_q = 150,
                                       .seqlen_kv = 130,
                                       .seed = 5,
                                       .dropout_p = 0.25f};

std::string noticed_in_one_pass(const TemplateMutation* mutation) {
  return noticed_of_gradients(mutation, one_pass_problem, BackwardWgmma{});
}

// More tiles than a warp draws at once, words of two groups of keys and of one, two heads, a mask that leaves ranges.
const BackwardCase drawn_problem = {
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
                       ForwardWgmma{.tile_q = 128, .tile_kv = 96, .stages_v = 2, .draw_ahead = true});
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
}

std::string noticed_of_drawn_gradients(const TemplateMutation* mutation) {
  const MutatedTemplates templates(mutation);
  const CurrentDevice scope(0);
  BackwardRun run(one_pass_problem);
  try {
    run.compute(Context(templates.settings()), BackwardWgmma{.draw_ahead = true});
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
  return run.check();
}

TEST(Dropout, IsRightUnmutated) {
  EXPECT_EQ(noticed_of_dropout(nullptr), "");
  EXPECT_EQ(noticed_in_one_pass(nullptr), "");
  EXPECT_EQ(noticed_of_lengths(nullptr), "");
  EXPECT_EQ(noticed_of_drawn(nullptr), "");
  EXPECT_EQ(noticed_of_drawn_gradients(nullptr), "");
}

class DropoutMutationTest : public MutationTest {};

TEST_P(DropoutMutationTest, IsCaught) { expect_caught(GetParam(), noticed_of_dropout(&GetParam())); }

class RaggedDropoutMutationTest : public MutationTest {};

TEST_P(RaggedDropoutMutationTest, IsCaught) { expect_caught(GetParam(), noticed_of_lengths(&GetParam())); }

class SharedDrawsMutationTest : public MutationTest {};

TEST_P(SharedDrawsMutationTest, IsCaught) { expect_caught(GetParam(), noticed_in_one_pass(&GetParam())); }

class DrawnMutationTest : public MutationTest {};

TEST_P(DrawnMutationTest, IsCaught) { expect_caught(GetParam(), noticed_of_drawn(&GetParam())); }

class DrawnGradientsMutationTest : public MutationTest {};

TEST_P(DrawnGradientsMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_drawn_gradients(&GetParam()));
}

constexpr const char* forward = "forward_mma_sync/kernel.cuh";

INSTANTIATE_TEST_SUITE_P(Dropout, RaggedDropoutMutationTest,
                         ::testing::Values(TemplateMutation{"PlacesOfNobodyAreComputed", forward,
                                                            "(q_begin < 0 || q_begin >= seqlen_q)", "false"},
                                           TemplateMutation{"EntriesAlike", forward,
                                                            "(dropout_params, params.heads_q, batch, head)",
                                                            "(dropout_params, params.heads_q, 0, head)"},
                                           TemplateMutation{"KeysOfAnotherEntry",
                                                            "problem/entry_sequences.cuh",
                                                            "{params, all.q(batch), all.kv(batch)}",
                                                            "{params, all.q(batch), all.kv(0)}"}),
                         ::testing::PrintToStringParamName());

constexpr const char* dropout = "steps/dropout.cuh";
constexpr const char* dkv = "backward_dkv_mma_sync/kernel.cuh";

INSTANTIATE_TEST_SUITE_P(
    Dropout, DropoutMutationTest,
    ::testing::Values(
        TemplateMutation{"FewerRounds", dropout, "philox<7>", "philox<6>"},
        TemplateMutation{"AllHeadsAlike", dropout, "* heads_q + head) *", "* heads_q) *"},
        TemplateMutation{"TheThresholdItselfIsDropped", dropout, "- (x & ~upper_bits)",
                         "- (x & ~upper_bits) - 0x01010101u"},
        TemplateMutation{"TheThresholdItselfIsDroppedOfPairs", "ptx/math.cuh", "set.le.u32", "set.lt.u32"},
        TemplateMutation{"RowsOfPairsExchanged", dropout, "r % 2 == 0 ? 0x4140 : 0x4342",
                         "r % 2 == 0 ? 0x4342 : 0x4140"},
        TemplateMutation{"RowsAndColumnsExchanged", dropout, "16 * (r % 2) + 8 * i", "8 * (r % 2) + 16 * i"},
        TemplateMutation{"SignsOfAnotherBlock", dropout, "0xaa88 : 0xbb99", "0xaa88 : 0xaa88"},
        TemplateMutation{"BitsOfAnotherKey", dropout, "row % 2 == 0 ? 0x6420 : 0x7531", "0x6420"},
        TemplateMutation{"TheLowerHalfOfEachGroup", dropout, "key % dropout_group_keys / 8", "0"},
        TemplateMutation{"WhatIsKeptStandsForItself", dropout, "factor * params.scale", "factor"},
        TemplateMutation{"DsOfWhatIsDroppedIsZero", dropout, "product.at(r, n, i) : -block.of(r, i)",
                         "product.at(r, n, i) : 0"},
        TemplateMutation{"DeltaUnscaled", "steps/query_statistics.cuh", "sum *= dropout.kept_share",
                         "sum *= 1"},
        TemplateMutation{"DvOfAllProbabilities", dkv, "do_tile(stage), kept)", "do_tile(stage))"}),
    ::testing::PrintToStringParamName());

INSTANTIATE_TEST_SUITE_P(
    Dropout, SharedDrawsMutationTest,
    ::testing::Values(
        TemplateMutation{"TakenBeforeTheyAreThere",
                         dropout,
                         "    bar_sync(shared.barrier, 2 * warp_size);\n",
                         "",
                         {"data race", "uninitialized"}},
        TemplateMutation{
            "AllPairsInOnePlace", "backward_wgmma/score_parts.cuh", "pair * pair_bytes", "0", {"data race"}},
        TemplateMutation{"BothDrawTheSameHalf", dropout, "half * own_words + i", "i", {"uninitialized"}},
        TemplateMutation{"KeysOfTheOtherWarp", dropout, "row, half * 2)", "row, 2 - half * 2)"}),
    ::testing::PrintToStringParamName());

constexpr const char* drawn = "steps/drawn_scores.cuh";
constexpr const char* drawer = "draw_dropout/kernel.cuh";

INSTANTIATE_TEST_SUITE_P(
    Dropout, DrawnMutationTest,
    ::testing::Values(
        TemplateMutation{"WhatIsSeenIsLeftOut",
                         drawer,
                         "rounded_up_quotient(keys.end, Config::tile_kv)",
                         "(keys.end / Config::tile_kv)",
                         {"uninitialized"}},
        TemplateMutation{"RowsBehindTheLastQuery",
                         drawer,
                         "if (tile >= context.seqlen_q)",
                         "if (q >= context.seqlen_q)",
                         {"uninitialized"}},
        TemplateMutation{
            "ChunksOfOne", drawer, "(chunk + 1) * own_blocks)", "chunk * own_blocks + 1)", {"uninitialized"}},
        TemplateMutation{"GroupsOfAWordExchanged", drawn, "own[g / 2] | bits << 4", "own[g / 2] << 4 | bits"},
        TemplateMutation{"RowsOfAWordAlike", drawn, "0x9988 : 0xbbaa", "0x9988 : 0x9988"},
        TemplateMutation{"WordsAlike", drawn, "words_[n / blocks] << (blocks", "words_[0] << (blocks"},
        TemplateMutation{"HeadsAlike", drawer, "params.heads_q, batch, head);",
                         "params.heads_q, batch, 0);"}),
    ::testing::PrintToStringParamName());

INSTANTIATE_TEST_SUITE_P(
    Dropout, DrawnGradientsMutationTest,
    ::testing::Values(TemplateMutation{"KeysOfTheOtherWarp", drawn,
                                       "k / MmaLayout::block_rows % Layout::block.words",
                                       "(k / MmaLayout::block_rows + 1) % Layout::block.words"},
                      TemplateMutation{"PairsExchanged", drawn, "(pairs[1] & first_warps) << 2",
                                       "(pairs[0] & first_warps) << 2"},
                      TemplateMutation{"BitsOfAnotherKey", drawn, "row % 2 == 0 ? 0x6420 : 0x7531", "0x6420"},
                      TemplateMutation{"BlocksAlike", drawn, "n / 4 % 2 * 2 + r;", "r;"},
                      TemplateMutation{"SignsOfAnotherBlock", drawn, "0xaa88 : 0xbb99", "0xaa88 : 0xaa88"},
                      TemplateMutation{"HeadsAlike", "backward_wgmma/score_parts.cuh",
                                       "keys.batch * params.heads_q + load_query_note_head(note),",
                                       "keys.batch * params.heads_q,"}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::dropout_mutations
