#include "tools/jit_attention/problem.h"

#include <gtest/gtest.h>

#include "tools/jit_attention/command.h"
#include "tools/jit_attention/useful_work.h"

namespace jit::tool {
namespace {

Problem problem_of(const std::string& mask, int seqlen_q = 64, int seqlen_kv = 64) {
  ProblemOptions options;
  options.spec.functors.mask = mask;
  options.batch = 2;
  options.heads = 4;
  options.seqlen_q = seqlen_q;
  options.seqlen_kv = seqlen_kv;
  return build_problem(options);
}

double share_of(const std::string& mask, int seqlen_q = 64, int seqlen_kv = 64) {
  return mask_density(problem_of(mask, seqlen_q, seqlen_kv)).value_or(-1);
}

TEST(UsefulWork, CountsPairsThatBuiltInMasksKeep) {
  EXPECT_EQ(share_of(""), 1);
  EXPECT_EQ(share_of("causal"), 65.0 / 128);
  EXPECT_EQ(share_of("causal", 64, 128), (64 * 64 + 64 * 65 / 2) / (64.0 * 128));
  EXPECT_EQ(share_of("causal(top_left)", 64, 128), (64 * 65 / 2) / (64.0 * 128));
  EXPECT_EQ(share_of("window(0, 0)"), 1.0 / 64);
  EXPECT_EQ(share_of("window(-1, 0)"), share_of("causal"));
  EXPECT_EQ(share_of("prefix(16)"), 0.25);
  EXPECT_EQ(share_of("!prefix(16)"), 0.75);
  EXPECT_EQ(share_of("causal || prefix(64)"), 1);
  EXPECT_EQ(share_of("causal && window(0, 5)"), 1.0 / 64);
  EXPECT_EQ(share_of("document"), 1.0 / 8);        // eight equal documents
  EXPECT_EQ(share_of("prefix_lengths"), 1.0 / 2);  // half of the keys
  EXPECT_EQ(share_of("causal_per_request"), share_of("causal"));
  EXPECT_EQ(share_of("draft_tree", 64, 128), 3.0 / 4);  // half of the draft's keys, and those before
}

TEST(UsefulWork, SamplesLongProblemsEvenly) {
  EXPECT_NEAR(share_of("causal", 1 << 17, 1 << 20), 15.0 / 16, 1e-4);
}

TEST(UsefulWork, TextsCountWhereTheyAreFollowed) {
  const auto share_of_text = [](const std::string& body, const char* with = "none") {
    Problem problem = problem_of(with);
    problem.spec.mask = problem.spec.mask && mask::text({.name = "mine", .body = body});
    return mask_density(problem).value_or(-1);
  };
  EXPECT_EQ(share_of_text("return q != k;"), 63.0 / 64);
  EXPECT_EQ(share_of_text("return q != k;", "causal"), 63.0 / 128);
  EXPECT_EQ(share_of_text("return (q + 2 * k) % 4 == 1;"), 1.0 / 4);
  EXPECT_EQ(share_of_text("return h % 2 == 0 && b == 1;"), 1.0 / 4);
  EXPECT_EQ(share_of_text("for (int i = 0; i < 3; ++i) if (q == i) return true; return false;"), -1);
  EXPECT_EQ(share_of_text("return k < 0.3f * q;"), -1) << "known to a rounding";
}

TEST(UsefulWork, AMissingTensorIsAnError) {
  Problem problem = problem_of("document");
  problem.tensors.erase("document_ids_kv");
  EXPECT_THROW(
      {
        try {
          mask_density(problem);
        } catch (const Error& error) {
          EXPECT_EQ(error.field(), "document_ids_kv");
          throw;
        }
      },
      Error);
}

TEST(UsefulWork, FlopsAreThoseOfTwoProducts) {
  EXPECT_EQ(useful_flops(problem_of(""), 0.5), 0.5 * 2 * 4 * 64 * 64 * 4 * 128);
}

TEST(Problem, MakesUpTensorsOfTheRightShapes) {
  const Problem problem = problem_of("document && prefix_lengths");
  EXPECT_EQ(problem.tensors.at("document_ids_q").shape, (std::vector<std::int64_t>{1, 64}));
  EXPECT_EQ(problem.tensors.at("prefix_lengths").shape, (std::vector<std::int64_t>{2}));
  EXPECT_EQ(problem_of("draft_tree", 70).tensors.at("draft_tree").shape, (std::vector<std::int64_t>{70, 3}));
  EXPECT_EQ(problem_of("causal_per_request").tensors.at("is_causal").shape, (std::vector<std::int64_t>{2}));
}

TEST(Problem, SequencesHaveTheirArrays) {
  ProblemOptions options;
  options.batch = 3;
  options.heads = 4;
  options.seqlen_q = 2;
  options.seqlen_kv = 100;
  AttentionSpec& spec = options.spec.spec;
  const auto arguments = [&] { return placeholder_arguments(build_problem(options), {}); };
  spec.sinks = true;
  EXPECT_EQ(arguments().sinks.shape[0], 4);
  EXPECT_FALSE(arguments().page_table.is_present());
  spec.sequences_q = SequenceKind::varlen;
  EXPECT_EQ(arguments().q.shape[0], 6);
  EXPECT_EQ(arguments().cu_seqlens_q.shape[0], 4);
  spec.sequences_kv = SequenceKind::varlen;
  EXPECT_EQ(arguments().k.shape[0], 300);
  spec.sequences_kv = SequenceKind::paged;
  spec.page_size = 16;
  EXPECT_EQ(arguments().page_table.shape[1], 7);
  EXPECT_EQ(arguments().k.shape[1], 16);
  options.block_map.paths = {"blocks.npy"};
  EXPECT_THROW(build_problem(options), BadInput);
}

TEST(Problem, BakesLengthsOnRequest) {
  ProblemOptions options;
  EXPECT_EQ(build_problem(options).spec.seqlen_q, 0);
  options.bake = true;
  EXPECT_EQ(build_problem(options).spec.seqlen_kv, options.seqlen_kv);
}

}  // namespace
}  // namespace jit::tool
