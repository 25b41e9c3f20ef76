// Forward kernels of sm_120a and sm_121a, by TMA and mma.sync: head dims, tiles, lengths, masks, scores, FP8 and sequences
// of any lengths.
#include <jit/attention.h>
#include <jit/emulation.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/device/fp8_case.h"
#include "tests/device/gpu_fixture.h"
#include "tests/support/error_of.h"
#include "tests/support/seed.h"

namespace jit::testing::mma_tma_tests {
namespace {

AttentionCase case_of(int head_dim, int head_dim_v, int ratio, int batch, int heads_kv, int seqlen_q,
                      int seqlen_kv, Layout layout = Layout::bshd) {
  AttentionCase problem = problem_of({.head_dim = head_dim, .head_dim_v = head_dim_v, .gqa_ratio = ratio},
                                     batch, heads_kv, seqlen_q, seqlen_kv, layout);
  problem.spec.dtype = problem.seed % 2 == 0 ? DType::bf16 : DType::fp16;
  return problem;
}

KernelConfig config_of(const char* text) {
  return parse_config(std::string("family=forward_mma_tma ") + text);
}

/// Configs of one group of warps and of two, of one stage and of several.
std::vector<KernelConfig> configs() {
  return {config_of("tile_q=128 tile_kv=32 stages=2"), config_of("tile_q=64 tile_kv=64 stages=1"),
          config_of("tile_q=64 tile_kv=32 stages=4")};
}

class ForwardMmaTmaTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped() && (native_arch(device_).major != 12 || native_arch(device_).suffix != 'a'))
      GTEST_SKIP() << "forward_mma_tma does not run on " << to_string(native_arch(device_));
  }
};

TEST_F(ForwardMmaTmaTest, HeadDims) {
  std::vector<KernelCase> cases;
  const std::vector<std::pair<int, int>> dims = {{16, 16},   {64, 64},  {128, 128}, {192, 192}, {256, 256},
                                                 {192, 128}, {8, 256},  {256, 8},   {40, 72},   {136, 24},
                                                 {96, 96},   {72, 200}, {24, 40}};
  for (const auto& [keys, values] : dims) {
    AttentionCase problem = case_of(keys, values, 2, 1, 1, 70, 150);
    problem.spec.mask = cases.size() % 2 == 0 ? mask::causal() : mask::none();
    cases.push_back({problem, {}});
  }
  expect_some_right(cases, 4);
}

TEST_F(ForwardMmaTmaTest, LengthsAndLayouts) {
  std::vector<KernelCase> cases;
  for (const KernelConfig& config : configs()) {
    for (const int keys : {0, 1, 63, 64, 65, 129, 300})
      cases.push_back({case_of(64, 48, 1, 2, 1, 1 + keys % 67, keys), config});
    cases.push_back({case_of(80, 80, 1, 1, 2, 77, 77, Layout::packed_qkv), config});
    cases.push_back({case_of(64, 64, 4, 1, 2, 130, 140, Layout::padded), config});
    AttentionCase causal = case_of(64, 128, 3, 1, 2, 135, 100, Layout::bhsd);  // of queries some see no key
    causal.spec.mask = mask::causal();
    cases.push_back({causal, config});
  }
  expect_some_right(cases, 5);
}

TEST_F(ForwardMmaTmaTest, MasksAndScores) {
  const std::vector<FunctorText> masks = reference::mask_texts(), scores = reference::score_texts();
  std::vector<KernelCase> cases;
  const auto add = [&](const char* mask, const char* score) {
    AttentionCase problem = case_of(64, 32, 2, 2, 1, 140, 150);
    problem.spec.mask = parse_mask(mask, masks);
    problem.spec.score = parse_score(score, scores);
    cases.push_back({problem, configs()[cases.size() % 3]});
  };
  for (const char* mask :
       {"causal", "window(20, 0)", "prefix_lengths", "document", "text(allowed-keys)", "block_mask(64, 64)",
        "block_scores(64, 64)", "causal && !causal", "text(ends_by_head)", "document && causal", "tree"})
    add(mask, "none");
  for (const char* score : {"softcap(15)", "alibi", "bias(bf16)", "text(temperature), text(distance), alibi"})
    add("causal", score);
  expect_some_right(cases, 5);
}

TEST_F(ForwardMmaTmaTest, SequencesOfAnyLengths) {
  std::vector<KernelCase> cases;
  for (const SequenceKind kind : {SequenceKind::dense, SequenceKind::varlen, SequenceKind::paged}) {
    for (const int page_size : {16, 64}) {
      AttentionCase problem = case_of(64, 64, 2, 3, 1, 90, 140);
      problem.used_keys = {140, 0, 65};
      problem.used_queries = {90, 3, 64};
      problem.spec.mask = mask::causal();
      problem.spec.sinks =
          kind != SequenceKind::varlen;  // such kernels alone read lengths of dense sequences
      problem.spec.sequences_kv = kind;
      if (kind == SequenceKind::paged) problem.spec.page_size = page_size;
      if (kind != SequenceKind::dense) {
        problem.spec.sequences_q = SequenceKind::varlen;
        problem.spare_rows = 3;
      }
      cases.push_back({problem, configs()[cases.size() % 3]});
    }
  }
  expect_some_right(cases, 2);
}

// By block-scaled products.
TEST_F(ForwardMmaTmaTest, Fp8) {
  std::vector<KernelCase> cases;
  const auto add = [&](DType dtype, int d, int dv, ScaleKind scales, const Mask& mask, const Score& score,
                       DType out) {
    AttentionCase problem = fp8_case(dtype, d, 100, 170);
    problem.spec.head_dim_v = dv;
    problem.spec.gqa_ratio = 2;
    problem.spec.descale_per = scales;
    problem.spec.mask = mask;
    problem.spec.score = score;
    problem.spec.out_dtype = out;
    if (scales == ScaleKind::head) problem.spec.v_mean = problem.spec.lse_shift = true;
    if (scales == ScaleKind::block) problem.spec.v_descale_per = ScaleKind::channel;
    cases.push_back({problem, configs()[cases.size() % 3]});
  };
  add(DType::fp8_e4m3, 64, 64, ScaleKind::head, mask::causal(), {}, DType::bf16);
  add(DType::fp8_e5m2, 128, 48, ScaleKind::token, {}, {}, DType::fp16);
  add(DType::fp8_e4m3, 16, 80, ScaleKind::token, mask::causal(), score::softcap(3), DType::fp32);
  add(DType::fp8_e4m3, 64, 128, ScaleKind::block, mask::causal(), {}, DType::bf16);
  add(DType::fp8_e4m3, 256, 256, ScaleKind::head, mask::document(), score::bias(), DType::bf16);
  expect_some_right(cases, 2);
}

// More work tiles than blocks, of which some have no key. Maxima grow, so that the output is rescaled.
TEST_F(ForwardMmaTmaTest, RepeatedRunsAreBitIdentical) {
  const CurrentDevice current(0);
  AttentionCase problem = case_of(64, 64, 4, 1, sized(40, 30), 100, 130);
  problem.spec.mask = mask::causal();
  problem.amplitude = 4;
  problem.seqlen_q = 140;
  AttentionRun run(problem);
  const Attention kernel = attention(problem.spec, configs()[0], context());
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

// Instructions of warps, as docs/kernels/attention_ladder.md says; those that poll or rescale differ from run to run.
TEST_F(ForwardMmaTmaTest, CountsOfTheLadder) {
  if (!device_.emulated) GTEST_SKIP() << "a GPU does not count";
  const auto expect_count = [](DType dtype, std::size_t step, double expected) {
    const AttentionCase problem = problem_of({.dtype = dtype, .head_dim = 64}, 1, 1, 256, 1024);
    const AttentionRun run(problem);
    const TraceScope trace;
    attention(problem.spec, ladder()[step].config, context())(run.arguments());
    const auto counts = nlohmann::json::parse(trace.launches().at(0).counts_json());
    EXPECT_NEAR(counts.at("total").at("warp_instructions").get<double>(), expected, expected * 0.03)
        << ladder()[step].name << " " << to_string(dtype);
  };
  expect_count(DType::fp16, 2, 101'000);
  expect_count(DType::fp16, 3, 118'000);
  expect_count(DType::fp8_e4m3, 2, 94'000);
  expect_count(DType::fp8_e4m3, 3, 123'000);
}

TEST_F(ForwardMmaTmaTest, SaysWhatItDoesNotServe) {
  AttentionSpec cache = case_of(64, 64, 1, 1, 1, 10, 10).spec;
  cache.kv_dtype = DType::fp8_e4m3;
  EXPECT_THAT(error_of([&] { attention(cache, configs()[0], context()); }).what(),
              ::testing::HasSubstr("spec.kv_dtype is fp8_e4m3"));
  const AttentionSpec pages{.head_dim = 64,
                            .sequences_q = SequenceKind::varlen,
                            .sequences_kv = SequenceKind::paged,
                            .page_size = 4};
  EXPECT_THAT(error_of([&] { attention(pages, configs()[0], context()); }).what(),
              ::testing::HasSubstr("boxes of 4 rows of a page"));
}

}  // namespace
}  // namespace jit::testing::mma_tma_tests
