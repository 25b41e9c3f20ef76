// Mutations of the matrix product's steps: what holds each one together must be noticed when it is missing.
#include "tests/mutation/template_mutation.h"
#include "tests/support/matmul_run.h"

namespace jit::testing::matmul_mutations {
namespace {

struct MatmulMutation {
  MatmulCase problem;
  TemplateMutation mutation;

  friend std::ostream& operator<<(std::ostream& out, const MatmulMutation& mutation) {
    return out << mutation.mutation;
  }
};

// More tiles along k than the pipeline has stages, and tails of all sizes.
MatmulCase step(const char* name) { return {.step = name, .m = 140, .n = 132, .k = 333}; }

std::string noticed_of_product(const TemplateMutation* mutation, const MatmulCase& problem) {
  const MutatedTemplates templates(mutation);
  MatmulRun run(problem, 7);
  try {
    matmul_kernel(problem.step, Context(templates.settings()))(run.arguments());
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
  return run.check();
}

const MatmulCase thread_tiles = {.step = "smem_tiles", .m = 40, .n = 40, .k = 70};

class MatmulMutationTest : public MutationTestOf<MatmulMutation> {};

TEST_P(MatmulMutationTest, IsCaught) {
  expect_caught(GetParam().mutation, noticed_of_product(&GetParam().mutation, GetParam().problem));
}

INSTANTIATE_TEST_SUITE_P(
    Matmul, MatmulMutationTest,
    ::testing::Values(
        MatmulMutation{thread_tiles,
                       {"MatmulReadsBeforeTheTileIsThere", removed, {"data race", "uninitialized read"}}},
        MatmulMutation{thread_tiles, {"MatmulTileIsOverwrittenEarly", removed, {"data race"}}},
        MatmulMutation{step("ldmatrix"),
                       {"MatmulStoresBehindTheLastRow", {"row >= params.m || ", ""}, {"out of bounds"}}},
        MatmulMutation{step("cp_async"), {"MatmulWaitForTheTile_None", removed, {"access in flight"}}},
        MatmulMutation{step("cp_async"),
                       {"MatmulWaitForTheTile_OfTooFew", {" - 2>", " - 1>"}, {"access in flight"}}},
        MatmulMutation{step("cp_async"),
                       {"MatmulNoBarrierBeforeTheTile", removed, {"data race", "access in flight"}}},
        MatmulMutation{step("double_buffer"),
                       {"MatmulWaitForTheNextTile_None", removed, {"access in flight"}}},
        MatmulMutation{step("double_buffer"),
                       {"MatmulNoBarrierBeforeTheNextTile", removed, {"data race", "access in flight"}}},
        MatmulMutation{step("double_buffer"), {"MatmulOverwritesTheFragments", {"(step + 1)", "step"}}},
        MatmulMutation{step("split_k"), {"MatmulSumsTheFirstShare", {"split * share", "0 * share"}}}),
    ::testing::PrintToStringParamName());

UNMUTATED_TEST(Matmul, IsRightUnmutated) {
  for (const MatmulCase& problem : {thread_tiles, step("cp_async"), step("split_k")})
    EXPECT_EQ(noticed_of_product(nullptr, problem), "") << problem;
}

}  // namespace
}  // namespace jit::testing::matmul_mutations
