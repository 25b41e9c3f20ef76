// Mutations of what gradients of rows of huge scores are computed with: each must be noticed.
#include "tests/mutation/backward_mutation.h"

namespace jit::testing::large_rows_mutations {
namespace {

// Every third query has equal huge scores, of which floats tell the sum but not the number. Tiles of others in between,
// whole and partial ones; beside a sink its share of these rows is 0.
BackwardCase far_away(int head_dim, bool sinks = false) {
  return {
      .spec = {.head_dim = head_dim,
               .gqa_ratio = 2,
               .sinks = sinks,
               .score = score::text({.name = "far_away",
                                     .body = "return q < 70 && q % 3 == 0 ? score * 0.0f + 1e9f : score;"})},
      .seqlen_q = 150,
      .seqlen_kv = 200,
      .seed = 5,
      .score = [](double s, int, int, int q, int) { return q < 70 && q % 3 == 0 ? 1e9 : s; }};
}

// Products that are huge themselves: each row hangs on one key.
BackwardCase astray(int head_dim) {
  return {.spec = {.head_dim = head_dim, .gqa_ratio = 2},
          .seqlen_q = 100,
          .seqlen_kv = 70,
          .amplitude = 2048,
          .seed = 5};
}

constexpr int with_roles = 136;

std::string noticed_by_one_pass(const TemplateMutation* mutation, const BackwardCase& problem) {
  return noticed_of_gradients(mutation, problem, BackwardWgmma{});
}

std::string noticed_by_two_passes(const TemplateMutation* mutation) {
  return noticed_of_gradients(mutation, far_away(32),
                              BackwardDqMmaSync{.tile_q = 32, .tile_kv = 16, .warps = 2, .stages = 2},
                              BackwardDkvMmaSync{.tile_q = 16, .tile_kv = 32, .warps = 2, .stages = 2});
}

// Sinks are a step of whole calls.
std::string noticed_by_call(const TemplateMutation* mutation) {
  const MutatedTemplates templates(mutation);
  const Context context(templates.settings());
  const CurrentDevice scope(0);
  const BackwardCase problem = far_away(64, true);
  BackwardRun run(problem);
  try {
    attention_when_called(problem.spec, context).backward(run.arguments());
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
  return run.check();
}

TEST(LargeRows, AreRightUnmutated) {
  EXPECT_EQ(noticed_by_one_pass(nullptr, far_away(64)), "");
  EXPECT_EQ(noticed_by_one_pass(nullptr, astray(64)), "");
  EXPECT_EQ(noticed_by_one_pass(nullptr, astray(with_roles)), "");
  EXPECT_EQ(noticed_by_two_passes(nullptr), "");
  EXPECT_EQ(noticed_by_call(nullptr), "");
}

class LargeRowsOfOnePassMutationTest : public MutationTest {};

TEST_P(LargeRowsOfOnePassMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_by_one_pass(&GetParam(), far_away(64)));
}

INSTANTIATE_TEST_SUITE_P(
    BackwardWgmma, LargeRowsOfOnePassMutationTest,
    ::testing::Values(TemplateMutation{"LargeRowsAreLeftToLse", {"have_maxima != 0", "false"}},
                      TemplateMutation{"NobodyHearsOfMaxima", {" = $;", " = 0;"}},
                      TemplateMutation{"NobodyMarksTheCall", {", 1)", ", 0)"}},
                      TemplateMutation{"NobodyLooksForMaxima", {"*gradients.any_maxima != 0", "false"}},
                      TemplateMutation{"OrdinaryRowsAreLeftOut", {"= 0;", "= 1e9f;"}},
                      TemplateMutation{"LargeRowsAreOverwritten", removed, {"data race"}},
                      TemplateMutation{"TilesWithMaximaAreWhole", {"query_note_partial | ", ""}},
                      TemplateMutation{"ScoresAreRelatedToNothing", {"place.has_maxima", "false"}},
                      TemplateMutation{"TheNextCallLooksForMaxima", removed},
                      TemplateMutation{"TheSumOfALane", {"warp_sum(sum)", "sum"}}),
    ::testing::PrintToStringParamName());

class LargeProductsMutationTest : public MutationTest {};

TEST_P(LargeProductsMutationTest, IsCaught) {
  const bool has_roles = anchor_of(GetParam().name).file == "backward_wgmma/value_consumer.cuh";
  expect_caught(GetParam(), noticed_by_one_pass(&GetParam(), astray(has_roles ? with_roles : 64)));
}

INSTANTIATE_TEST_SUITE_P(
    BackwardWgmma, LargeProductsMutationTest,
    ::testing::Values(TemplateMutation{"ProductsAreRelatedToNothing", {"place.has_maxima", "false"}},
                      TemplateMutation{"ProductsOfRolesAreRelatedToNothing", {"place.has_maxima", "false"}}),
    ::testing::PrintToStringParamName());

class LargeRowsOfTwoPassesMutationTest : public MutationTest {};

TEST_P(LargeRowsOfTwoPassesMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_by_two_passes(&GetParam()));
}

INSTANTIATE_TEST_SUITE_P(BackwardOfTwoPasses, LargeRowsOfTwoPassesMutationTest,
                         ::testing::Values(TemplateMutation{"LargeRowsOfTwoPassesAreLeftToLse",
                                                            {"statistics.has_maxima", "false"}},
                                           TemplateMutation{"ScoresOfDqAreRelatedToNothing",
                                                            {"is_any_there(maxima)", "false"}},
                                           TemplateMutation{"GroupsSayNothing", {" = $;", " = 0;"}},
                                           TemplateMutation{"GroupsAreNotLookedAt", {"of_head[i]", "0"}}),
                         ::testing::PrintToStringParamName());

class LargeRowsOfSinksMutationTest : public MutationTest {};

TEST_P(LargeRowsOfSinksMutationTest, IsCaught) { expect_caught(GetParam(), noticed_by_call(&GetParam())); }

INSTANTIATE_TEST_SUITE_P(
    BackwardSinks, LargeRowsOfSinksMutationTest,
    ::testing::Values(TemplateMutation{"SinksAreRelatedToNothing", {"max == 0", "true"}},
                      TemplateMutation{"SinksReadWhatNobodyWrote", {"!= 0", ">= 0"}, {"uninitialized read"}}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::large_rows_mutations
