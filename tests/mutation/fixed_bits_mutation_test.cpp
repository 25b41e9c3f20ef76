// Mutations by which kernels of one spec compute other bits than those of another family, though most numbers stay
// right. On Hopper and, in a program of its own, on a GPU without wgmma.
#include <jit/device.h>

#include "generator/context/access.h"
#include "generator/context/context_state.h"
#include "generator/kernels/families.h"
#include "generator/plan/kernel_choice.h"
#include "generator/problem/arguments.h"
#include "tests/mutation/template_mutation.h"
#include "tests/support/cut_arguments.h"

namespace jit::testing::fixed_bits_mutations {
namespace {

constexpr const char* by_tiles = "family=forward_wgmma tile_q=64 tile_kv=64 stages_q=2";
constexpr const char* by_later_looks = "family=forward_wgmma tile_q=64 tile_kv=64 rescale=on_overflow";
constexpr const char* by_blocks = "family=forward_split_wgmma tile_rows=64 tile_kv=64 stages=2 stages_q=1";
constexpr const char* by_steps = "family=forward_mma_sync tile_q=64 tile_kv=64 warps=4 stages_k=2";
constexpr const char* by_warps = "family=forward_split_kv key_warps=1 tile_kv=64 stages=2 blocks_per_sm=1";

bool is_hopper() { return device_info(0).arch.major == 9; }

AttentionCase problem_of(float amplitude) {
  return {.spec = {.head_dim = 64,
                   .gqa_ratio = 2,
                   .sinks = true,
                   .split_keys = 192,
                   .mask = parse_mask("window(700, 0)")},
          .seqlen_q = 75,
          .seqlen_kv = 1170,  // some warps of a block see nothing of its last span
          .amplitude = amplitude,
          .seed = 11};
}

// The difference between calls of all families, whole ones and one in chunks of queries. Empty: nothing.
std::string noticed(const TemplateMutation* mutation, float amplitude) {
  const MutatedTemplates templates(mutation);
  const Context context(templates.settings());
  const AttentionCase problem = problem_of(amplitude);
  AttentionRun run(problem);
  const AttentionArguments all = run.arguments();
  try {
    const auto outputs_of = [&](const char* config, int queries) {
      const Attention kernel = attention(problem.spec, parse_config(config), context);
      run.poison_outputs();
      for (int begin = 0; begin < problem.seqlen_q; begin += queries)
        kernel(of_queries(all, begin, std::min(begin + queries, problem.seqlen_q)));
      return run.outputs();
    };
    const auto whole = outputs_of(by_steps, problem.seqlen_q);
    if (std::string failure = run.check().failure; !failure.empty()) return failure;
    if (is_hopper()) {
      if (outputs_of(by_tiles, problem.seqlen_q) != whole) return "other bits by tiles";
      if (outputs_of(by_later_looks, problem.seqlen_q) != whole) return "other bits by later looks";
      if (outputs_of(by_blocks, problem.seqlen_q) != whole) return "other bits by blocks";
    }
    return outputs_of(by_warps, 11) == whole ? "" : "other bits by warps";
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
}

constexpr float large = 170;  // some rows' maxima are large (steps/softmax.cuh), and some are not

TEST(FixedBits, AreEqualUnmutated) {
  for (const float amplitude : {1.0f, large}) EXPECT_EQ(noticed(nullptr, amplitude), "") << amplitude;
}

class FixedBitsMutationTest : public MutationTest {};

TEST_P(FixedBitsMutationTest, IsCaught) {
  EXPECT_THAT(noticed(&GetParam(), GetParam().subject.amplitude),
              ::testing::AllOf(::testing::Ne(""), ::testing::Not(::testing::HasSubstr("launch_failed")),
                               ::testing::Not(::testing::HasSubstr("compile_failed"))));
}

// A sink that is added to what rows have come to without it, as kernels do that sum keys without a break.
constexpr const char* added_sink =
    "[&] { const float without = __fmaf_rn(lg2(states[r].sum), ln_2, states[r].max); "
    "const float more = 1 + ex2((params.sequences.sinks[head] - without) * log2_e); "
    "return RowEnd{rcp(states[r].sum) * rcp(more), 1, __fmaf_rn(lg2(more), ln_2, without)}; }()";

INSTANTIATE_TEST_SUITE_P(
    FixedBits, FixedBitsMutationTest,
    ::testing::Values(TemplateMutation{"RowsMoveTogether", removed},
                      TemplateMutation{"LargeRowsBesideOthers", removed, {}, {.amplitude = large}},
                      TemplateMutation{"SpansInTheOrderOfKeys", {"(1u << level) - 1", "~0u"}},
                      TemplateMutation{"SpansOfABlockThatDoNotEnd", {"if ($)", "if (true)"}},
                      TemplateMutation{"MaximaOfTheBlocksSpanBefore", removed},
                      TemplateMutation{"SumsOfTheBlocksSpanBefore", removed},
                      TemplateMutation{"EndsOfOnesOwn",
                                       {"row_end<Config>(states[r], params, head)", added_sink}}),
    ::testing::PrintToStringParamName());

class WgmmaBitsMutationTest : public FixedBitsMutationTest {
 protected:
  void SetUp() override {
    if (!is_hopper()) GTEST_SKIP() << "the template is Hopper's";
    FixedBitsMutationTest::SetUp();
  }
};

TEST_P(WgmmaBitsMutationTest, IsCaught) { EXPECT_NE(noticed(&GetParam(), 1), ""); }

INSTANTIATE_TEST_SUITE_P(
    FixedBits, WgmmaBitsMutationTest,
    ::testing::Values(TemplateMutation{"OutputOfTheSpanBefore", removed},
                      TemplateMutation{"SpansThatDoNotEnd", removed},
                      TemplateMutation{"RowsThatMoveUnseen",
                                       {"all_stay(scores_, state_, before, limits_, offsets)", "true"}},
                      TemplateMutation{"LimitsOfLargerSums", {"state_.row_sum[r]", "1e9f"}},
                      TemplateMutation{"ExponentialsCountTwice", removed}),
    ::testing::PrintToStringParamName());

// Configs that are refused because their bits are others', and a text with multiply-adds that it does not name, computed
// all the same.
TEST(FixedBits, AreOtherOnesWhereTheRulesAreBroken) {
  const Context context(shared_cache_settings());
  const CurrentDevice current(0);
  ContextState& state = *Access::state(context);
  const DeviceInfo device = device_info(0);
  AttentionSpec spec = problem_of(1).spec;
  AttentionRun run(problem_of(1));
  spec.score = score::text(
      {.name = "sums_of_products", .body = "return score * 1.37f + k * 0.013f - score * score * 0.11f;"});
  AttentionParams params;
  ASSERT_TRUE(fill_params(spec, functor_tensor_uses(spec), run.arguments(), params));
  const auto outputs_of = [&](const char* text, bool may_fuse) {
    const KernelConfig config = parse_config(text);
    Program program = write_program(spec, config);
    program.may_fuse = may_fuse;
    Plan plan{.spec = spec, .config = config, .steps = {}, .why = "a test"};
    plan.steps.push_back(
        plan_step(load_kernel(state, build_image(state, program, native_target(device)), 0), spec, config));
    run.poison_outputs();
    run_plan(plan, params, state.memory, nullptr);
    synchronize(nullptr);
    EXPECT_FALSE(run.untouched()) << text;
    return run.outputs();
  };
  const auto by_rules = outputs_of(by_steps, false);
  EXPECT_TRUE(outputs_of(by_warps, false) == by_rules);
  EXPECT_FALSE(outputs_of(by_steps, true) == by_rules) << "contraction";
  for (const char* config : {"family=forward_mma_sync tile_q=64 tile_kv=32 warps=4 stages_k=2",
                             "family=forward_split_kv key_warps=2 tile_kv=64 stages=2 blocks_per_sm=1"}) {
    EXPECT_NE(config_rejection(spec, parse_config(config), device_limits(device)), "") << config;
    EXPECT_FALSE(outputs_of(config, false) == by_rules) << config;
  }
}

}  // namespace
}  // namespace jit::testing::fixed_bits_mutations
