// Head dims above 256 on sm_90a, whose output two warpgroups share. Varlen and paged sequences: also
// tests/python/test_wide_heads.py.
#include <jit/attention.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/device/gpu_fixture.h"
#include "tests/support/error_of.h"
#include "tests/support/seed.h"

namespace jit::testing::wide_tests {
namespace {

struct HeadDims {
  int keys, values;
};

AttentionCase case_of(HeadDims dims, int ratio, int batch, int heads_kv, int seqlen_q, int seqlen_kv,
                      Layout layout = Layout::bshd) {
  AttentionCase problem = problem_of({.head_dim = dims.keys, .head_dim_v = dims.values, .gqa_ratio = ratio},
                                     batch, heads_kv, seqlen_q, seqlen_kv, layout);
  problem.spec.dtype = problem.seed % 2 == 0 ? DType::bf16 : DType::fp16;
  return problem;
}

KernelConfig config_of(const char* text) {
  return parse_config(std::string("family=forward_wide_wgmma ") + text);
}

/// With room for a tile and a half, for less than a tile, and the least.
std::vector<KernelConfig> configs() {
  return {config_of("stages_k=9"), config_of("stages_k=5"), config_of("stages_k=3")};
}

class ForwardWideTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped() && native_arch(device_) != Arch{9, 0, 'a'})
      GTEST_SKIP() << "forward_wide_wgmma does not run on " << to_string(native_arch(device_));
  }
};

TEST_F(ForwardWideTest, HeadDims) {
  std::vector<KernelCase> cases;
  for (const HeadDims dims : {HeadDims{512, 512},
                              {264, 264},
                              {320, 320},
                              {384, 384},
                              {448, 448},
                              {504, 512},
                              {512, 64},
                              {64, 512},
                              {8, 512},
                              {40, 264},
                              {296, 8},
                              {512, 256},
                              {256, 320}}) {
    AttentionCase problem = case_of(dims, 2, 1, 1, 70, 150);
    problem.spec.mask = cases.size() % 2 == 0 ? mask::causal() : mask::none();
    cases.push_back({problem, configs()[cases.size() % 2]});
  }
  expect_some_right(cases, 5);
}

TEST_F(ForwardWideTest, LengthsAndLayouts) {
  std::vector<KernelCase> cases;
  for (const KernelConfig& config : configs()) {
    for (const int keys : {0, 1, 63, 64, 65, 129, 300})
      cases.push_back({case_of({272, 320}, 1, 2, 1, 1 + keys % 67, keys), config});
    cases.push_back({case_of({320, 320}, 1, 1, 2, 77, 77, Layout::packed_qkv), config});
    cases.push_back({case_of({288, 288}, 4, 1, 2, 130, 140, Layout::padded), config});
    AttentionCase causal =
        case_of({264, 400}, 3, 1, 2, 135, 100, Layout::bhsd);  // of queries some see no key
    causal.spec.mask = mask::causal();
    cases.push_back({causal, config});
  }
  expect_some_right(cases, 5);
}

TEST_F(ForwardWideTest, MasksAndScores) {
  const std::vector<FunctorText> masks = reference::mask_texts(), scores = reference::score_texts();
  std::vector<KernelCase> cases;
  const auto add = [&](const char* mask, const char* score) {
    AttentionCase problem = case_of({264, 272}, 2, 2, 1, 140, 150);
    problem.spec.mask = parse_mask(mask, masks);
    problem.spec.score = parse_score(score, scores);
    cases.push_back({problem, configs()[cases.size() % 2]});
  };
  for (const char* mask : {"causal", "window(20, 0)", "prefix_lengths", "document", "text(allowed-keys)",
                           "block_mask(64, 64)", "block_scores(64, 64)", "causal && !causal",
                           "text(ends_by_head)", "document && causal", "!causal", "tree"})
    add(mask, "none");
  for (const char* score : {"softcap(15)", "alibi", "bias(bf16)", "text(temperature), text(distance), alibi"})
    add("causal", score);
  expect_some_right(cases, 6);
}

TEST_F(ForwardWideTest, LengthsOnTheDevice) {
  std::vector<KernelCase> cases;
  for (const bool is_varlen : {true, false}) {
    AttentionCase problem = case_of({320, 264}, 2, 3, 1, 90, 140);
    problem.used_keys = {140, 0, 65};
    problem.used_queries = {90, 3, 64};
    problem.spec.mask = mask::causal();
    problem.spec.sinks = !is_varlen;  // such kernels alone read lengths of dense sequences
    if (is_varlen) {
      problem.spec.sequences_q = problem.spec.sequences_kv = SequenceKind::varlen;
      problem.spare_rows = 3;
    }
    cases.push_back({problem, configs()[cases.size() % 2]});
  }
  expect_some_right(cases, 2);
}

// More work tiles than blocks, of which some have no key. Maxima grow, so that the output is rescaled.
TEST_F(ForwardWideTest, RepeatedRunsAreBitIdentical) {
  const CurrentDevice current(0);
  AttentionCase problem = case_of({264, 264}, 4, 1, sized(40, 36), 100, 130);
  problem.spec.mask = mask::causal();
  problem.amplitude = 4;
  problem.seqlen_q = 140;
  AttentionRun run(problem);
  const Attention kernel = attention(problem.spec, configs()[1], context());
  std::vector<unsigned char> first;
  for (int launch = 0; launch < sized(50, 2); ++launch) {
    run.poison_outputs();
    kernel(run.arguments());
    check(driver().cuCtxSynchronize(), "cuCtxSynchronize");
    if (launch == 0) {
      first = run.outputs();
      EXPECT_EQ(run.check().failure, "");
    }
    ASSERT_EQ(run.outputs(), first) << "launch " << launch;
  }
}

TEST_F(ForwardWideTest, SaysWhatItDoesNotServe) {
  const AttentionCase narrow = case_of({256, 256}, 1, 1, 1, 10, 10);
  EXPECT_THAT(error_of([&] { attention(narrow.spec, configs()[0], context()); }).what(),
              ::testing::HasSubstr("is for head dims above 256"));
  AttentionSpec fp8 = case_of({512, 512}, 1, 1, 1, 10, 10).spec;
  fp8.kv_dtype = DType::fp8_e4m3;
  EXPECT_THAT(error_of([&] { attention(fp8, configs()[0], context()); }).what(),
              ::testing::HasSubstr("spec.kv_dtype is fp8_e4m3"));
}

}  // namespace
}  // namespace jit::testing::wide_tests
