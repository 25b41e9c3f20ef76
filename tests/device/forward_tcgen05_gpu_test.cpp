// Forward kernels with tcgen05, on sm_100a and sm_103a.
#include <jit/attention.h>

#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/device/gpu_fixture.h"
#include "tests/support/backward_run.h"
#include "tests/support/error_of.h"
#include "tests/support/seed.h"
#include "tests/support/varlen_backward_run.h"

namespace jit::testing::tcgen05_tests {
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
  return parse_config(std::string("family=forward_tcgen05 ") + text);
}

/// With room for two tiles of keys and of values, and for one.
std::vector<KernelConfig> configs() { return {config_of("stages=2"), config_of("stages=1")}; }

class ForwardTcgen05Test : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped() && native_arch(device_).major != 10)
      GTEST_SKIP() << "forward_tcgen05 does not run on " << to_string(native_arch(device_));
  }
  void expect_identical_runs(HeadDims dims, int heads, int seqlen_kv);
};

TEST_F(ForwardTcgen05Test, HeadDims) {
  std::vector<KernelCase> cases;
  for (const HeadDims dims : {HeadDims{128, 128},
                              {64, 64},
                              {96, 96},
                              {192, 128},
                              {8, 8},
                              {40, 72},
                              {120, 16},
                              {16, 128},
                              {136, 64}}) {
    AttentionCase problem = case_of(dims, 2, 1, 1, 300, 290);
    problem.spec.mask = cases.size() % 2 == 0 ? mask::causal() : mask::none();
    cases.push_back({problem, configs()[1]});
  }
  expect_some_right(cases, 4);
}

// By pairs of blocks.
TEST_F(ForwardTcgen05Test, WideHeads) {
  std::vector<KernelCase> cases;
  for (const HeadDims dims : {HeadDims{256, 256}, {200, 136}, {256, 16}, {64, 192}, {248, 72}, {8, 256}}) {
    for (const int keys : {400, 100}) {
      AttentionCase problem = case_of(dims, 2, 1, 1, 500 - keys, keys);
      problem.spec.mask = cases.size() % 3 == 0 ? mask::causal() : mask::none();
      cases.push_back({problem, configs()[keys == 100]});
    }
  }
  expect_some_right(cases, 4);
}

TEST_F(ForwardTcgen05Test, LengthsAndLayouts) {
  std::vector<KernelCase> cases;
  for (const KernelConfig& config : configs()) {
    for (const int keys : {0, 1, 127, 128, 129, 300})
      cases.push_back({case_of({72, 128}, 1, 2, 1, 1 + keys % 257, keys), config});
    cases.push_back({case_of({64, 64}, 1, 1, 2, 177, 177, Layout::packed_qkv), config});
    cases.push_back({case_of({88, 88}, 4, 1, 2, 130, 140, Layout::padded), config});
    AttentionCase causal = case_of({64, 80}, 3, 1, 2, 300, 260, Layout::bhsd);  // of queries some see no key
    causal.spec.mask = mask::causal();
    cases.push_back({causal, config});
  }
  expect_some_right(cases, 5);
}

TEST_F(ForwardTcgen05Test, MasksAndScores) {
  const std::vector<FunctorText> masks = reference::mask_texts(), scores = reference::score_texts();
  std::vector<KernelCase> cases;
  const auto add = [&](const char* mask, const char* score) {
    const HeadDims dims = cases.size() % 4 == 3 ? HeadDims{64, 136} : HeadDims{64, 72};
    AttentionCase problem = case_of(dims, 2, 2, 1, 270, 280);
    problem.spec.mask = parse_mask(mask, masks);
    problem.spec.score = parse_score(score, scores);
    cases.push_back({problem, configs()[cases.size() % 2]});
  };
  for (const char* mask : {"causal", "window(20, 0)", "prefix_lengths", "document", "text(allowed-keys)",
                           "causal && !causal", "text(ends_by_head)", "document && causal", "tree"})
    add(mask, "none");
  for (const char* score : {"softcap(15)", "alibi", "bias(bf16)", "text(temperature), text(distance), alibi"})
    add("causal", score);
  expect_some_right(cases, 6);
}

TEST_F(ForwardTcgen05Test, LengthsOnTheDevice) {
  std::vector<KernelCase> cases;
  for (const bool is_varlen : {true, false, true, false}) {
    const HeadDims dims = cases.size() < 2 ? HeadDims{64, 96} : HeadDims{216, 144};
    AttentionCase problem = case_of(dims, 2, 3, 1, 290, 340);
    problem.used_keys = {340, 0, 165};
    problem.used_queries = {290, 3, 128};
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

// Tiles that are blocks, parts of blocks, and several blocks.
TEST_F(ForwardTcgen05Test, BlockMasks) {
  const std::vector<FunctorText> masks = reference::mask_texts(), scores = reference::score_texts();
  std::vector<KernelCase> cases;
  for (const char* mask : {"block_mask(64, 64)", "block_mask(32, 48) && causal", "block_mask(256, 128)",
                           "!block_mask(128, 16) && document", "document || block_mask(16, 80)",
                           "block_mask(128, 256) && text(allowed-keys)"}) {
    for (const char* score : {"none", "bias(bf16), alibi"}) {
      const HeadDims dims = cases.size() % 3 == 2 ? HeadDims{64, 136} : HeadDims{64, 72};
      AttentionCase problem = case_of(dims, 2, 2, 1, 400, 420);
      problem.spec.mask = parse_mask(mask, masks);
      problem.spec.score = parse_score(score, scores);
      cases.push_back({problem, configs()[cases.size() % 2]});
    }
  }
  expect_some_right(cases, 3);
}

// More work tiles than blocks, of which some have no key. Maxima grow, so that the output is rescaled.
void ForwardTcgen05Test::expect_identical_runs(HeadDims dims, int heads, int seqlen_kv) {
  const CurrentDevice current(0);
  AttentionCase problem = case_of(dims, 4, 1, heads, 100, seqlen_kv);
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
TEST_F(ForwardTcgen05Test, RepeatedRunsAreBitIdentical) {
  expect_identical_runs({64, 64}, sized(40, 38), 400);
}
TEST_F(ForwardTcgen05Test, RepeatedRunsOfPairsAreBitIdentical) {
  expect_identical_runs({64, 160}, sized(40, 19), sized(400, 250));
}

// The numbers are those of all families, and of the host.
TEST_F(ForwardTcgen05Test, Dropout) {
  int index = 0;
  for (const AttentionSpec& spec :
       std::vector<AttentionSpec>{{.head_dim = 64,
       .gqa_ratio = 2,
       .dropout = true,
       .mask = mask::causal(),
       .score = score::softcap(3)},
                                  {.dtype = DType::fp16, .head_dim = 40, .head_dim_v = 136, .dropout = true},
                                  {.head_dim = 32, .dropout = true, .mask = mask::block_mask(32, 48)}}) {
    for (const float rate : {0.3f, 0.0f}) {
      if (!is_in_this_run(index++, 2)) continue;
      AttentionCase problem = problem_of(spec, 2, 1, 270, 290);
      problem.dropout_p = rate;
      EXPECT_EQ(BackwardRun(problem).check_forward(context(), ForwardTcgen05{.stages = 2}), "")
          << to_string(problem);
    }
  }
  AttentionSpec spec{.head_dim = 64, .dropout = true, .mask = mask::causal()};
  spec.sequences_q = spec.sequences_kv = SequenceKind::varlen;
  const VarlenBackwardCase varlen{.spec = spec,
                                  .heads_kv = 2,
                                  .q = {.lengths = {0, 70, 1, 300}},
                                  .kv = {.lengths = {40, 65, 0, 310}},
                                  .seed = reference::test_seed(),
                                  .dropout_p = 0.3f};
  EXPECT_EQ(VarlenBackwardRun(varlen).check_forward(context(), ForwardTcgen05{.stages = 1}), "");
}

// Values lie as they are, with their sum along rows.
TEST_F(ForwardTcgen05Test, Fp8) {
  std::vector<KernelCase> cases;
  for (const HeadDims dims :
       {HeadDims{128, 128}, {64, 64}, {192, 128}, {48, 80}, {16, 32}, {128, 16}, {256, 256}, {208, 80}}) {
    AttentionCase problem = case_of(dims, 2, 2, 1, 270, 300);
    problem.spec.dtype = cases.size() % 2 == 0 ? DType::fp8_e4m3 : DType::fp8_e5m2;
    problem.spec.out_dtype = cases.size() % 3 == 0 ? DType::fp32 : DType::bf16;
    problem.spec.mask = cases.size() % 2 == 0 ? mask::causal() : mask::none();
    if (cases.size() == 1) problem.spec.score = score::softcap(20);
    if (cases.size() == 4) {
      problem.spec.sinks = true;
      problem.used_keys = {300, 0};
    }
    cases.push_back({problem, configs()[cases.size() % 2]});
  }
  expect_some_right(cases, 3);
}

// Scales of tokens are factors of exponents, and of scores where a functor wants to see them; blocks begin with tiles, or
// anywhere.
TEST_F(ForwardTcgen05Test, ScalesOfTokensAndBlocks) {
  std::vector<KernelCase> cases;
  for (const ScaleKind kind : {ScaleKind::token, ScaleKind::block}) {
    for (const char* score : {"none", "softcap(20)"}) {
      for (const SequenceKind keys : {SequenceKind::dense, SequenceKind::varlen, SequenceKind::paged}) {
        const HeadDims dims = cases.size() % 4 == 3 ? HeadDims{64, 160} : HeadDims{64, 48};
        AttentionCase problem = case_of(dims, 2, 2, 1, 270, 300);
        problem.spec.dtype = cases.size() % 2 == 0 ? DType::fp8_e4m3 : DType::fp8_e5m2;
        problem.spec.descale_per = kind;
        problem.spec.score = parse_score(score);
        problem.spec.mask = cases.size() % 3 == 0 ? mask::none() : mask::causal();
        problem.spec.sequences_kv = keys;
        if (keys == SequenceKind::varlen) problem.spec.sequences_q = keys;
        if (keys == SequenceKind::paged) problem.spec.page_size = 64;
        if (keys != SequenceKind::dense) problem.used_keys = {300, 170};
        if (keys == SequenceKind::varlen) problem.used_queries = {270, 131};
        cases.push_back({problem, configs()[cases.size() % 2]});
      }
    }
  }
  expect_some_right(cases, 3);
}

// Pages of which several fill a tile, and pages that a tile does not fill.
TEST_F(ForwardTcgen05Test, Pages) {
  std::vector<KernelCase> cases;
  for (const int page_size : {16, 64, 256, -16, -128}) {
    AttentionCase problem = case_of(page_size > 0 ? HeadDims{64, 64} : HeadDims{224, 200}, 4, 2, 1, 70, 300);
    problem.spec.sequences_kv = SequenceKind::paged;
    problem.spec.page_size = std::abs(page_size);
    problem.used_keys = {300, 170};
    problem.spec.mask = mask::causal();
    cases.push_back({problem, configs()[cases.size() % 2]});
  }
  expect_some_right(cases, 2);
}

TEST_F(ForwardTcgen05Test, SaysWhatItDoesNotServe) {
  const AttentionCase wide = case_of({264, 64}, 1, 1, 1, 10, 10);
  EXPECT_THAT(error_of([&] { attention(wide.spec, configs()[0], context()); }).what(),
              ::testing::HasSubstr("has room for a head_dim of up to 256; spec.head_dim is 264"));
  AttentionSpec fp8 = case_of({64, 64}, 1, 1, 1, 10, 10).spec;
  fp8.kv_dtype = DType::fp8_e4m3;
  EXPECT_THAT(error_of([&] { attention(fp8, configs()[0], context()); }).what(),
              ::testing::HasSubstr("spec.kv_dtype is fp8_e4m3"));
  AttentionSpec channels{.dtype = DType::fp8_e4m3, .head_dim = 64, .v_descale_per = ScaleKind::channel};
  EXPECT_THAT(error_of([&] { attention(channels, configs()[0], context()); }).what(),
              ::testing::HasSubstr("one scale of v for each head, and neither its mean nor shifts of LSE; "
                                   "v_descale_per = channel"));
}

}  // namespace
}  // namespace jit::testing::tcgen05_tests
