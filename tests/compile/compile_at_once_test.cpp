// Kernels of one call compile at once.
#include <chrono>
#include <condition_variable>
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <jit/device.h>

#include "generator/attention_state.h"
#include "generator/context/access.h"
#include "generator/context/context_state.h"
#include "generator/plan/backward_plan.h"
#include "tests/compile/compile_testing.h"

namespace jit {
namespace {

// Holds every compile that has ended until `count` have: one after the other, the first would wait in vain.
class Meeting {
 public:
  explicit Meeting(int count) : count_(count) {}

  Observer observer() {
    return [this](const Event& event) {
      if (event.kind != Event::Kind::compile) return;
      std::unique_lock lock(mutex_);
      names_.push_back(event.message);
      changed_.notify_all();
      const auto all_are_here = [&] { return std::ssize(names_) >= count_; };
      have_met_ &= changed_.wait_for(lock, std::chrono::seconds(60), all_are_here);
    };
  }
  void expect_met() const {
    const std::lock_guard lock(mutex_);
    EXPECT_TRUE(have_met_);
    EXPECT_THAT(names_, ::testing::SizeIs(count_));
  }

 private:
  const int count_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> names_;
  bool have_met_ = true;
};

BackwardCall call_of(bool deterministic = false) {
  return {.shape = {.pass = Pass::backward, .heads_q = 2, .seqlen_q = 64, .seqlen_kv = 64},
          .deterministic = deterministic};
}

TEST(CompileAtOnce, BothPassesOfGradients) {
  use_device("emulated:sm_80");
  Meeting meeting(2);
  const Context context(testing::private_settings(), meeting.observer());
  const AttentionSpec spec{.head_dim = 16};
  const Plan plan =
      untuned_backward_plan(*Access::state(context), spec, call_of().shape, false, 0, "cost model");
  EXPECT_EQ(plan.steps.size(), 2u);
  meeting.expect_met();
}

TEST(CompileAtOnce, OnePassAndTheKernelsAroundIt) {
  use_device("emulated:sm_90a");
  Meeting meeting(3);
  const Context context(testing::private_settings(), meeting.observer());
  const AttentionSpec spec{.head_dim = 64};
  const Plan plan =
      untuned_backward_plan(*Access::state(context), spec, call_of().shape, false, 0, "cost model");
  EXPECT_EQ(plan.steps.size(), 3u);
  meeting.expect_met();
}

TEST(CompileAtOnce, TheKernelsOfACandidate) {
  Meeting meeting(3);
  const Context context(testing::private_settings(), meeting.observer());
  const auto images = build_backward_kernels(*Access::state(context), {.head_dim = 64},
                                             {BackwardWgmma{.stages = 4}}, {testing::sm_90a, CodeForm::ptx});
  EXPECT_EQ(images.size(), 3u);
  meeting.expect_met();
}

}  // namespace
}  // namespace jit
