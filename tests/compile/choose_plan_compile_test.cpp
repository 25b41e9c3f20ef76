// How calls come to a plan in each tuning mode, on an emulated device that says it has time to measure.
#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <jit/device.h>
#include <jit/tuning.h>

#include "generator/context/access.h"
#include "generator/context/context_state.h"
#include "generator/plan/backward_plan.h"
#include "generator/plan/kernel_choice.h"
#include "generator/problem/arguments.h"
#include "generator/problem/gradient_arguments.h"
#include "generator/tuning/tune.h"
#include "generator/tuning/tuning_record.h"
#include "tests/compile/compile_testing.h"

namespace jit {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

DeviceInfo as_gpu(DeviceInfo device) {
  device.emulated = false;
  return device;
}

// Another problem, on a device that is taken for a GPU.
class OnAGpu : public TuningProblem {
 public:
  explicit OnAGpu(std::unique_ptr<const TuningProblem> own)
      : TuningProblem(own->spec(), as_gpu(own->device()), own->shape(), own->params()),
        own_(std::move(own)) {}

  bool deterministic() const override { return own_->deterministic(); }
  std::vector<Candidate> candidates(bool exhaustive) const override { return own_->candidates(exhaustive); }
  std::string rejection(const PlanConfigs& configs) const override { return own_->rejection(configs); }
  bool can_run(const PlanConfigs& configs) const override { return own_->can_run(configs); }
  std::vector<std::string> competing_entries() const override { return own_->competing_entries(); }
  std::vector<std::shared_ptr<const KernelImage>> build(KernelStore& store,
                                                        const PlanConfigs& configs) const override {
    return own_->build(store, configs);
  }
  Plan plan(KernelStore& store, const PlanConfigs& configs, std::string why) const override {
    return own_->plan(store, configs, std::move(why));
  }
  std::vector<Program> check_programs() const override { return {}; }
  std::unique_ptr<TuningBuffers> buffers(KernelStore& store, CUstream stream) const override {
    if (!has_memory) throw Error(ErrorCode::driver_error, "tune", "memory", "no memory is left");
    return own_->buffers(store, stream);
  }

  bool has_memory = true;

 private:
  std::unique_ptr<const TuningProblem> own_;
};

class ChoosePlanTest : public ::testing::TestWithParam<Pass> {
 protected:
  void SetUp() override { use_device("emulated:sm_80"); }

  static OnAGpu problem(std::int64_t seqlen_kv = 32) {
    const AttentionSpec spec{.head_dim = 16};
    const AttentionShape shape{.seqlen_q = 16, .seqlen_kv = seqlen_kv};
    AttentionParams params;
    if (GetParam() == Pass::forward) {
      fill_params(spec, {}, sized_arguments(spec, shape), params);
      return OnAGpu(std::make_unique<ForwardProblem>(forward_problem(spec, device_info(0), params)));
    }
    GradientParams gradients;
    fill_params(spec, {}, sized_backward_arguments(spec, shape), params, gradients);
    return OnAGpu(std::make_unique<BackwardProblem>(
        backward_problem(spec, device_info(0), params, gradients, /*deterministic=*/false)));
  }

  // Why a plan was chosen; the cost models' is known by its config alone.
  std::string chosen(const TuningProblem& problem, TuningMode mode) {
    Settings settings = testing::private_settings(folder_.path());
    settings.tuning = mode;
    settings.tuning_seconds = 1e-9;  // enough for the default
    const Context context(settings, events_.observer());
    return choose_plan(*Access::state(context), problem,
                       [&](std::string why) {
                         return Plan{
                             .spec = problem.spec(), .config = {}, .steps = {}, .why = std::move(why)};
                       })
        .why;
  }

  const testing::FreshFolder folder_;
  testing::Events events_;
};

TEST_P(ChoosePlanTest, TunesOnceAndRemembers) {
  EXPECT_EQ(chosen(problem(), TuningMode::off), "cost model, these sizes");
  EXPECT_EQ(chosen(problem(), TuningMode::recorded), "cost model, these sizes");
  EXPECT_THAT(events_.messages(Event::Kind::tune), IsEmpty());
  const std::string first = chosen(problem(), TuningMode::first_run);
  EXPECT_THAT(first, StartsWith("tuned: {"));
  EXPECT_THAT(first, HasSubstr(to_string(problem().candidates(false).front().configs)));
  const std::size_t told = events_.messages(Event::Kind::tune).size();
  EXPECT_GT(told, 0u);
  const std::string record = first.substr(first.find('{'));
  EXPECT_EQ(chosen(problem(), TuningMode::first_run), "recorded: " + record);
  EXPECT_EQ(chosen(problem(30), TuningMode::recorded), "recorded: " + record) << "of the same powers of two";
  EXPECT_EQ(chosen(problem(33), TuningMode::recorded), "cost model, these sizes");
  EXPECT_EQ(chosen(problem(), TuningMode::off), "cost model, these sizes");
  EXPECT_EQ(events_.messages(Event::Kind::tune).size(), told);
  EXPECT_THAT(events_.messages(Event::Kind::warning), IsEmpty());
}

// As several processes do, each with a context of its own over one folder: all end with a plan, of one record.
TEST_P(ChoosePlanTest, ManyMayTuneAtOnce) {
  std::array<std::string, 3> found;
  testing::in_parallel(found.size(),
                       [&](std::size_t i) { found[i] = chosen(problem(), TuningMode::first_run); });
  for (const std::string& why : found)
    EXPECT_THAT(why, AnyOf(StartsWith("tuned: {"), StartsWith("recorded: {")));
  EXPECT_THAT(chosen(problem(), TuningMode::recorded), StartsWith("recorded: {"));
  EXPECT_THAT(events_.messages(Event::Kind::warning), IsEmpty());
}

TEST_P(ChoosePlanTest, WhatFailsToTuneIsToldAndComputed) {
  OnAGpu full = problem();
  full.has_memory = false;
  EXPECT_EQ(chosen(full, TuningMode::first_run), "cost model, these sizes");
  EXPECT_THAT(events_.messages(Event::Kind::warning),
              ElementsAre(HasSubstr("tuning failed, the cost model decides: tune: no memory is left")));
}

INSTANTIATE_TEST_SUITE_P(Passes, ChoosePlanTest, ::testing::Values(Pass::forward, Pass::backward),
                         [](const auto& test) { return std::string(to_string(test.param)); });

}  // namespace
}  // namespace jit
