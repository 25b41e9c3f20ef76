// Mutations of the backward kernels: each must be noticed.
#include "tests/mutation/template_mutation.h"
#include "tests/support/backward_run.h"

namespace jit::testing {
namespace {

// Several tiles on both sides, two of them in flight, partial ones and empty ones, queries without keys, two heads that
// share keys.
const BackwardCase problem = {
    .spec = {.head_dim = 32, .gqa_ratio = 2, .mask = mask::causal(), .score = score::softcap(2)},
    .seqlen_q = 120,
    .seqlen_kv = 83,
    .seed = 5};

std::string noticed_of_backward(const TemplateMutation* mutation) {
  const MutatedTemplates templates(mutation);
  Settings settings = shared_cache_settings();
  settings.templates = templates.folder();
  const Context context(settings);
  const CurrentDevice scope(0);
  BackwardRun run(problem);
  try {
    run.compute(context, {.tile_q = 32, .tile_kv = 16, .warps = 2, .stages = 2},
                {.tile_q = 16, .tile_kv = 32, .warps = 2, .stages = 2});
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
  return run.check();
}

TEST(Backward, IsRightUnmutated) { EXPECT_EQ(noticed_of_backward(nullptr), ""); }

class BackwardMutationTest : public ::testing::TestWithParam<TemplateMutation> {};

TEST_P(BackwardMutationTest, IsCaught) { expect_caught(GetParam(), noticed_of_backward(&GetParam())); }

constexpr const char* dq = "backward_dq_mma_sync/kernel.cuh";
constexpr const char* dkv = "backward_dkv_mma_sync/kernel.cuh";
constexpr const char* steps = "steps/score_gradients.cuh";

INSTANTIATE_TEST_SUITE_P(
    BackwardMmaSync, BackwardMutationTest,
    ::testing::Values(
        TemplateMutation{"NoWaitForKeys",
                         dq,
                         "      cp_async_wait_group<ahead - 1>();\n",
                         "",
                         {"data race", "access in flight"}},
        TemplateMutation{"NoWaitForQueries",
                         dkv,
                         "      cp_async_wait_group<ahead - 1>();\n",
                         "",
                         {"data race", "access in flight"}},
        TemplateMutation{"NoBarrierInDq",
                         dq,
                         "    __syncthreads();\n    if constexpr (ahead > 0)",
                         "    if constexpr (ahead > 0)",
                         {"data race", "access in flight"}},
        TemplateMutation{"NoBarrierInDkv",
                         dkv,
                         "    __syncthreads();\n    if constexpr (ahead > 0)",
                         "    if constexpr (ahead > 0)",
                         {"data race", "access in flight"}},
        TemplateMutation{"NoBarrierBeforeDqLeaves",
                         dq,
                         "  cp_async_wait_group<0>();\n  __syncthreads();\n  store",
                         "  cp_async_wait_group<0>();\n  store",
                         {"data race", "access in flight"}},
        TemplateMutation{"DeltaLeftOut", dq, "sum = __fmaf_rn(x[i], y[i], sum);", "sum = 0 * x[i] * y[i];"},
        TemplateMutation{"StatisticsOfTheFirstHead", dkv, "gradients.lse_log2(batch, head), query",
                         "gradients.lse_log2(batch, 0), query"},
        TemplateMutation{
            "OneHeadOfTheGroup", "problem/query_tiles.cuh",
            "  __device__ __forceinline__ bool has(int ahead) const { return places_[ahead].head < "
            "Config::gqa_ratio; }",
            "  __device__ __forceinline__ bool has(int ahead) const { return places_[ahead].head < 1; }"},
        TemplateMutation{"PartialTilesOfQueriesTakenForFull", "problem/query_tiles.cuh",
                         "kind != TileClass::full || ", ""},
        TemplateMutation{"NoDerivativeOfTheScore", steps,
                         "      d_scores.at(r, n, i) *= applied.derivative;\n", ""},
        TemplateMutation{"WrongDerivativeOfTanh", "problem/dual.cuh",
                         "  const float y = tanh_approx(x.value);\n  return chain(x, y, 1 - y * y);",
                         "  const float y = tanh_approx(x.value);\n  return chain(x, y, 1 - y);"},
        TemplateMutation{"DqUnscaled", dq, "      dq, params.softmax_scale,", "      dq, 1.0f,"},
        TemplateMutation{"DvFromGradientsOfScores", dkv, "(dv, scores, do_tile(stage))",
                         "(dv, d_scores, do_tile(stage))"}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing
