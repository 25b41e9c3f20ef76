// Tuning of gradients on a device: what is checked with, what calls take of it, what is refused.
#include <jit/tuning.h>

#include <algorithm>
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/context/access.h"
#include "generator/context/context_state.h"
#include "generator/problem/gradient_arguments.h"
#include "generator/tuning/backward_buffers.h"
#include "generator/tuning/tuning_problem.h"
#include "tests/device/gpu_fixture.h"
#include "tests/support/backward_run.h"
#include "tests/support/error_of.h"
#include "tests/support/fresh_folder.h"
#include "tests/support/seed.h"

namespace jit::testing {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class BackwardTuningTest : public GpuTest {
 protected:
  BackwardProblem problem_of(const AttentionSpec& spec, bool deterministic) const {
    AttentionParams params;
    GradientParams gradients;
    const BackwardArguments arguments =
        sized_backward_arguments(spec, {.batch = 2, .heads_q = 2, .seqlen_q = 70, .seqlen_kv = 90});
    EXPECT_TRUE(fill_params(spec, functor_tensor_uses(spec), arguments, params, gradients));
    return backward_problem(spec, device_, params, gradients, deterministic);
  }
  static AttentionCase case_of(int seqlen) {
    return jit::testing::problem_of({.head_dim = 64, .mask = mask::causal()}, 2, 2, seqlen, seqlen);
  }
};

TEST_F(BackwardTuningTest, TheReferenceAgreesWithTheKernels) {
  const CurrentDevice current(0);
  const TestStream stream;
  ContextState& state = *Access::state(context());
  const AttentionSpec spec{.head_dim = 64, .mask = mask::causal(), .score = score::softcap(0.5f)};
  AttentionSpec other = spec;
  other.score = Score();
  const BackwardProblem problem = problem_of(spec, false);
  const std::unique_ptr<const TuningBuffers> buffers = problem.buffers(state, stream.get());
  const PlanConfigs default_configs = problem.candidates(false).front().configs;
  const PlanConfigs fixed = problem_of(spec, true).candidates(false).front().configs;
  const PlanConfigs two_passes = {BackwardDqMmaSync{}, BackwardDkvMmaSync{}};
  for (const PlanConfigs& configs : {default_configs, fixed, two_passes}) {
    const Plan plan = problem.plan(state, configs, "test");
    EXPECT_EQ(buffers->check(plan, stream.get()), "") << to_string(configs);
  }
  EXPECT_THAT(buffers->check(problem_of(other, false).plan(state, default_configs, "test"), stream.get()),
              StartsWith("wrong: relative error"));
  // Each gradient counts: one that nobody writes is wrong.
  Plan incomplete = problem.plan(state, two_passes, "test");
  incomplete.steps.pop_back();
  EXPECT_THAT(buffers->check(incomplete, stream.get()), AllOf(StartsWith("wrong"), EndsWith("of dk")));
}

// For rows of huge scores the reference finds what LSE does not hold.
TEST_F(BackwardTuningTest, TheReferenceAgreesOnLargeRows) {
  const CurrentDevice current(0);
  const TestStream stream;
  ContextState& state = *Access::state(context());
  const AttentionSpec spec{
      .head_dim = 64,
      .mask = mask::causal(),
      .score = score::text({.name = "far_away", .body = "return q % 3 == 0 ? score - 1e9f : score;"})};
  const BackwardProblem problem = problem_of(spec, false);
  const std::unique_ptr<const TuningBuffers> buffers = problem.buffers(state, stream.get());
  const PlanConfigs default_configs = problem.candidates(false).front().configs;
  const PlanConfigs two_passes = {BackwardDqMmaSync{}, BackwardDkvMmaSync{}};
  for (const PlanConfigs& configs : {default_configs, two_passes}) {
    const Plan plan = problem.plan(state, configs, "test");
    EXPECT_EQ(buffers->check(plan, stream.get()), "") << to_string(configs);
  }
}

// Tuning writes to its own memory: the caller's gradients are as they were.
TEST_F(BackwardTuningTest, PreparingWritesNothing) {
  Settings settings;
  settings.disk_cache = false;
  settings.tuning_seconds = 2;
  const Context fresh(settings);
  BackwardRun run(case_of(sized(600, 40)));
  const std::vector<std::uint8_t> before = run.gradients();
  const Attention attention = attention_when_called(case_of(0).spec, fresh);
  attention.prepare_backward(run.arguments());
  EXPECT_EQ(run.gradients(), before);
  attention.backward(run.arguments());
  EXPECT_EQ(run.check(), "");
}

TEST_F(BackwardTuningTest, TunesOnceAndRemembers) {
  if (device_.emulated) GTEST_SKIP() << "an emulated device has no time to measure";
  const FreshFolder folder;
  Settings settings;
  settings.cache_dir = folder.path();
  settings.tuning_seconds = 5;
  for (const bool deterministic : {false, true}) {
    std::vector<std::string> tuned;
    for (const char* const why : {"tuned", "recorded"}) {
      std::mutex mutex;
      int tune_events = 0;
      const Context own(settings, [&](const Event& event) {
        const std::lock_guard lock(mutex);
        tune_events += event.kind == Event::Kind::tune;
      });
      BackwardRun run(case_of(1000));
      const Attention attention = attention_when_called(case_of(0).spec, own);
      attention.backward(run.arguments(deterministic));
      EXPECT_EQ(run.check(), "");
      EXPECT_EQ(tune_events > 0, tuned.empty());
      std::vector<std::string> configs;
      for (const CompiledKernel& kernel : attention.backward_kernels(run.arguments(deterministic))) {
        EXPECT_THAT(kernel.why(), StartsWith(why));
        configs.push_back(to_string(kernel.config()));
      }
      if (tuned.empty()) {
        tuned = configs;
      } else {
        EXPECT_EQ(configs, tuned);
      }
    }
  }
}

TEST_F(BackwardTuningTest, NothingIsTunedUnderCapture) {
  const CurrentDevice current(0);
  Settings settings;
  settings.disk_cache = false;
  settings.tuning = TuningMode::first_run;
  const Context fresh(settings, [](const Event& event) { EXPECT_NE(event.kind, Event::Kind::tune); });
  BackwardRun run(case_of(64));
  const Attention attention = attention_when_called(case_of(0).spec, fresh);
  const TestStream stream;
  check(driver().cuStreamBeginCapture(stream.get(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
        "cuStreamBeginCapture");
  const Error error = error_of([&] { attention.backward(run.arguments(), stream.get()); });
  CUgraph graph = nullptr;
  check(driver().cuStreamEndCapture(stream.get(), &graph), "cuStreamEndCapture");
  driver().cuGraphDestroy(graph);
  EXPECT_EQ(error.code(), ErrorCode::not_prepared);
  EXPECT_THAT(error.message(), HasSubstr("prepare_backward()"));
}

// Whatever the settings want measured, an emulated device runs the cost models' configs and says why.
TEST_F(BackwardTuningTest, AnEmulatedDeviceTunesNothing) {
  if (!device_.emulated) GTEST_SKIP() << "this is a GPU";
  const BackwardRun run(case_of(20));
  for (const TuningMode mode : {TuningMode::off, TuningMode::first_run}) {
    Settings settings;
    settings.disk_cache = false;
    settings.tuning = mode;
    const Context fresh(settings, [](const Event& event) { EXPECT_NE(event.kind, Event::Kind::tune); });
    const Attention attention = attention_when_called(case_of(0).spec, fresh);
    for (const CompiledKernel& kernel : attention.backward_kernels(run.arguments()))
      EXPECT_EQ(kernel.why(), mode == TuningMode::off
                                  ? "cost model, these sizes"
                                  : "cost model; an emulated device has no time to measure");
  }
}

// The kernels of dq, dk and dv are chosen once for calls of a size, whichever other gradients those want.
TEST_F(BackwardTuningTest, OtherGradientsChooseNothingAnew) {
  Settings settings;
  settings.disk_cache = false;
  settings.tuning_seconds = 2;
  std::mutex mutex;
  std::vector<std::string> compiled, tuned;
  const Context fresh(settings, [&](const Event& event) {
    const std::lock_guard lock(mutex);
    if (event.kind == Event::Kind::compile) compiled.push_back(event.message);
    if (event.kind == Event::Kind::tune) tuned.push_back(event.message);
  });
  AttentionCase problem = case_of(30);
  problem.spec.score = score::alibi();
  const Attention attention = attention_when_called(problem.spec, fresh);
  const BackwardRun plain(problem);
  const std::size_t kernels = attention.backward_kernels(plain.arguments()).size();
  const std::size_t measured = tuned.size();
  compiled.clear();
  problem.d_tensors = {"alibi_slopes"};
  const BackwardRun more(problem);
  EXPECT_EQ(attention.backward_kernels(more.arguments()).size(), kernels + 2);
  EXPECT_EQ(compiled.size(), 2u);
  EXPECT_EQ(tuned.size(), measured);
}

TEST_F(BackwardTuningTest, WhatCannotBeMeasuredIsRefused) {
  const AttentionShape shape{.heads_q = 8, .seqlen_q = 512, .seqlen_kv = 512};
  Settings settings;
  settings.disk_cache = false;
  const Context in_memory(settings);
  const AttentionSpec spec{.head_dim = 64};
  if (device_.emulated) {
    const Error error = error_of([&] { tune(spec, sized_backward_arguments(spec, shape), in_memory); });
    EXPECT_EQ(error.code(), ErrorCode::unsupported_device);
    EXPECT_THAT(error.message(), HasSubstr("has no time to measure"));
  } else {
    const TuningResult result = tune(spec, sized_backward_arguments(spec, shape), in_memory);
    EXPECT_GE(result.candidates, 2);
    EXPECT_THAT(result.record, HasSubstr(to_string(result.configs)));
  }
  AttentionCase empty = case_of(16);
  empty.seqlen_kv = 0;
  const BackwardRun run(empty);
  EXPECT_THAT(error_of([&] { tune(empty.spec, run.arguments(), in_memory); }).message(),
              HasSubstr("nothing to compute"));
  const AttentionSpec latents{.head_dim = 64, .values_in_keys = true};
  EXPECT_EQ(error_of([&] { sized_backward_arguments(latents, shape); }).code(), ErrorCode::invalid_spec);
}

}  // namespace
}  // namespace jit::testing
