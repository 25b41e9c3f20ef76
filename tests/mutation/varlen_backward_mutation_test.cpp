// Mutations of the backward kernels where sequences are varlen: each must be noticed.
#include "tests/mutation/template_mutation.h"
#include "tests/support/varlen_backward_run.h"

namespace jit::testing::varlen_backward_mutations {
namespace {

// Requests that begin and end anywhere, each with room for more rows, among them some without queries or without keys.
const VarlenBackwardCase varlen_problem = {
    .spec = {.head_dim = 32,
             .gqa_ratio = 2,
             .sequences_q = SequenceKind::varlen,
             .sequences_kv = SequenceKind::varlen,
             .mask = mask::causal()},
    .heads_kv = 2,
    .q = {.lengths = {5, 0, 70, 33}, .spare = {0, 1, 0, 4}, .around = 7},
    .kv = {.lengths = {40, 3, 0, 61}, .spare = {5, 2, 1, 3}, .around = 140},
    .seed = 5};

std::string noticed_of_varlen(const TemplateMutation* mutation, bool in_one_pass) {
  const MutatedTemplates templates(mutation);
  const Context context(templates.settings());
  const CurrentDevice scope(0);
  VarlenBackwardRun run(varlen_problem);
  try {
    if (in_one_pass) {
      run.compute(context, BackwardWgmma{});
    } else {
      run.compute(context, BackwardDqMmaSync{.tile_q = 32, .tile_kv = 16, .warps = 2, .stages = 2},
                  BackwardDkvMmaSync{.tile_q = 16, .tile_kv = 32, .warps = 2, .stages = 2});
    }
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
  return run.check();
}

UNMUTATED_TEST(VarlenBackward, IsRightUnmutated) {
  for (const bool in_one_pass : {false, true}) EXPECT_EQ(noticed_of_varlen(nullptr, in_one_pass), "");
}

class VarlenOnePassMutationTest : public MutationTest {};

TEST_P(VarlenOnePassMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_varlen(&GetParam(), true));
}

INSTANTIATE_TEST_SUITE_P(
    VarlenBackwardWgmma, VarlenOnePassMutationTest,
    ::testing::Values(
        TemplateMutation{"QueriesOfTheNextSequence", {"own.length $,", "Config::tile_q,"}},
        TemplateMutation{"KeysOfTheNextSequence", {"+ $ key", "+ key, Config::tile_kv"}, {"data race"}},
        TemplateMutation{"SumsOfTheFirstSequence", {"batch,", "0,"}, {"uninitialized read", "data race"}},
        TemplateMutation{"PlacesOfNobodyAreTiles", {">= $ <", "<"}},
        TemplateMutation{"KeysOfAnotherHead", {"= $;", "= 0 * $;"}}),
    ::testing::PrintToStringParamName());

class VarlenBackwardMutationTest : public MutationTest {};

TEST_P(VarlenBackwardMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_of_varlen(&GetParam(), false));
}

INSTANTIATE_TEST_SUITE_P(
    VarlenBackwardMmaSync, VarlenBackwardMutationTest,
    ::testing::Values(TemplateMutation{"APlaceFewerForEachSequence", {" + $;", ";"}, {"uninitialized read"}},
                      TemplateMutation{"PlacesBeforeTheFirstSequenceAreTiles", {"< $ >=", ">="}},
                      TemplateMutation{"ThePlaceInTheSequenceBefore", {"<=", "<"}, {"uninitialized read"}},
                      TemplateMutation{"StatisticsOfSequencesOverlap", {"batch,", "0,"}, {"data race"}},
                      TemplateMutation{
                          "GradientsOfTheFirstSequence", {"kv_head)$;", "kv_head);"}, {"data race"}},
                      TemplateMutation{"LengthsFromTheBoundariesAlone", {"($)", "(false)"}},
                      TemplateMutation{"MasksOfOtherLengths", {"kv(batch)", "q(batch)"}}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::varlen_backward_mutations
