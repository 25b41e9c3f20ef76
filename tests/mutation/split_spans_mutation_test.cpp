// Mutations that make bits depend on how a request's queries are cut into calls, though most numbers stay right.
#include "tests/mutation/template_mutation.h"
#include "tests/support/cut_arguments.h"

namespace jit::testing::split_spans_mutations {
namespace {

constexpr const char* split_kv = "family=forward_split_kv key_warps=1 tile_kv=64 stages=2 blocks_per_sm=1";
constexpr const char* split_wgmma = "family=forward_split_wgmma tile_rows=64 tile_kv=64 stages=2 stages_q=1";

// Errors of a call, or of the same call in chunks of queries. Empty: none. With `num_splits` = 1 no two
// blocks share keys.
std::string noticed_in_chunks(const TemplateMutation* mutation, const char* config, int num_splits) {
  const MutatedTemplates templates(mutation);
  const Context context(templates.settings());
  AttentionCase problem{
      .spec = {.head_dim = 64, .gqa_ratio = 2, .split_keys = 192, .mask = parse_mask("window(700, 0)")},
      .seqlen_q = 100,
      .seqlen_kv = 900,
      .seed = 11};
  AttentionRun run(problem);
  AttentionArguments all = run.arguments();
  all.num_splits = num_splits;
  try {
    const Attention kernel = attention(problem.spec, parse_config(config), context);
    run.poison_outputs();
    kernel(all);
    if (std::string failure = run.check().failure; !failure.empty()) return failure;
    const auto whole = run.outputs();
    run.poison_outputs();
    for (int begin = 0; begin < problem.seqlen_q; begin += 9)
      kernel(of_queries(all, begin, std::min(begin + 9, problem.seqlen_q)));
    return run.outputs() == whole ? "" : "other bits";
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
}

TEST(SplitSpans, AreInvariantUnmutated) {
  for (const char* config : {split_kv, split_wgmma}) {
    for (const int num_splits : {0, 1})
      EXPECT_EQ(noticed_in_chunks(nullptr, config, num_splits), "") << config;
  }
}

class SplitSpansMutationTest : public MutationTest {};

TEST_P(SplitSpansMutationTest, IsCaught) {
  const std::string text = noticed_in_chunks(&GetParam(), GetParam().subject.config, 1);
  EXPECT_THAT(text,
              ::testing::AllOf(::testing::Ne(""), ::testing::Not(::testing::HasSubstr("launch_failed"))));
}

INSTANTIATE_TEST_SUITE_P(
    SplitSpans, SplitSpansMutationTest,
    ::testing::Values(
        TemplateMutation{"SpansFromTheWindowOn", {", $ *", ", tile +"}, {}, {.config = split_kv}},
        TemplateMutation{"SpansFromTheWindowOnByWgmma",
                         {"= $ *", "= work.tiles.begin + tile +"},
                         {},
                         {.config = split_wgmma}},
        TemplateMutation{
            "RescaledWhereOthersNeedIt", {"? $ :", "? Rescale::lazy :"}, {}, {.config = split_kv}},
        TemplateMutation{"TheTreeOfWhatTheRowsSee",
                         {"($ {info.span", "({0, info.split == 0}, {info.span - info.split_begin"},
                         {},
                         {.config = split_kv}}),
    ::testing::PrintToStringParamName());

// Keys shared by blocks, whose nodes are read before they are there.
TEST(SplitSpans, MergedTooEarlyAreARace) {
  const TemplateMutation mutation{"MergedTooEarly", removed};
  for (const char* config : {split_kv, split_wgmma}) {
    EXPECT_THAT(noticed_in_chunks(&mutation, config, 0),
                ::testing::AnyOf(::testing::HasSubstr("data race"), ::testing::HasSubstr("uninitialized")))
        << config;
  }
}

}  // namespace
}  // namespace jit::testing::split_spans_mutations
