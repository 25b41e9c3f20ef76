// Gradients of head dims above 256 by the families for them, against fp64 on the CPU: head dims, masks, scores, heads,
// lengths, dropout, varlen sequences, large rows.
#include <jit/attention.h>

#include <vector>

#include <gtest/gtest.h>

#include "tests/device/gpu_fixture.h"
#include "tests/support/backward_run.h"
#include "tests/support/host_functors.h"
#include "tests/support/varlen_backward_run.h"

namespace jit::testing {
namespace {

class WideBackwardTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    if (native_arch(device_) != Arch{9, 0, 'a'}) GTEST_SKIP() << "these families are for sm_90a";
  }

  // As many buffers as there is room for, or as few as can be.
  template <class Run, class Case>
  static void expect_gradients(const Case& problem, bool has_few_buffers = false) {
    const CurrentDevice scope(0);
    BackwardDqWideWgmma dq{.panels = 6, .parts = 2};
    BackwardDkvWideWgmma dkv{.panels = 4, .parts = 4};
    if (has_few_buffers) {
      dq = {.panels = 3, .parts = 2};
      dkv = {.panels = 3, .parts = 2};
    }
    try {
      Run run(problem);
      run.poison_gradients();
      run.compute(context(), dq, dkv);
      EXPECT_EQ(run.check(), "") << to_string(problem);
    } catch (const Error& error) {
      ADD_FAILURE() << to_string(problem) << ": " << error.what() << "\n" << error.log();
    }
  }
  static void expect_dense(const AttentionCase& problem, bool has_few_buffers = false) {
    expect_gradients<BackwardRun>(problem, has_few_buffers);
  }
  static void expect_varlen(const VarlenBackwardCase& problem) {
    expect_gradients<VarlenBackwardRun>(problem);
  }

  static VarlenBackwardCase varlen_case(AttentionSpec spec) {
    spec.sequences_q = spec.sequences_kv = SequenceKind::varlen;
    return {.spec = spec,
            .heads_kv = 1,
            .q = {.lengths = {70, 0, 5, 33}, .spare = {5, 3, 0, 1}, .around = 9},
            .kv = {.lengths = {130, 40, 0, 65}, .spare = {0, 7, 2, 60}, .around = 1},
            .seed = reference::next_seed()};
  }
};

TEST_F(WideBackwardTest, HeadDims) {
  int index = 0;
  for (const auto& [d, dv] : {std::pair(512, 512),
                              {264, 264},
                              {320, 320},
                              {384, 384},
                              {448, 448},
                              {512, 24},
                              {40, 512},
                              {264, 128},
                              {128, 392}}) {
    if (!is_in_this_run(index++, 4)) continue;
    const DType dtype = index % 2 == 0 ? DType::fp16 : DType::bf16;
    expect_dense(problem_of({.dtype = dtype, .head_dim = d, .head_dim_v = dv}, 1, 1, 75, 83), index % 2 == 0);
  }
}

TEST_F(WideBackwardTest, MasksScoresAndHeads) {
  int index = 0;
  for (const AttentionSpec& spec :
       std::vector<AttentionSpec>{{.head_dim = 512, .gqa_ratio = 2, .mask = mask::causal()},
                                  {.dtype = DType::fp16, .head_dim = 320, .score = score::softcap(3)},
                                  {.head_dim = 384, .gqa_ratio = 3, .mask = mask::sliding_window(70, 10)},
                                  {.head_dim = 264, .mask = mask::document()},
                                  {.head_dim = 328, .mask = mask::tree()},
                                  {.head_dim = 512, .mask = mask::block_mask(64, 32)},
                                  {.dtype = DType::fp16, .head_dim = 272, .score = score::bias(DType::fp16)},
                                  {.head_dim = 448, .gqa_ratio = 2, .score = score::alibi()},
                                  {.head_dim = 512, .mask = !mask::causal() || mask::prefix(7)}}) {
    if (is_in_this_run(index++, 3)) expect_dense(problem_of(spec, 1, 2, 150, 170), index % 2 == 0);
  }
}

TEST_F(WideBackwardTest, Lengths) {
  int index = 0;
  for (const auto& [seqlen_q, seqlen_kv] :
       {std::pair(1, 1), {1, 70}, {70, 1}, {64, 64}, {129, 65}, {200, 40}, {0, 20}, {20, 0}}) {
    if (!is_in_this_run(index++, 3)) continue;
    expect_dense(problem_of({.head_dim = 512, .mask = mask::causal()}, 2, 1, seqlen_q, seqlen_kv));
  }
}

TEST_F(WideBackwardTest, Dropout) {
  AttentionCase problem = problem_of(
      {.head_dim = 320, .gqa_ratio = 2, .dropout = true, .mask = mask::causal(), .score = score::softcap(3)},
      1, 1, 75, 140);
  problem.dropout_p = 0.3f;
  expect_dense(problem);
}

TEST_F(WideBackwardTest, Varlen) {
  int index = 0;
  for (const AttentionSpec& spec :
       std::vector<AttentionSpec>{{.head_dim = 512, .gqa_ratio = 2, .mask = mask::causal()},
                                  {.dtype = DType::fp16, .head_dim = 320, .score = score::softcap(3)},
                                  {.head_dim = 264, .head_dim_v = 64, .mask = mask::sliding_window(20, 5)}}) {
    if (is_in_this_run(index++, 2)) expect_varlen(varlen_case(spec));
  }
}

// Rows whose LSE is large are left out, and added in the end.
TEST_F(WideBackwardTest, LargeRows) {
  constexpr double far_away = 262144;
  AttentionCase problem = problem_of(
      {.head_dim = 264,
       .gqa_ratio = 2,
       .mask = mask::causal(),
       .score = score::text({.name = "far_away", .body = "return q % 3 == 0 ? score + 262144 : score + 0;"})},
      1, 1, 75, 83);
  problem.amplitude = 0.3f;
  problem.text_score = [](const reference::FunctorProblem&, double s, int, int, int q, int) {
    return q % 3 == 0 ? s + far_away : s;
  };
  expect_dense(problem);
}

}  // namespace
}  // namespace jit::testing
