// Mutations of what gradients of rows of huge scores are computed with: each must be noticed.
#include "tests/mutation/backward_mutation.h"

namespace jit::testing::large_rows_mutations {
namespace {

// A number of 16 bits, and of scores around it these keep nothing. So scores of one row hardly differ: limits are what they
// lose.
constexpr double far_away = 262144;
constexpr float amplitude = 0.3f;

// Every third query has scores so far away that its LSE says them badly, in tiles of others. The first ones see no key.
AttentionCase problem_of(int head_dim) {
  AttentionCase problem{
      .spec = {.head_dim = head_dim,
               .gqa_ratio = 2,
               .mask = mask::causal(),
               .score = score::text({.name = "far_away",
                                     .body = "return q % 3 == 0 ? score + 262144 : score + table[k % 7];",
                                     .tensors = {{"table", DType::fp32}}})},
      .seqlen_q = 150,
      .seqlen_kv = 120,
      .amplitude = amplitude,
      .seed = 5,
      .with_d_lse = true};
  problem.shapes = {{"table", {7}}};
  problem.text_score = [](const reference::FunctorProblem& tensors, double s, int, int, int q, int k) {
    return q % 3 == 0 ? s + far_away : s + tensors.tensors.at("table").at({k % 7});
  };
  return problem;
}

std::string noticed_by_one_pass(const TemplateMutation* mutation, bool dropout = false) {
  AttentionCase problem = problem_of(64);
  problem.spec.dropout = dropout;
  problem.dropout_p = dropout ? 0.5f : 0.0f;
  return noticed_of_gradients(mutation, problem, BackwardWgmma{});
}

std::string noticed_by_two_passes(const TemplateMutation* mutation) {
  return noticed_of_gradients(mutation, problem_of(32),
                              BackwardDqMmaSync{.tile_q = 32, .tile_kv = 16, .warps = 2, .stages = 2},
                              BackwardDkvMmaSync{.tile_q = 16, .tile_kv = 32, .warps = 2, .stages = 2});
}

// Sinks, of which each is as large as some scores, and gradients of tensors are steps of whole calls.
std::string noticed_by_call(const TemplateMutation* mutation) {
  const MutatedTemplates templates(mutation);
  const Context context(templates.settings());
  const CurrentDevice scope(0);
  AttentionCase problem = problem_of(64);
  problem.spec.sinks = true;
  problem.sinks_from = static_cast<float>(far_away);
  problem.spec.score = score::text({.name = "all_far_away",
                                    .body = "return score + (0.1f * table[k % 7] + 262144);",
                                    .tensors = {{"table", DType::fp32}}});
  problem.text_score = [](const reference::FunctorProblem& tensors, double s, int, int, int, int k) {
    return s + (0.1 * tensors.tensors.at("table").at({k % 7}) + far_away);
  };
  problem.d_tensors = {"table"};
  BackwardRun run(problem);
  try {
    attention_when_called(problem.spec, context).backward(run.arguments());
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
  return run.check();
}

UNMUTATED_TEST(LargeRows, AreRightUnmutated) {
  EXPECT_EQ(noticed_by_one_pass(nullptr), "");
  EXPECT_EQ(noticed_by_one_pass(nullptr, true), "");
  EXPECT_EQ(noticed_by_two_passes(nullptr), "");
  EXPECT_EQ(noticed_by_call(nullptr), "");
}

class LargeRowsOfOnePassMutationTest : public MutationTest {};

TEST_P(LargeRowsOfOnePassMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_by_one_pass(&GetParam()));
}

INSTANTIATE_TEST_SUITE_P(
    BackwardWgmma, LargeRowsOfOnePassMutationTest,
    ::testing::Values(
        TemplateMutation{"LargeRowsAreLeftToLse", {"__any_sync(full_warp, has_large)", "false"}},
        TemplateMutation{"NobodyHearsOfLargeRows", {"1u", "0u"}},
        TemplateMutation{"RowsWithoutKeysHaveAnyOrigin", removed, {"uninitialized read"}},
        TemplateMutation{"LargeRowsAreOverwritten", removed, {"data race"}},
        TemplateMutation{"TheNextCallHasLargeRows", removed},
        TemplateMutation{"TheSumOfALane", {"warp_sum($ : 0.0f)", "($ : 0.0f)"}},
        TemplateMutation{"LargeRowsWithoutDelta", {"(d_p - delta)", "d_p"}},
        TemplateMutation{"LargeRowsOfOneHead",
                         {"(kv_head + 1) * Config::gqa_ratio", "kv_head * Config::gqa_ratio + 1"}},
        TemplateMutation{"DqOfLargeRowsUnscaled", {"params.softmax_scale", "1"}},
        TemplateMutation{"DkOfLargeRowsUnscaled", {"params.softmax_scale", "1"}}),
    ::testing::PrintToStringParamName());

TEST(LargeRowsWithDropout, AreCaught) {
  const TemplateMutation mutation{"LargeRowsKeepAll", {"kept ?", "true ?"}};
  expect_caught(mutation, noticed_by_one_pass(&mutation, true));
}

class LargeRowsOfTwoPassesMutationTest : public MutationTest {};

TEST_P(LargeRowsOfTwoPassesMutationTest, IsCaught) {
  expect_caught(GetParam(), noticed_by_two_passes(&GetParam()));
}

INSTANTIATE_TEST_SUITE_P(
    BackwardOfTwoPasses, LargeRowsOfTwoPassesMutationTest,
    ::testing::Values(TemplateMutation{"LargeRowsOfTwoPassesAreLeftToLse", {"statistics.has_large", "false"}},
                      TemplateMutation{"LargeRowsOfDqAreOverwritten", removed, {"data race"}},
                      TemplateMutation{"LargeRowsAreAddedTooEarly", removed, {"data race"}}),
    ::testing::PrintToStringParamName());

class LargeRowsOfCallsMutationTest : public MutationTest {};

TEST_P(LargeRowsOfCallsMutationTest, IsCaught) { expect_caught(GetParam(), noticed_by_call(&GetParam())); }

INSTANTIATE_TEST_SUITE_P(
    Backward, LargeRowsOfCallsMutationTest,
    ::testing::Values(
        TemplateMutation{"SinksOfLargeRowsLeftOut", {"gradients.origins[first + row]", "{0, lse_log2}"}},
        TemplateMutation{"TheSinkIsNoKey", {"sink > alone ? sink : lg2(sum + ex2(sink))", "lg2(sum)"}},
        TemplateMutation{"TensorsOfLargeRowsLeftOut", {"statistics.has_large", "false"}}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::large_rows_mutations
