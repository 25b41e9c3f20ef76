// Mutations of the backward kernels where sequences are ragged: each must be noticed.
#include "tests/mutation/template_mutation.h"
#include "tests/support/ragged_backward_run.h"

namespace jit::testing::ragged_backward_mutations {
namespace {

// Requests that begin and end anywhere, each with room for more rows, among them some without queries or without keys.
const RaggedBackwardCase ragged_problem = {
    .spec = {.head_dim = 32,
             .gqa_ratio = 2,
             .sequences_q = SequenceKind::ragged,
             .sequences_kv = SequenceKind::ragged,
             .mask = mask::causal()},
    .heads_kv = 2,
    .q = {.lengths = {5, 0, 70, 33}, .spare = {0, 1, 0, 4}, .around = 7},
    .kv = {.lengths = {40, 3, 0, 61}, .spare = {5, 2, 1, 3}, .around = 140},
    .seed = 5};

std::string noticed_of_ragged(const TemplateMutation* mutation, bool in_one_pass) {
  const MutatedTemplates templates(mutation);
  const Context context(templates.settings());
  const CurrentDevice scope(0);
  RaggedBackwardRun run(ragged_problem);
  try {
    if (in_one_pass) {
      run.compute(context, BackwardWgmma{});
    } else {
      run.compute(context, {.tile_q = 32, .tile_kv = 16, .warps = 2, .stages = 2},
                  {.tile_q = 16, .tile_kv = 32, .warps = 2, .stages = 2});
    }
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
  return run.check();
}

TEST(RaggedBackward, IsRightUnmutated) {
  for (const bool in_one_pass : {false, true}) EXPECT_EQ(noticed_of_ragged(nullptr, in_one_pass), "");
}

constexpr const char* loader = "backward_wgmma/loader.cuh";

class RaggedOnePassMutationTest : public MutationTest {};

TEST_P(RaggedOnePassMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_ragged(&GetParam(), true));
}

INSTANTIATE_TEST_SUITE_P(
    RaggedBackwardWgmma, RaggedOnePassMutationTest,
    ::testing::Values(TemplateMutation{"QueriesOfTheNextSequence", loader, "own.length - query, head,",
                                       "Config::tile_q, head,"},
                      TemplateMutation{"KeysOfTheNextSequence",
                                       loader,
                                       "own.length - key, kv_head,",
                                       "Config::tile_kv, kv_head,",
                                       {"data race"}},
                      TemplateMutation{"SumsOfTheFirstSequence",
                                       "backward_wgmma/dq_sums.cuh",
                                       "first_ragged_tile(batch, sequences.q(batch).begin, Config::tile_q)",
                                       "first_ragged_tile(0, sequences.q(batch).begin, Config::tile_q)",
                                       {"uninitialized read", "data race"}},
                      TemplateMutation{"PlacesOfNobodyAreTiles", "backward_wgmma/key_tile.cuh",
                                       "return k_begin >= 0 && k_begin < kv.length;",
                                       "return k_begin < kv.length;"},
                      TemplateMutation{"KeysOfAnotherHead", "backward_wgmma/key_tile.cuh",
                                       "const int kv_head = tile / places;",
                                       "const int kv_head = 0 * tile / places;"}),
    ::testing::PrintToStringParamName());

class RaggedBackwardMutationTest : public MutationTest {};

TEST_P(RaggedBackwardMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_ragged(&GetParam(), false));
}

INSTANTIATE_TEST_SUITE_P(
    RaggedBackwardMmaSync, RaggedBackwardMutationTest,
    ::testing::Values(
        TemplateMutation{"APlaceFewerForEachSequence",
                         "base/ragged_tiles.cuh",
                         "static_cast<long long>(begin / rows) + batch",
                         "static_cast<long long>(begin / rows)",
                         {"uninitialized read"}},
        TemplateMutation{"PlacesBeforeTheFirstSequenceAreTiles", "backward_dkv_mma_sync/kernel.cuh",
                         "(k_begin < 0 || k_begin >= seqlen_kv)", "(k_begin >= seqlen_kv)"},
        TemplateMutation{"TheSequenceBefore",
                         "scheduling/ragged_place.cuh",
                         "rows) <= place;",
                         "rows) < place;",
                         {"uninitialized read"}},
        TemplateMutation{"StatisticsOfSequencesOverlap",
                         "problem/gradients.cuh",
                         "first_ragged_statistic(batch, sequences_.q(batch).begin)",
                         "first_ragged_statistic(0, sequences_.q(batch).begin)",
                         {"data race"}},
        TemplateMutation{"GradientsOfTheFirstSequence",
                         "problem/gradients.cuh",
                         "gradients_.dk_strides, batch, kv_head)\n        .from(sequences_.kv(batch).begin);",
                         "gradients_.dk_strides, batch, kv_head);",
                         {"data race"}},
        TemplateMutation{"LengthsFromTheBoundariesAlone", "problem/variable_sequences.cuh",
                         "    if (given.seqused_k != nullptr)\n", "    if (false)\n"},
        TemplateMutation{"MasksOfOtherLengths", "problem/entry_sequences.cuh",
                         "params_.heads_q, q_.length, kv_.length, q_.begin",
                         "params_.heads_q, q_.length, q_.length, q_.begin"}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::ragged_backward_mutations
