// Counters and workspaces where launches are captured, run at once, or are given up on the way.
#include "tests/support/captured_graph.h"

#include <array>
#include <functional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <jit/emulation.h>
#include <jit/stream.h>

#include "tests/device/gpu_fixture.h"
#include "tests/support/backward_run.h"
#include "tests/support/error_of.h"
#include "tests/support/seed.h"
#include "tests/support/stream_memory_words.h"

namespace jit::testing {
namespace {

class GraphTest : public GpuTest {
 protected:
  /// A problem, and a config whose kernel counts on it.
  struct Counting {
    AttentionCase problem;
    KernelConfig config;
  };

  /// One for each family that counts and runs here: keys shared by blocks, with a workspace, and tiles of queries that
  /// persistent blocks take, more of them than there are blocks. Of several an emulated device runs half.
  std::vector<Counting> counting() const {
    const AttentionCase shared_keys{
        .spec = {.gqa_ratio = 4}, .batch = 2, .heads_kv = 2, .seqlen_q = 2, .seqlen_kv = sized(5000, 2200)};
    const AttentionCase merged_by_all{
        .spec = {.gqa_ratio = 64}, .batch = 1, .heads_kv = 2, .seqlen_q = 1, .seqlen_kv = sized(5000, 2200)};
    const AttentionCase many_tiles{
        .batch = 2, .heads_kv = device_.sm_count / 4 + 3, .seqlen_q = 130, .seqlen_kv = 75};
    std::vector<Counting> cases = {
        {shared_keys, parse_config("family=forward_split_kv row_warps=1 key_warps=4 tile_kv=64 stages=3")}};
    if (native_arch(device_) == Arch{9, 0, 'a'}) {
      cases.push_back(
          {shared_keys, parse_config("family=forward_split_wgmma tile_rows=64 tile_kv=64 stages=2")});
      cases.push_back(
          {merged_by_all, parse_config("family=forward_split_wgmma tile_rows=64 tile_kv=64 stages=2")});
      cases.push_back({many_tiles, parse_config("family=forward_wgmma tile_q=64 tile_kv=48 stages_q=2")});
      AttentionCase upcast = many_tiles;  // two kernels, and a workspace that one leaves the other
      upcast.spec.kv_dtype = DType::fp8_e4m3;
      cases.push_back(
          {upcast, parse_config("family=forward_wgmma tile_q=64 tile_kv=48 stages_q=2 upcast_ahead=true")});
    }
    int index = 0;
    if (cases.size() > 1) std::erase_if(cases, [&](const Counting&) { return !is_in_this_run(index++, 2); });
    for (Counting& one : cases) {
      one.problem.spec.head_dim = 64;
      one.problem.spec.mask = mask::causal();
      one.config = fitted(one.problem.spec, one.config);
      one.problem.seed = reference::test_seed();
    }
    return cases;
  }

  /// Gives `work` up at the `questions`-th time that a launch asks. Whether it was given up.
  static bool interrupted(int questions, const std::function<void()>& work) {
    const InterruptScope scope([left = questions]() mutable { return --left <= 0; });
    try {
      work();
      return false;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("was interrupted"));
      return true;
    }
  }
};

TEST_F(GraphTest, GraphsOfOneAttentionRunAtOnce) {
  const CurrentDevice current(0);
  for (const auto& [problem, config] : counting()) {
    SCOPED_TRACE(to_string(config));
    const Attention kernel = attention(problem.spec, config, context());
    std::vector<AttentionRun> runs;
    std::vector<std::vector<unsigned char>> expected;
    const TestStream captured_from;
    for (std::uint64_t salt = 0; salt < 3; ++salt) {
      AttentionCase own = problem;
      own.seed += salt;
      runs.emplace_back(own);
      kernel(runs.back().arguments(), captured_from.get());
      captured_from.synchronize();
      EXPECT_EQ(runs.back().check().failure, "");
      expected.push_back(runs.back().outputs());
    }
    // Two graphs of one stream, and the stream itself.
    const auto capture = [&](int i) {
      return std::make_unique<CapturedGraph>(captured_from,
                                             [&] { kernel(runs[i].arguments(), captured_from.get()); });
    };
    const std::array graphs = {capture(0), capture(1)};
    const std::array<TestStream, 2> streams;
    for (int round = 0; round < sized(50, 2); ++round) {
      for (AttentionRun& run : runs) run.poison_outputs();
      {
        std::vector<std::jthread> threads;
        for (std::size_t i = 0; i < graphs.size(); ++i) {
          threads.emplace_back([&, i] {
            try {
              const CurrentDevice here(0);
              graphs[i]->run(streams[i]);
            } catch (const Error& error) {
              ADD_FAILURE() << error.what();
            }
          });
        }
        kernel(runs[2].arguments(), captured_from.get());
        captured_from.synchronize();
      }
      for (std::size_t i = 0; i < runs.size(); ++i)
        ASSERT_EQ(runs[i].outputs(), expected[i]) << "run " << i << ", round " << round;
    }
  }
}

// On a GPU what is given up takes the process's context with it. On an emulated device it is interrupted, at any point.
TEST_F(GraphTest, AfterAnInterruptedLaunchTheNextFindsMemoryInOrder) {
  if (!device_.emulated) GTEST_SKIP() << "launches of a GPU cannot be interrupted";
  const CurrentDevice current(0);
  for (const auto& [problem, config] : counting()) {
    SCOPED_TRACE(to_string(config));
    const Attention kernel = attention(problem.spec, config, context());
    AttentionRun run(problem);
    kernel.prepare(run.arguments());
    const TestStream stream;
    const auto launch = [&] { kernel(run.arguments(), stream.get()); };
    int given_up = 0;
    for (int questions = 1; questions < 40 && interrupted(questions, launch);
         questions += 1 + questions / 4) {
      ++given_up;
      EXPECT_EQ(disorder(context(), stream.get()), "") << "question " << questions;
    }
    EXPECT_GE(given_up, 2) << "so short a launch says little";
    run.poison_outputs();
    launch();
    stream.synchronize();
    EXPECT_EQ(run.check().failure, "");
  }
}

// The counters of a captured launch are its graph's alone. A replay that was given up leaves them as they are, so that the
// graph is of no use any more, and nothing else is touched.
TEST_F(GraphTest, AnInterruptedGraphIsCapturedAnew) {
  if (!device_.emulated) GTEST_SKIP() << "launches of a GPU cannot be interrupted";
  const CurrentDevice current(0);
  for (const auto& [problem, config] : counting()) {
    SCOPED_TRACE(to_string(config));
    const Attention kernel = attention(problem.spec, config, context());
    AttentionRun run(problem);
    kernel.prepare(run.arguments());
    const TestStream stream;
    const auto launch = [&] { kernel(run.arguments(), stream.get()); };
    {
      const CapturedGraph graph(stream, launch);
      EXPECT_TRUE(interrupted(2, [&] { graph.run(stream); }));
    }
    EXPECT_EQ(disorder(context(), stream.get()), "");
    const CapturedGraph anew(stream, launch);
    for (int replay = 0; replay < 2; ++replay) {
      run.poison_outputs();
      anew.run(stream);
      EXPECT_EQ(run.check().failure, "");
    }
    run.poison_outputs();
    launch();
    stream.synchronize();
    EXPECT_EQ(run.check().failure, "");
  }
}

// Backward calls of a capture use the workspace of their stream one after another, and of streams side by side one each.
TEST_F(GraphTest, GradientsOfManyLayers) {
  const CurrentDevice current(0);
  const AttentionSpec spec{.head_dim = 64, .mask = mask::causal()};
  const Attention attention = attention_when_called(spec, context());
  std::vector<std::unique_ptr<BackwardRun>> layers;
  for (const int seqlen : {70, 200, 130, 200}) {
    layers.push_back(
        std::make_unique<BackwardRun>(AttentionCase{.spec = spec,
                                                    .heads_kv = 2,
                                                    .seqlen_q = seqlen,
                                                    .seqlen_kv = seqlen,
                                                    .seed = reference::test_seed() + layers.size()}));
    attention.prepare_backward(layers.back()->arguments());
  }
  const TestStream stream, beside;
  const CapturedGraph graph(stream, [&] {
    attention.backward(layers[0]->arguments(), stream.get());
    wait_for(beside.get(), stream.get());
    attention.backward(layers[1]->arguments(), beside.get());
    attention.backward(layers[2]->arguments(), stream.get());
    attention.backward(layers[3]->arguments(), stream.get());
    wait_for(stream.get(), beside.get());
  });
  for (int replay = 0; replay < sized(50, 2); ++replay) {
    for (const auto& layer : layers) layer->poison_gradients();
    graph.run(stream);
    for (const auto& layer : layers) ASSERT_EQ(layer->check(), "") << "replay " << replay;
  }
  if (!device_.emulated) return;  // a GPU's free memory changes by more than one allocation
  const auto free_bytes = [] {
    std::size_t free = 0, total = 0;
    check(driver().cuMemGetInfo(&free, &total), "cuMemGetInfo");
    return free;
  };
  const auto free_beside = [&](int calls) {
    const CapturedGraph own(stream, [&] {
      for (int call = 0; call < calls; ++call) attention.backward(layers[1]->arguments(), stream.get());
    });
    return free_bytes();
  };
  const std::size_t free = free_beside(1);
  EXPECT_EQ(free_beside(9), free)
      << "nine calls keep as much as one, and what the first graph kept is free again";
}

// Which queries have huge scores alone is found out by each replay: what one of them notes says nothing to the next.
TEST_F(GraphTest, OtherRowsMayHaveHugeScoresAtEachReplay) {
  const CurrentDevice current(0);
  constexpr int seqlen = 130;
  int turn = 0;
  for (const int head_dim : {40, 64, 200}) {
    if (!is_in_this_run(turn++, 3)) continue;
    SCOPED_TRACE(head_dim);
    const AttentionCase problem{.spec = {.head_dim = head_dim,
                                         .mask = mask::causal(),
                                         .score = score::text({.name = "far_away",
                                                               .body = "return score + far[q];",
                                                               .tensors = {{"far", DType::fp32}}})},
                                .heads_kv = 2,
                                .seqlen_q = seqlen,
                                .seqlen_kv = seqlen,
                                .seed = reference::test_seed(),
                                .score = [](double score, int, int, int, int) { return score; }};
    BackwardRun replayed(problem), called(problem);
    const Attention attention = attention_when_called(problem.spec, context());
    const auto forward = [](const BackwardArguments& of) {
      return AttentionArguments{
          .q = of.q, .k = of.k, .v = of.v, .o = of.o, .lse = of.lse, .tensors = of.tensors};
    };
    const auto compute = [&](const BackwardRun& run, CUstream stream) {
      const BackwardArguments arguments = run.arguments(/*deterministic=*/true);
      attention(forward(arguments), stream);
      attention.backward(arguments, stream);
    };
    attention.prepare(forward(replayed.arguments(true)));
    attention.prepare_backward(replayed.arguments(true));
    const TestStream stream;
    const CapturedGraph graph(stream, [&] { compute(replayed, stream.get()); });
    // Huge are no rows, some, others, all, and none again.
    constexpr std::array<std::array<float, 2>, 5> scores_of_rows = {
        {{0, 0}, {-1e9f, 0}, {0, -1e9f}, {1e9f, -1e9f}, {0, 0}}};
    std::vector<std::vector<std::uint8_t>> results;
    for (const auto& scores : scores_of_rows) {
      std::array<float, seqlen> far{};
      for (std::size_t q = 0; q < far.size(); ++q) far[q] = scores[q / 3 % 2];
      for (BackwardRun* run : {&replayed, &called}) {
        const BackwardArguments arguments = run->arguments();
        check(driver().cuMemcpyHtoD(reinterpret_cast<CUdeviceptr>(arguments.tensors.begin()->tensor.data),
                                    far.data(), sizeof far),
              "cuMemcpyHtoD");
        run->poison_gradients();
      }
      graph.run(stream);
      compute(called, stream.get());
      stream.synchronize();
      results.push_back(replayed.gradients());
      ASSERT_EQ(results.back(), called.gradients()) << scores[0] << " and " << scores[1];
    }
    EXPECT_NE(results[0], results[1]);
    EXPECT_NE(results[1], results[2]);
    EXPECT_EQ(results[0], results[4]) << "what earlier replays have found is forgotten";
  }
}

}  // namespace
}  // namespace jit::testing
