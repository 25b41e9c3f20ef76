// Host threads that call at once on one stream, captured or not: each gets what it gets alone. All kinds of plans are in
// tests/python/test_threads.py.
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/backward_run.h"
#include "tests/support/captured_graph.h"
#include "tests/support/error_of.h"
#include "tests/support/seed.h"

namespace jit::testing {
namespace {

class ThreadsTest : public GpuTest {
 protected:
  /// Gradients that several kernels compute over one workspace: of tensors of other sizes for each thread.
  struct Call {
    explicit Call(int thread)
        : problem{.spec = {.head_dim = 64, .mask = mask::causal()},
                  .batch = 1,
                  .heads_kv = 2,
                  .seqlen_q = 40 + 24 * thread,
                  .seqlen_kv = 60 + 24 * thread,
                  .seed = reference::test_seed() + static_cast<std::uint64_t>(thread)},
          run(problem) {}

    void operator()(const TestStream& stream) const {
      attention(problem.spec, {}, context()).backward(run.arguments(/*deterministic=*/true), stream.get());
    }

    AttentionCase problem;
    BackwardRun run;
    std::vector<std::uint8_t> alone = {};
  };

  /// One for each thread, with what it gives alone.
  std::vector<std::unique_ptr<Call>> calls() const {
    std::vector<std::unique_ptr<Call>> all;
    const TestStream stream;
    for (int thread = 0; thread < 4; ++thread) {
      Call& call = *all.emplace_back(std::make_unique<Call>(thread));
      attention(call.problem.spec, {}, context()).prepare_backward(call.run.arguments(true));
      call(stream);
      stream.synchronize();
      EXPECT_EQ(call.run.check(), "");
      call.alone = call.run.gradients();
      call.run.poison_gradients();
    }
    return all;
  }

  /// Runs `work` for every call in a thread of its own.
  static void at_once(const std::vector<std::unique_ptr<Call>>& calls,
                      const std::function<void(Call&)>& work) {
    std::vector<std::jthread> threads;
    for (const std::unique_ptr<Call>& call : calls) {
      threads.emplace_back([&] {
        try {
          const CurrentDevice here(0);
          work(*call);
        } catch (const Error& error) {
          ADD_FAILURE() << error.what();
        }
      });
    }
  }
};

TEST_F(ThreadsTest, GradientsOnOneStream) {
  const CurrentDevice current(0);
  const auto all = calls();
  const TestStream stream;
  at_once(all, [&](const Call& call) {
    for (int round = 0; round < sized(200, 5); ++round) call(stream);
  });
  stream.synchronize();
  for (const auto& call : all) EXPECT_EQ(call->run.gradients(), call->alone);
}

// The launches of one call are not torn apart, in whatever order the threads put theirs into the graph.
TEST_F(ThreadsTest, GradientsCapturedOnOneStream) {
  const CurrentDevice current(0);
  const auto all = calls();
  const TestStream stream;
  const auto capture = [&] {
    at_once(all, [&](const Call& call) {
      for (int round = 0; round < 3; ++round) call(stream);
    });
  };
  const CapturedGraph graph(stream, capture, CU_STREAM_CAPTURE_MODE_RELAXED);
  for (int replay = 0; replay < sized(20, 1); ++replay) {
    for (const auto& call : all) call->run.poison_gradients();
    graph.run(stream);
    for (const auto& call : all) ASSERT_EQ(call->run.gradients(), call->alone) << "replay " << replay;
  }
}

}  // namespace
}  // namespace jit::testing
