// Mutations of the gradients beyond those of q, k and v: each must be noticed.
#include <cmath>
#include <cstdlib>

#include "tests/mutation/template_mutation.h"
#include "tests/support/backward_run.h"

namespace jit::testing::backward_tensors_mutations {
namespace {

// Several tiles, partial ones and empty ones; a tensor whose elements are all read by one warp, one that is read twice
// for a score, and one of a text that gives its derivative. In two passes: head dims above 128 have no other.
AttentionCase problem_of(int head_dim) {
  const Score twice = score::text({.name = "twice",
                                   .body = "return score + table[k % 7] * table[q % 7];",
                                   .tensors = {{"table", DType::fp32}}});
  const Score own = score::text({.name = "own",
                                 .body = "const float x = score;\n"
                                         "return x * 0.75f + weights[k % 5] - weights[q % 3 + 2];",
                                 .derivative = "d_weights[k % 5] += 1;\n"
                                               "(d_weights + 2)[q % 3] -= 1;\n"
                                               "return 0.75f;",
                                 .tensors = {{"weights", DType::fp32}}});
  AttentionCase problem{.spec = {.head_dim = head_dim,
                                 .gqa_ratio = 2,
                                 .sinks = true,
                                 .mask = mask::causal(),
                                 .score = score::alibi().then(twice).then(own)},
                        .seqlen_q = 100,
                        .seqlen_kv = 70,
                        .seed = 5};
  problem.text_score = [](const reference::FunctorProblem& tensors, double s, int, int h, int q, int k) {
    const reference::FunctorData& table = tensors.tensors.at("table");
    const reference::FunctorData& weights = tensors.tensors.at("weights");
    const double x = s - tensors.tensors.at("alibi_slopes").at({h}) * std::abs(q - 30 - k) +
                     table.at({k % 7}) * table.at({q % 7});
    return x * 0.75 + weights.at({k % 5}) - weights.at({q % 3 + 2});
  };
  problem.shapes = {{"table", {7}}, {"alibi_slopes", {2}}, {"weights", {5}}};
  problem.d_tensors = {"table", "alibi_slopes", "weights"};
  problem.with_d_lse = true;
  return problem;
}

std::string noticed_of_gradients(const TemplateMutation* mutation, int head_dim) {
  const MutatedTemplates templates(mutation);
  const Context context(templates.settings());
  const CurrentDevice scope(0);
  const AttentionCase problem = problem_of(head_dim);
  BackwardRun run(problem);
  try {
    attention_when_called(problem.spec, context).backward(run.arguments());
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
  return run.check();
}

UNMUTATED_TEST(BackwardTensors, IsRightUnmutated) {
  for (const int head_dim : reference::some_of<int>({64, 136}, 2))
    EXPECT_EQ(noticed_of_gradients(nullptr, head_dim), "") << head_dim;
}

class BackwardTensorsMutationTest : public MutationTest {};

TEST_P(BackwardTensorsMutationTest, IsCaught) {
  const bool is_one_pass = anchor_of(GetParam().name).file == "backward/prepare.cuh";
  expect_caught(GetParam(), noticed_of_gradients(&GetParam(), is_one_pass ? 64 : 136));
}

INSTANTIATE_TEST_SUITE_P(
    BackwardTensors, BackwardTensorsMutationTest,
    ::testing::Values(
        TemplateMutation{"TheOnlyStageIsOverwritten", removed, {"data race", "access in flight"}},
        TemplateMutation{"NoWaitForTheOnlyStage", removed, {"access in flight"}},
        TemplateMutation{"NoBarrierInPass_OfTensors", removed, {"data race", "access in flight"}},
        TemplateMutation{"NoMask", {" || ($)) ", ") "}}, TemplateMutation{"OnlyOneRead", {"count", "1"}},
        TemplateMutation{"TheSameReadAgain", {"($)", "(0)"}}, TemplateMutation{"AddedByAllLanes", removed},
        TemplateMutation{"LeftWithTheNextElement", moved_up(1)},
        TemplateMutation{"UnitTooSmall", {"61 -", "100 -"}},
        TemplateMutation{"ConvertedInAnotherUnit", {"= 1 /", "= 2 /"}},
        TemplateMutation{"OwnDerivatives_Ignored", {" + $}", "}"}},
        TemplateMutation{"OwnDerivatives_Alone", {", $ + ", ", "}},
        TemplateMutation{"OwnDerivativesOfTheFirstElements", {", $ i", ", i"}},
        TemplateMutation{"OwnDerivativesWithoutSign", {"-x;", "x;"}},
        TemplateMutation{"SinksWithoutSign", {"= -", "= "}},
        TemplateMutation{"NoBarrierInSinks", removed, {"data race"}},
        TemplateMutation{"NoGradientOfLse", removed}, TemplateMutation{"NoGradientOfLseInPrepare", removed}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::backward_tensors_mutations
