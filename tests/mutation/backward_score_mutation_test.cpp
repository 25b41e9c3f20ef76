// Mutations of how gradients of scores are computed that read tensors: each must be noticed.
#include "tests/mutation/template_mutation.h"
#include "tests/support/backward_run.h"

namespace jit::testing::backward_score_mutations {
namespace {

// Scores that read a tensor of queries and keys, which end within tiles.
class BiasMutationTest : public MutationTest {};

TEST_P(BiasMutationTest, IsCaught) {
  const MutatedTemplates templates(&GetParam());
  const Context context(templates.settings());
  const CurrentDevice scope(0);
  BackwardRun run({.spec = {.head_dim = 64, .score = score::bias(DType::bf16)},
                   .seqlen_q = 70,
                   .seqlen_kv = 100,
                   .seed = 5});
  std::string noticed;
  try {
    run.compute(context, BackwardWgmma{.stages = 2});
    noticed = run.check();
  } catch (const Error& error) {
    noticed = fmt::format("{}: {}", to_string(error.code()), error.what());
  }
  expect_caught(GetParam(), noticed);
}

INSTANTIATE_TEST_SUITE_P(BackwardWgmma, BiasMutationTest,
                         ::testing::Values(TemplateMutation{
                             "NoTileEnds", {"!$>", "true>"}, {"out of bounds"}}),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::backward_score_mutations
