// Masks whose functions contradict one another: checked calls say where, and all of a mask is compiled, whatever is asked.
#include "tests/mutation/template_mutation.h"

#include "tests/support/error_of.h"

namespace jit::testing::mask_agreements {
namespace {

// A folder of templates, in one of which a text is another one; gone at the end of the scope.
class ChangedTemplates {
 public:
  ChangedTemplates(std::string_view file, std::string_view from, std::string_view to) {
    for (const SourceFile& each : embedded_templates()) {
      std::string text = each.text;
      if (each.name == file) {
        const std::size_t place = text.find(from);
        if (place == std::string::npos) throw std::runtime_error(fmt::format("no '{}' in {}", from, file));
        text.replace(place, from.size(), to);
      }
      const std::filesystem::path path = std::filesystem::path(folder_.path()) / each.name;
      std::filesystem::create_directories(path.parent_path());
      std::ofstream(path) << text;
    }
  }
  Context context() const {
    Settings settings = shared_cache_settings();
    settings.templates = folder_.path();
    return Context(settings);
  }

 private:
  FreshFolder folder_;
};

AttentionCase checked_case(const Mask& mask) {
  AttentionCase problem;
  problem.spec.head_dim = 16;
  problem.spec.checked = true;
  problem.spec.mask = mask;
  problem.seqlen_q = 150;
  problem.seqlen_kv = 212;
  problem.batch = 2;
  problem.heads_kv = 2;
  problem.seed = 5;
  return problem;
}

// The finding of a checked call; empty: none. The problem has the tensors of a mask, and results are compared
// with those of it.
std::string said(const Mask& mask, const Context& context, const Mask& mask_of_problem) {
  AttentionRun run(checked_case(mask_of_problem));
  try {
    attention_when_called(checked_case(mask).spec, context)(run.arguments());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_spec) << error.what();
    EXPECT_EQ(error.field(), "spec.mask");
    return error.message();
  }
  return run.check().failure;
}
std::string said(const Mask& mask, const Context& context) { return said(mask, context, mask); }

struct Disagreement {
  const char* name;
  const char* mask;
  const char* file;
  const char* from;
  const char* to;
  const char* words;
};
std::ostream& operator<<(std::ostream& out, const Disagreement& one) { return out << one.name; }

class MaskAgreement : public ::testing::TestWithParam<Disagreement> {};

TEST_P(MaskAgreement, OneWithoutItIsFound) {
  const Disagreement& one = GetParam();
  const ChangedTemplates templates(one.file, one.from, one.to);
  const std::string text = said(parse_mask(one.mask, reference::mask_texts()), templates.context());
  EXPECT_THAT(text, ::testing::HasSubstr(fmt::format("mask '{}': query ", one.mask)));
  EXPECT_THAT(text, ::testing::ContainsRegex(one.words));
}

constexpr const char* masks = "problem/masks.cuh";
constexpr const char* causal_range = "minimum(seqlen_kv, q + shift + 1)";

INSTANTIATE_TEST_SUITE_P(
    Masks, MaskAgreement,
    ::testing::Values(
        Disagreement{"RowsTooNarrow", "causal", masks, causal_range, "minimum(seqlen_kv, q + shift)",
                     "head 0 sees key [0-9]+ by its keep, and by its row_range it does not"},
        Disagreement{"RowsTooWide", "causal", masks, causal_range, "minimum(seqlen_kv, q + shift + 2)",
                     "does not see key [0-9]+ by its keep, and by its row_range it does;"},
        Disagreement{"RowsOfAPart", "sliding_window(20) || prefix(9)", masks,
                     "row_range(int) const { return {0, limit}; }",
                     "row_range(int) const { return {0, limit - 1}; }",
                     "sees key 8 by its keep, and by its kept_bits it does not"},
        Disagreement{"KeepTooNarrow", "causal", masks, "return k <= q + shift;", "return k < q + shift;",
                     "does not see key [0-9]+ by its keep, and by its row_range it does"},
        Disagreement{"Tiles", "causal", masks, "tile.k_end - 1 <= tile.q_begin",
                     "tile.k_end - 2 <= tile.q_begin",
                     "does not see key [0-9]+ by its keep, and by its classify it does"},
        Disagreement{"KeysOfTiles", "causal", masks, "minimum(seqlen_kv, q_end + shift)",
                     "minimum(seqlen_kv, q_end + shift - 1)",
                     "sees key [0-9]+ by its keep, and by its key_range"},
        Disagreement{"RowsOfAText", "text(recent)", "problem/text_parts.cuh",
                     "minimum<long long>(seqlen_kv, end.value)",
                     "minimum<long long>(seqlen_kv, end.value - 1)", "by its kept_bits it does"},
        Disagreement{"WordsOfKeys", "document", "problem/document_mask.cuh", "return id_q == id_kv;",
                     "return id_q >= id_kv;",
                     "does not see key [0-9]+ by its keep, and by its keeps it does"}),
    ::testing::PrintToStringParamName());

TEST(MaskAgreementOfTexts, AWrongClassifyIsFound) {
  const Mask mask =
      mask::text({.name = "near",
                  .body = "return k <= q + 40;",
                  .classify = "return k_begin > q_end + 10 ? TileClass::empty : TileClass::partial;"});
  EXPECT_THAT(
      said(mask, Context(shared_cache_settings()), mask::none()),
      ::testing::ContainsRegex("mask 'text.near.': query [0-9]+ of batch entry [01] and head [0-9] sees "
                               "key [0-9]+ by its keep, and by its classify it does not"));
}

TEST(MaskAgreementOfTexts, CallsThatAreNotCheckedAreNotAsked) {
  const ChangedTemplates templates(masks, "return k <= q + shift;", "return k < q + shift;");
  AttentionCase problem = checked_case(mask::causal());
  problem.spec.checked = false;
  AttentionRun run(problem);
  EXPECT_NO_THROW(attention_when_called(problem.spec, templates.context())(run.arguments()));
}

// A right mask has no finding, whatever it is made of.
TEST(MaskAgreementOfAll, RightMasksAreAgreed) {
  const Context context(shared_cache_settings());
  const std::vector<const char*> all = {"causal",
                                        "causal(top_left)",
                                        "sliding_window(64)",
                                        "sliding_window(-1, 10)",
                                        "sliding_window(20, -1)",
                                        "sliding_window(30, 40, top_left)",
                                        "prefix(50)",
                                        "prefix(0)",
                                        "prefix_lengths",
                                        "causal_per_request",
                                        "draft_tree",
                                        "document",
                                        "tree",
                                        "!tree || prefix(9)",
                                        "text(stripes)",
                                        "text(allowed-keys)",
                                        "text(blocks)",
                                        "text(by_head.and_batch)",
                                        "text(ends_by_head)",
                                        "text(recent)",
                                        "text(band)",
                                        "!causal",
                                        "causal && sliding_window(40)",
                                        "causal || prefix(64)",
                                        "causal && document",
                                        "!draft_tree",
                                        "sliding_window(16, 16) || prefix(8) && causal",
                                        "!text(band) && document",
                                        "(causal || prefix_lengths) && document && text(stripes)",
                                        "block_mask(64, 64, causal)",
                                        "!block_mask(32, 16, text(recent)) || prefix(9)",
                                        "block_scores(64, 96, text(stripes)) && document"};
  int turn = 0;
  for (const char* text : all) {
    if (!reference::is_in_this_run(static_cast<std::uint64_t>(turn++), 6)) continue;
    EXPECT_EQ(said(parse_mask(text, reference::mask_texts()), context), "") << text;
  }
}

// Kernels of causal masks ask `row_range` alone.
TEST(MaskAgreementOfAll, WhatNoKernelAsksIsCompiled) {
  for (const auto& [from, to] : {std::pair("return k <= q + shift;", "return k <= q + shiftt;"),
                                 std::pair(causal_range, "minimum(seqlen_kv, q + shiftt)")}) {
    const ChangedTemplates templates(masks, from, to);
    AttentionCase problem = checked_case(mask::causal());
    problem.spec.checked = false;
    AttentionRun run(problem);
    const Error error = error_of([&] { attention(problem.spec, {}, templates.context()); });
    EXPECT_EQ(error.code(), ErrorCode::compile_failed);
    EXPECT_THAT(error.log(), ::testing::HasSubstr("shiftt"));
  }
}

}  // namespace
}  // namespace jit::testing::mask_agreements
