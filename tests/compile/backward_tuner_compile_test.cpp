// The tuner of backward on an emulated device, whose clock is the host's: which kernels are chosen means nothing, how they
// are does.
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <jit/device.h>
#include <jit/tuning.h>

#include "generator/context/access.h"
#include "generator/context/context_state.h"
#include "generator/problem/gradient_arguments.h"
#include "generator/tuning/tuner.h"
#include "generator/tuning/tuning_record.h"
#include "tests/compile/compile_testing.h"
#include "tests/support/seed.h"

namespace jit {
namespace {

using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class BackwardTunerTest : public ::testing::Test {
 protected:
  void SetUp() override { use_device("emulated:sm_80"); }

  static BackwardProblem problem_of(const AttentionSpec& spec, const AttentionShape& shape,
                                    bool deterministic = false, bool has_lengths = false) {
    BackwardArguments arguments = sized_backward_arguments(spec, shape);
    if (has_lengths)
      arguments.seqused_k =
          TensorView::dense(reinterpret_cast<void*>(std::uintptr_t{0x80} << 56), DType::int32, {shape.batch});
    AttentionParams params;
    GradientParams gradients;
    EXPECT_TRUE(fill_params(spec, functor_tensor_uses(spec), arguments, params, gradients));
    return backward_problem(spec, device_info(0), params, gradients, deterministic);
  }

  TuningResult expect_tuned(const BackwardProblem& problem, double seconds = 1e6) {
    SCOPED_TRACE(to_string(problem.spec()));
    Settings settings = testing::private_settings();
    settings.tuning_seconds = seconds;
    const Context context(settings, events_.observer());
    TuningResult result = tune(*Access::state(context), problem, /*exhaustive=*/false);
    EXPECT_GT(result.median_us, 0);
    EXPECT_GE(result.candidates, 1);
    EXPECT_TRUE(problem.can_run(result.configs)) << to_string(result.configs);
    EXPECT_THAT(result.log, SizeIs(problem.candidates(false).size()));
    EXPECT_THAT(result.log, Each(AnyOf(HasSubstr(" us ("), HasSubstr("too far behind to win"),
                                       HasSubstr("no time left for it"))));
    return result;
  }

  testing::Events events_;
};

TEST_F(BackwardTunerTest, MeasuresPairs) {
  const TuningResult result = expect_tuned(problem_of({.head_dim = 16}, {.seqlen_q = 16, .seqlen_kv = 24}));
  EXPECT_GT(result.candidates, 1);
  EXPECT_THAT(result.configs, SizeIs(2));
  EXPECT_FALSE(result.out_of_time);
}

TEST_F(BackwardTunerTest, WithoutTimeTheDefaultIsLeft) {
  const BackwardProblem problem =
      problem_of({.head_dim = 16, .mask = mask::causal()}, {.seqlen_q = 40, .seqlen_kv = 70}, true);
  const TuningResult result = expect_tuned(problem, 1e-9);
  EXPECT_TRUE(result.out_of_time);
  EXPECT_EQ(result.candidates, 1);
  EXPECT_EQ(result.configs, problem.candidates(false).front().configs);
  EXPECT_THAT(std::vector<std::string>(result.log.begin() + 1, result.log.end()),
              Each(HasSubstr("no time left for it")));
}

TEST_F(BackwardTunerTest, OnePassAloneWritesGradientsInFp32) {
  use_device("emulated:sm_90a");
  AttentionSpec spec{.head_dim = 64};
  spec.out_dtype = DType::fp32;
  const TuningResult result = expect_tuned(problem_of(spec, {.seqlen_q = 40, .seqlen_kv = 70}), 1e-9);
  EXPECT_THAT(result.configs, SizeIs(1));
}

// Varlen sequences, lengths of dense ones, dropout, scores, sinks, grouped heads: one in a run.
TEST_F(BackwardTunerTest, ChecksWhatTheForwardHas) {
  AttentionSpec varlen{.head_dim = 16, .gqa_ratio = 2, .mask = mask::causal()};
  varlen.sequences_q = varlen.sequences_kv = SequenceKind::varlen;
  AttentionSpec varlen_keys{.head_dim = 16, .sinks = true};
  varlen_keys.sequences_kv = SequenceKind::varlen;
  const AttentionShape shape{.batch = 2, .heads_q = 4, .seqlen_q = 20, .seqlen_kv = 35};
  AttentionSpec varlen_dropout = varlen;
  varlen_dropout.dropout = true;
  switch (reference::test_seed() % 7) {
    case 0:
      expect_tuned(problem_of(varlen, shape), 5);
      break;
    case 1:
      expect_tuned(problem_of(varlen_keys, shape), 5);
      break;
    case 2:
      expect_tuned(problem_of({.head_dim = 16, .mask = mask::causal()}, shape, false, /*has_lengths=*/true),
                   5);
      break;
    case 3:
      expect_tuned(problem_of({.dtype = DType::fp16, .head_dim = 16, .dropout = true}, shape), 5);
      break;
    case 4:
      expect_tuned(problem_of({.head_dim = 16, .dropout = true}, shape, false, /*has_lengths=*/true), 5);
      break;
    case 5:
      expect_tuned(problem_of(varlen_dropout, shape), 5);
      break;
    default:
      expect_tuned(problem_of({.head_dim = 24,
                               .head_dim_v = 16,
                               .gqa_ratio = 4,
                               .mask = mask::sliding_window(9, 3),
                               .score = score::softcap(0.5f)},
                              shape),
                   5);
  }
}

TEST_F(BackwardTunerTest, BadRecordsAreToldAndNotUsed) {
  const testing::FreshFolder folder;
  const Context context(testing::private_settings(folder.path()), events_.observer());
  ContextState& state = *Access::state(context);
  const BackwardProblem problem = problem_of({.head_dim = 64}, {.seqlen_q = 64, .seqlen_kv = 64});
  const Key environment = tuning_environment(state, problem, false);
  const Key operation = tuning_operation(problem.spec(), size_class(problem.shape()));
  EXPECT_FALSE(find_record(state, problem));

  const PlanConfigs good = problem.candidates(false).back().configs;
  state.tuning.store(environment, operation, write_record({.configs = good}, problem));
  ASSERT_TRUE(find_record(state, problem));
  EXPECT_EQ(find_record(state, problem)->configs, good);
  EXPECT_FALSE(find_record(state, problem_of({.head_dim = 64}, {.seqlen_q = 64, .seqlen_kv = 64}, true)))
      << "deterministic calls have another";
  EXPECT_THAT(events_.messages(Event::Kind::warning), IsEmpty());

  state.tuning.store(environment, operation, write_record({.configs = {BackwardWgmma{}}}, problem));
  EXPECT_FALSE(find_record(state, problem));
  EXPECT_THAT(events_.messages(Event::Kind::warning),
              ::testing::ElementsAre(HasSubstr("names nothing that these calls can run")));

  const std::string file =
      folder.path() + "/tuning/v1/" + environment.digest().hex() + "/" + operation.digest().hex() + ".txt";
  std::fstream(file, std::ios::in | std::ios::out | std::ios::ate) << "x";
  EXPECT_FALSE(find_record(state, problem));
  EXPECT_THAT(events_.messages(Event::Kind::warning).back(), HasSubstr("is damaged and not used"));
}

}  // namespace
}  // namespace jit
