// Gradients with tcgen05, on sm_100a and sm_103a, against fp64 on the CPU.
#include <jit/attention.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/device/gpu_fixture.h"
#include "tests/support/backward_run.h"
#include "tests/support/error_of.h"
#include "tests/support/host_functors.h"
#include "tests/support/seed.h"
#include "tests/support/varlen_backward_run.h"

namespace jit::testing::backward_tcgen05_tests {
namespace {

AttentionCase case_of(int head_dim, int head_dim_v, int ratio, int batch, int heads_kv, int seqlen_q,
                      int seqlen_kv) {
  AttentionCase problem = problem_of({.head_dim = head_dim, .head_dim_v = head_dim_v, .gqa_ratio = ratio},
                                     batch, heads_kv, seqlen_q, seqlen_kv);
  problem.spec.dtype = problem.seed % 2 == 0 ? DType::bf16 : DType::fp16;
  problem.with_d_lse = problem.seed % 3 == 0;
  return problem;
}

class BackwardTcgen05Test : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped() && native_arch(device_).major != 10)
      GTEST_SKIP() << "backward_tcgen05 does not run on " << to_string(native_arch(device_));
  }

  static void expect_right(const AttentionCase& problem, const BackwardTcgen05& config = {}) {
    const CurrentDevice current(0);
    try {
      BackwardRun run(problem);
      run.poison_gradients();
      run.compute(context(), config);
      EXPECT_EQ(run.check(), "") << to_string(problem) << ", " << to_string(KernelConfig(config));
    } catch (const Error& error) {
      ADD_FAILURE() << to_string(problem) << ": " << error.what() << "\n" << error.log();
    }
  }
};

TEST_F(BackwardTcgen05Test, Plain) { expect_right(case_of(128, 128, 1, 1, 1, 128, 128)); }

TEST_F(BackwardTcgen05Test, HeadDims) {
  int index = 0;
  for (const auto& [d, dv] : {std::pair(128, 128),
                              {64, 64},
                              {96, 96},
                              {8, 8},
                              {40, 72},
                              {120, 16},
                              {16, 128},
                              {72, 104},
                              {128, 64}}) {
    if (!is_in_this_run(index++, 3)) continue;
    AttentionCase problem = case_of(d, dv, 1, 1, 1, 150, 140);
    if (index % 2 == 0) problem.spec.mask = mask::causal();
    expect_right(problem, {.stages = d + dv > 128 ? 2 : 4, .deterministic = index % 2 == 0});
  }
}

TEST_F(BackwardTcgen05Test, Lengths) {
  int index = 0;
  for (const auto& [seqlen_q, seqlen_kv] : {std::pair(1, 1),
                                            {1, 290},
                                            {290, 1},
                                            {128, 128},
                                            {129, 127},
                                            {300, 260},
                                            {0, 20},
                                            {20, 0},
                                            {260, 140}}) {
    if (!is_in_this_run(index++, 3)) continue;
    AttentionCase problem = case_of(32, 48, 1, 2, 1, seqlen_q, seqlen_kv);
    problem.spec.mask = index % 2 == 0 ? mask::none() : mask::causal();
    problem.layout = index % 3 == 0 ? Layout::padded : Layout::bshd;
    expect_right(problem, {.deterministic = index % 2 == 1});
  }
}

TEST_F(BackwardTcgen05Test, QueryHeadsShareKvHeads) {
  AttentionCase problem = case_of(64, 64, 4, 1, 2, 140, 150);
  problem.spec.mask = mask::causal();
  expect_right(problem);
}

TEST_F(BackwardTcgen05Test, MasksAndScores) {
  const std::vector<FunctorText> masks = reference::mask_texts(), scores = reference::score_texts();
  int index = 0;
  const auto expect = [&](const char* mask, const char* score) {
    if (!is_in_this_run(index++, 4)) return;
    AttentionCase problem = case_of(32, 32, 2, 1, 1, 150, 140);
    problem.spec.mask = parse_mask(mask, masks);
    problem.spec.score = parse_score(score, scores);
    expect_right(problem);
  };
  for (const char* mask : {"sliding_window(20, 0)", "prefix_lengths", "document && causal", "tree",
                           "block_mask(16, 32)", "text(allowed-keys)", "!causal", "causal && !causal"})
    expect(mask, "none");
  for (const char* score : {"softcap(15)", "alibi", "bias(bf16)", "text(temperature), text(distance), alibi"})
    expect("causal", score);
}

// More tiles of keys than blocks, each with several tiles of queries.
TEST_F(BackwardTcgen05Test, BlocksTakeTilesOneAfterAnother) {
  for (const bool deterministic : {false, true}) {
    AttentionCase problem = case_of(16, 16, 1, 1, sized(200, 70), 200, 300);
    expect_right(problem, {.deterministic = deterministic});
  }
}

TEST_F(BackwardTcgen05Test, VarlenSequences) {
  const CurrentDevice current(0);
  for (const bool deterministic : {false, true}) {
    VarlenBackwardCase problem{.spec = {.head_dim = 64,
                                        .head_dim_v = 32,
                                        .gqa_ratio = 2,
                                        .sequences_q = SequenceKind::varlen,
                                        .sequences_kv = SequenceKind::varlen,
                                        .mask = mask::causal()},
                               .heads_kv = 1,
                               .q = {.lengths = {150, 0, 3, 129}},
                               .kv = {.lengths = {140, 5, 0, 200}},
                               .seed = reference::next_seed()};
    VarlenBackwardRun run(problem);
    run.poison_gradients();
    run.compute(context(), BackwardTcgen05{.deterministic = deterministic});
    EXPECT_EQ(run.check(), "") << to_string(problem) << ", deterministic " << deterministic;
  }
}

TEST_F(BackwardTcgen05Test, RepeatedRunsAreBitIdentical) {
  const CurrentDevice current(0);
  AttentionCase problem = case_of(32, 32, 2, 1, 1, 300, 520);
  problem.spec.mask = mask::causal();
  BackwardRun run(problem);
  std::vector<std::uint8_t> first;
  for (int launch = 0; launch < sized(50, 2); ++launch) {
    run.poison_gradients();
    run.compute(context(), BackwardTcgen05{.deterministic = true});
    if (launch == 0) first = run.gradients();
    ASSERT_EQ(run.gradients(), first) << "launch " << launch;
  }
  EXPECT_EQ(run.check(), "");
}

// Sinks and tensors that scores read have gradients by steps behind.
TEST_F(BackwardTcgen05Test, StepsBehind) {
  AttentionCase problem = case_of(16, 16, 1, 1, 1, 30, 20);
  problem.spec.score = score::bias(DType::fp32);
  problem.d_tensors = {"bias"};
  problem.spec.sinks = true;
  BackwardRun run(problem);
  run.poison_gradients();
  attention_when_called(problem.spec, context()).backward(run.arguments(false));
  EXPECT_EQ(run.check(), "") << to_string(problem);
}

TEST_F(BackwardTcgen05Test, SaysWhatItDoesNotServe) {
  const CurrentDevice current(0);
  const auto message = [&](const AttentionCase& problem) {
    BackwardRun run(problem);
    return error_of([&] { run.compute(context(), BackwardTcgen05{}); }).message();
  };
  EXPECT_THAT(message(case_of(136, 64, 1, 1, 1, 10, 10)),
              ::testing::HasSubstr("has room for a head_dim of up to 128; spec.head_dim is 136"));
  AttentionCase drops = case_of(64, 64, 1, 1, 1, 10, 10);
  drops.spec.dropout = true;
  EXPECT_THAT(message(drops), ::testing::HasSubstr("backward_tcgen05 has no dropout"));
}

}  // namespace
}  // namespace jit::testing::backward_tcgen05_tests
