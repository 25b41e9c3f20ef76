// Mutations by which kernels of one spec compute other bits than those of another family, though most numbers stay
// right.
#include "tests/mutation/template_mutation.h"
#include "tests/support/cut_arguments.h"

namespace jit::testing::fixed_bits_mutations {
namespace {

constexpr const char* by_tiles = "family=forward_wgmma tile_q=64 tile_kv=64 stages_q=2";
constexpr const char* by_blocks = "family=forward_split_wgmma tile_rows=64 tile_kv=64 stages=2 stages_q=1";
constexpr const char* by_warps = "family=forward_split_kv key_warps=1 tile_kv=64 stages=2 blocks_per_sm=1";

// The difference between calls of three families, two whole ones and one in chunks of queries. Empty: nothing.
std::string noticed(const TemplateMutation* mutation, float amplitude) {
  const MutatedTemplates templates(mutation);
  const Context context(templates.settings());
  AttentionCase problem{
      .spec = {.head_dim = 64, .gqa_ratio = 2, .split_keys = 192, .mask = parse_mask("window(700, 0)")},
      .seqlen_q = 75,
      .seqlen_kv = 1100,
      .amplitude = amplitude,
      .seed = 11};
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
    const auto whole = outputs_of(by_tiles, problem.seqlen_q);
    if (std::string failure = run.check().failure; !failure.empty()) return failure;
    if (outputs_of(by_blocks, problem.seqlen_q) != whole) return "other bits by blocks";
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
              ::testing::AllOf(::testing::Ne(""), ::testing::Not(::testing::HasSubstr("launch_failed"))));
}

INSTANTIATE_TEST_SUITE_P(
    FixedBits, FixedBitsMutationTest,
    ::testing::Values(TemplateMutation{"RowsMoveTogether", removed},
                      TemplateMutation{"LargeRowsBesideOthers", removed, {}, {.amplitude = large}},
                      TemplateMutation{"SpansInTheOrderOfKeys", {"(1u << level) - 1", "~0u"}},
                      TemplateMutation{"OutputOfTheSpanBefore", removed},
                      TemplateMutation{"SpansThatDoNotEnd", removed}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace jit::testing::fixed_bits_mutations
