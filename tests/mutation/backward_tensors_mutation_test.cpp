// Mutations of the gradients beyond those of q, k and v: each must be noticed.
#include <cmath>
#include <cstdlib>

#include "tests/mutation/template_mutation.h"
#include "tests/support/backward_run.h"

namespace jit::testing::backward_tensors_mutations {
namespace {

// Several tiles, partial ones and empty ones; a tensor whose elements are all read by one warp, one that is read twice
// for a score, and one of a text that gives its derivative. In two passes: head dims above 128 have no other.
BackwardCase problem_of(int head_dim) {
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
  BackwardCase problem{.spec = {.head_dim = head_dim,
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
  const BackwardCase problem = problem_of(head_dim);
  BackwardRun run(problem);
  try {
    attention_when_called(problem.spec, context).backward(run.arguments());
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
  return run.check();
}

TEST(BackwardTensors, IsRightUnmutated) {
  for (const int head_dim : reference::some_of<int>({64, 136}, 2))
    EXPECT_EQ(noticed_of_gradients(nullptr, head_dim), "") << head_dim;
}

constexpr const char* kernel = "backward_tensors/kernel.cuh";
constexpr const char* collector = "backward_tensors/collector.cuh";
constexpr const char* sinks = "backward_sinks/kernel.cuh";
constexpr const char* own = "problem/own_derivatives.cuh";

class BackwardTensorsMutationTest : public MutationTest {};

TEST_P(BackwardTensorsMutationTest, IsCaught) {
  const bool is_one_pass = std::string_view(GetParam().file) == "backward_wgmma/prepare.cuh";
  expect_caught(GetParam(), noticed_of_gradients(&GetParam(), is_one_pass ? 64 : 136));
}

INSTANTIATE_TEST_SUITE_P(
    BackwardTensors, BackwardTensorsMutationTest,
    ::testing::Values(
        TemplateMutation{"KeysAreOverwritten",
                         kernel,
                         "    __syncthreads();\n    k_loader",
                         "    k_loader",
                         {"data race", "access in flight"}},
        TemplateMutation{
            "NoWaitForKeys", kernel, "    cp_async_wait_group<0>();\n", "", {"access in flight"}},
        TemplateMutation{"NoBarrierBehindKeys",
                         kernel,
                         "    cp_async_wait_group<0>();\n    __syncthreads();\n",
                         "    cp_async_wait_group<0>();\n",
                         {"data race", "access in flight"}},
        TemplateMutation{"NoMask", kernel, " || (is_partial && !mask.keep(query, key))", ""},
        TemplateMutation{"OnlyOneRead", kernel, "if (++read == count) break;", "if (++read == 1) break;"},
        TemplateMutation{"TheSameReadAgain", kernel, "reads.begin(read);", "reads.begin(0);"},
        TemplateMutation{"AddedByAllLanes", collector, "      if (lane_id() != 0) return;\n", ""},
        TemplateMutation{
            "LeftWithTheNextElement", collector,
            "      if (sum_ != 0) atomic_add_relaxed(sums_ + element_, sum_);\n      element_ = "
            "element;",
            "      element_ = element;\n      if (sum_ != 0) atomic_add_relaxed(sums_ + element_, "
            "sum_);"},
        TemplateMutation{"UnitTooSmall", collector, "61 - exponent", "100 - exponent"},
        TemplateMutation{"ConvertedInAnotherUnit", "backward_tensors/convert.cuh", "1 / units_per_one",
                         "2 / units_per_one"},
        TemplateMutation{"OwnDerivativesIgnored", own, "x.derivative + wanted_", "x.derivative"},
        TemplateMutation{"OwnDerivativesAlone", own, "x.derivative + wanted_", "wanted_"},
        TemplateMutation{"OwnDerivativesOfTheFirstElements", own, "{stated_, first_ + i}", "{stated_, i}"},
        TemplateMutation{"OwnDerivativesWithoutSign", own, "*this += -x", "*this += x"},
        TemplateMutation{"SinksWithoutSign", sinks, "-layout.factor", "layout.factor"},
        TemplateMutation{"NoBarrierInSinks",
                         sinks,
                         "    __syncthreads();\n    if (thread < half)",
                         "    if (thread < half)",
                         {"data race"}},
        TemplateMutation{"NoGradientOfLse", "steps/query_statistics.cuh",
                         "    if (lse != negative_infinity()) sum -= gradients.d_lse(batch, head, query);\n",
                         ""},
        TemplateMutation{
            "NoGradientOfLseInPrepare", "backward_wgmma/prepare.cuh",
            "      if (lse != negative_infinity()) sum -= gradients.d_lse(batch, head, query);\n", ""}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::backward_tensors_mutations
