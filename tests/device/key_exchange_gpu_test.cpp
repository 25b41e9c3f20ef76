// Attention with keys that arrive from other devices while its kernel computes, against double precision: results, bits, ranks
// that sleep, fail and begin anew.
#include <jit/key_exchange.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/device/gpu_fixture.h"
#include "tests/support/captured_graph.h"
#include "tests/support/error_of.h"
#include "tests/support/key_exchange_run.h"
#include "tests/support/seed.h"
#include "tests/support/shared_cache.h"

namespace jit::testing {
namespace {

using ::testing::HasSubstr;

class KeyExchangeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_no_device(); !reason.empty()) GTEST_SKIP() << reason;
    // Ranks of one GPU have small kernels, which run side by side; an emulated device that is alone does one after another.
    if (devices().size() < 2 && driver().emulated) GTEST_SKIP() << "one device has nobody to exchange with";
    if (native_arch(device_info(0)) != Arch{9, 0, 'a'}) GTEST_SKIP() << "kernels of sm_90a wait for keys";
  }
  static Context& context() {
    static Context context(shared_cache_settings());
    return context;
  }
  static Attention kernel_of(KeyExchangeRun& run) {
    const Attention kernel = attention(run.spec(), {}, context());
    // Loading waits for what is under way, on a GPU.
    for (int rank = 0; rank < run.ranks(); ++rank) {
      const CurrentDevice device(run.device_of(rank));
      static_cast<void>(attention(run.spec(), {}, context()));
    }
    return kernel;
  }
  static std::uint64_t next_seed() {
    static std::uint64_t calls = 0;
    return reference::test_seed() + ++calls;
  }
  static void expect_right(const KeyExchangeCase& problem, const std::string& what) {
    KeyExchangeRun run(problem, next_seed(), context());
    const Attention kernel = kernel_of(run);
    for (int call = 0; call < 3; ++call) {
      run.fill();
      run.call_all(kernel);
      EXPECT_EQ(run.check_all(), "") << what << ", call " << call;
    }
    for (int rank = 0; rank < run.ranks(); ++rank)
      EXPECT_FALSE(run.exchange(rank).fault(run.stream(rank).get())) << what;
  }
};

TEST_F(KeyExchangeTest, RanksAndPlacements) {
  expect_right({.seqlen = 640}, "two ranks, balanced");
  expect_right({.seqlen = 512, .placement = {.mode = PlacementMode::zigzag}}, "two ranks, both ends");
  expect_right({.seqlen = 390, .ranks = 3, .placement = {.mode = PlacementMode::contiguous}},
               "three ranks, and keys that end within a granule");
}

TEST_F(KeyExchangeTest, MasksTypesAndBatches) {
  expect_right({.mask = mask::none(), .seqlen = 300, .batch = 2, .dtype = DType::fp16},
               "all keys, a batch of two");
  expect_right({.mask = mask::sliding_window(150),
                .seqlen = 512,
                .head_dim = 128,
                .placement = {.mode = PlacementMode::striped}},
               "a window over stripes");
}

// Where tensors tell which keys are seen, a rank may need keys here and there.
TEST_F(KeyExchangeTest, DocumentsTreesSinksAndDropout) {
  const Mask documents = mask::causal() && mask::document(), window = mask::sliding_window(150);
  const PlacementOptions zigzag{.mode = PlacementMode::zigzag}, runs{.mode = PlacementMode::contiguous};
  const std::vector<KeyExchangeCase> problems = {
      {.mask = documents, .seqlen = 384},
      {.mask = documents && mask::sliding_window(50), .seqlen = 390, .ranks = 3, .placement = runs},
      {.mask = mask::tree(), .seqlen = 384, .placement = zigzag},
      {.mask = window, .seqlen = 384, .sinks = true},
      {.seqlen = 384, .placement = zigzag, .dropout_p = 0.3f},
      {.mask = documents, .seqlen = 256, .batch = 2, .sinks = true, .dropout_p = 0.2f},
  };
  for (const KeyExchangeCase& problem : reference::some_of(problems, 6))
    expect_right(problem, fmt::format("{}, {} ranks, sinks {}, dropout {}", problem.mask.to_string(),
                                      problem.ranks, problem.sinks, problem.dropout_p));
}

// A host's keys, at their positions in a sequence that several hosts share, and queries of one of these: o and LSE of some of
// the keys, and gradients.
TEST_F(KeyExchangeTest, KeysOfAnotherHost) {
  const PlacementOptions runs{.mode = PlacementMode::contiguous};
  const std::vector<KeyExchangeCase> problems = {
      {.seqlen = 390, .of_other_host = true},
      {.mask = mask::sliding_window(150),
       .seqlen = 512,
       .ranks = 3,
       .placement = runs,
       .of_other_host = true},
      {.mask = mask::causal() && mask::document(), .seqlen = 384, .head_dim = 128, .of_other_host = true}};
  for (const KeyExchangeCase& problem : reference::some_of(problems, 6))
    expect_right(problem, problem.mask.to_string());
  KeyExchangeRun run({.seqlen = 300, .of_other_host = true}, next_seed(), context());
  const Attention kernel = kernel_of(run);
  for (int rank = 0; rank < run.ranks(); ++rank) run.prepare_backward(rank, kernel);
  run.call_all(kernel);
  ASSERT_EQ(run.check_all(), "");
  run.backward_all(kernel);
  EXPECT_EQ(run.check_all_gradients(), "");
}

// Nobody waits for the host between calls: a rank may be one ahead. Bits repeat, whatever comes when.
TEST_F(KeyExchangeTest, CallsFollowEachOtherAndBitsRepeat) {
  KeyExchangeRun run({.seqlen = 384, .ranks = 3}, next_seed(), context());
  const Attention kernel = kernel_of(run);
  run.call_all(kernel);
  ASSERT_EQ(run.check_all(), "");
  std::vector<std::vector<std::uint8_t>> first;
  for (int rank = 0; rank < 3; ++rank) first.push_back(run.bytes(rank));
  for (int rank = 2; rank >= 0; --rank) {
    for (int call = 0; call < 4; ++call) run.call(rank, kernel);
  }
  run.synchronize();
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(run.bytes(rank), first[static_cast<std::size_t>(rank)]) << rank;
  EXPECT_EQ(run.exchange(0).calls(), 5u);
}

// Each call is ordered behind the one before it, whatever streams they are on: its own keys, its table and its results are
// those of one.
TEST_F(KeyExchangeTest, CallsOfARankFromDifferentStreams) {
  KeyExchangeRun run({.seqlen = 384}, next_seed(), context());
  const Attention kernel = kernel_of(run);
  run.call_all(kernel);
  ASSERT_EQ(run.check_all(), "");
  std::vector<std::unique_ptr<TestStream>> others;
  for (int rank = 0; rank < 2; ++rank) {
    const CurrentDevice device(run.device_of(rank));
    others.push_back(std::make_unique<TestStream>());
  }
  for (int repeat = 0; repeat < 3; ++repeat) {
    run.fill();
    for (int rank = 0; rank < 2; ++rank) {
      for (int call = 0; call < 4; ++call)
        run.call(rank, kernel, call % 2 == 0 ? others[static_cast<std::size_t>(rank)]->get() : nullptr);
    }
    for (int rank = 0; rank < 2; ++rank) {
      const CurrentDevice device(run.device_of(rank));
      others[static_cast<std::size_t>(rank)]->synchronize();
      EXPECT_FALSE(run.exchange(rank).fault(run.stream(rank).get())) << rank;
    }
    run.synchronize();
    EXPECT_EQ(run.check_all(), "");
  }
}

// Gradients of own keys are computed while others come: calls of both passes take turns.
TEST_F(KeyExchangeTest, Gradients) {
  const std::vector<KeyExchangeCase> cases = {
      {.seqlen = 512, .placement = {.mode = PlacementMode::zigzag}},
      {.seqlen = 461, .ranks = 3, .head_dim = 128, .placement = {.mode = PlacementMode::contiguous}},
      {.mask = mask::none(), .seqlen = 300, .batch = 2, .dtype = DType::fp16},
      {.mask = mask::sliding_window(100),
       .seqlen = 384,
       .head_dim = 256,
       .placement = {.mode = PlacementMode::striped}}};
  for (const KeyExchangeCase& problem : reference::some_of(cases, 4)) {
    KeyExchangeRun run(problem, next_seed(), context());
    const Attention kernel = kernel_of(run);
    for (int rank = 0; rank < run.ranks(); ++rank) run.prepare_backward(rank, kernel);
    for (int call = 0; call < 2; ++call) {
      run.fill();
      run.call_all(kernel);
      ASSERT_EQ(run.check_all(), "");
      run.backward_all(kernel);
      EXPECT_EQ(run.check_all_gradients(), "") << problem.head_dim << ", call " << call;
    }
    for (int rank = 0; rank < run.ranks(); ++rank)
      EXPECT_FALSE(run.exchange(rank).fault(run.stream(rank).get())) << rank;
  }
}

// Gradients of blocks that take turns are right, and their bits are those of each call, whatever comes when.
TEST_F(KeyExchangeTest, GradientsThatTakeTurnsRepeatTheirBits) {
  const std::vector<KeyExchangeCase> cases = {
      {.seqlen = 512, .placement = {.mode = PlacementMode::zigzag}, .deterministic = true},
      {.seqlen = 461,
       .ranks = 3,
       .heads_q = 4,
       .heads_kv = 2,
       .head_dim = 128,
       .placement = {.mode = PlacementMode::contiguous},
       .deterministic = true},
      {.mask = mask::sliding_window(100),
       .seqlen = 384,
       .head_dim = 256,
       .placement = {.mode = PlacementMode::striped},
       .deterministic = true}};
  for (const KeyExchangeCase& problem : reference::some_of(cases, 4)) {
    KeyExchangeRun run(problem, next_seed(), context());
    const Attention kernel = kernel_of(run);
    for (int rank = 0; rank < run.ranks(); ++rank) run.prepare_backward(rank, kernel);
    run.call_all(kernel);
    run.backward_all(kernel);
    ASSERT_EQ(run.check_all_gradients(), "") << problem.head_dim;
    std::vector<std::vector<std::uint8_t>> first;
    for (int rank = 0; rank < run.ranks(); ++rank) first.push_back(run.gradient_bytes(rank));
    for (int call = 0; call < 3; ++call) run.backward_all(kernel);
    for (int rank = 0; rank < run.ranks(); ++rank) {
      EXPECT_EQ(run.gradient_bytes(rank), first[static_cast<std::size_t>(rank)]) << rank;
      EXPECT_FALSE(run.exchange(rank).fault(run.stream(rank).get())) << rank;
    }
  }
}

// A rank that has no work while the others wait is late, not wrong.
TEST_F(KeyExchangeTest, SleepingRanks) {
  KeyExchangeRun run({.seqlen = 384}, next_seed(), context());
  const Attention kernel = kernel_of(run);
  run.call_all(kernel);
  for (int late = 0; late < 2; ++late) {
    run.fill();
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        if (rank == late) std::this_thread::sleep_for(std::chrono::milliseconds(20));
        run.call(rank, kernel);
        const CurrentDevice device(run.device_of(rank));
        run.stream(rank).synchronize();
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(run.check_all(), "") << late;
  }
}

// Graphs of one call, whose replays use the same half of the buffers, and of two, beside each other and calls that are not
// captured, in an order that is the same on all ranks; ranks begin when they like.
TEST_F(KeyExchangeTest, GraphsAndOtherCallsInAnyOrder) {
  for (const int ranks : {2, 3}) {
    KeyExchangeRun run(
        {.seqlen = 128 * ranks + 77, .ranks = ranks, .placement = {.mode = PlacementMode::contiguous}},
        next_seed(), context());
    const Attention kernel = kernel_of(run);
    run.call_all(kernel);
    ASSERT_EQ(run.check_all(), "");
    using Graphs = std::vector<std::unique_ptr<CapturedGraph>>;
    std::vector<Graphs> of_ranks;
    for (int rank = 0; rank < ranks; ++rank) {
      const CurrentDevice device(run.device_of(rank));
      Graphs& graphs = of_ranks.emplace_back();
      for (const int calls : {1, 2, 1}) {
        graphs.push_back(std::make_unique<CapturedGraph>(run.stream(rank), [&] {
          for (int call = 0; call < calls; ++call) run.call(rank, kernel);
        }));
      }
    }
    std::mt19937_64 random(next_seed());
    std::uint32_t calls = 1;
    for (int round = 0; round < 4; ++round) {
      std::vector<std::size_t> sequence(3 + random() % 4);
      for (std::size_t& graph : sequence) graph = random() % 4;  // the last: none
      run.fill();
      std::vector<int> order(static_cast<std::size_t>(ranks));
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), random);
      for (const int rank : order) {
        const CurrentDevice device(run.device_of(rank));
        for (const std::size_t graph : sequence) {
          if (graph == 3) {
            run.call(rank, kernel);
          } else {
            of_ranks[static_cast<std::size_t>(rank)][graph]->launch(run.stream(rank));
          }
        }
      }
      run.synchronize();
      for (const std::size_t graph : sequence) calls += graph == 1 ? 2 : 1;
      EXPECT_EQ(run.check_all(), "") << ranks << " ranks, round " << round;
      for (int rank = 0; rank < ranks; ++rank)
        EXPECT_FALSE(run.exchange(rank).fault(run.stream(rank).get())) << rank;
    }
    EXPECT_EQ(run.counted(0), calls);
  }
}

// A rank that replays alone waits in vain: for the other to begin, as its half is in use. After a reset the same graph is right.
TEST_F(KeyExchangeTest, AReplayThatWaitsInVain) {
  const PlacementOptions halves{.mode = PlacementMode::chunks, .chunks = {{{128, 256}}, {{0, 128}}}};
  KeyExchangeRun run({.seqlen = 256, .placement = halves, .timeout = 0.05}, next_seed(), context());
  const Attention kernel = kernel_of(run);
  run.call_all(kernel);
  std::vector<std::unique_ptr<CapturedGraph>> graphs;
  for (int rank = 0; rank < 2; ++rank) {
    const CurrentDevice device(run.device_of(rank));
    graphs.push_back(std::make_unique<CapturedGraph>(run.stream(rank), [&] { run.call(rank, kernel); }));
  }
  const auto replay = [&](int rank) {
    const CurrentDevice device(run.device_of(rank));
    graphs[static_cast<std::size_t>(rank)]->launch(run.stream(rank));
  };
  replay(0), replay(1);
  run.synchronize();
  ASSERT_EQ(run.check_all(), "");
  run.fill();
  replay(0);
  run.synchronize();
  const std::optional<KeyExchangeFault> fault = run.exchange(0).fault(run.stream(0).get());
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->to_string(),
            "rank 1 has not begun call 3 in time; the last call of it that was seen was 1");
  EXPECT_EQ(run.noted_fault(0), 3u);
  EXPECT_THAT(run.poisoned(0), ::testing::Each(true));
  replay(1);  // which sees what rank 0 has left, or not
  run.synchronize();
  run.reset();
  run.fill();
  for (int repeat = 0; repeat < 2; ++repeat) replay(1), replay(0);
  run.call(0, kernel), run.call(1, kernel);
  run.synchronize();
  EXPECT_EQ(run.check_all(), "");
  EXPECT_EQ(run.counted(1), 3u);
  for (int rank = 0; rank < 2; ++rank) EXPECT_FALSE(run.exchange(rank).fault(run.stream(rank).get())) << rank;
}

TEST_F(KeyExchangeTest, ARankThatNeverCallsIsNamed) {
  // Rank 1 has the first half of the keys, and rank 0 the second.
  const PlacementOptions halves{.mode = PlacementMode::chunks, .chunks = {{{256, 512}}, {{0, 256}}}};
  KeyExchangeRun run({.placement = halves}, next_seed(), context());
  const Attention kernel = kernel_of(run);
  for (int rank = 0; rank < 2; ++rank) {
    const CurrentDevice device(run.device_of(rank));
    run.exchange(rank).set_timeout(0.05);
  }
  run.call_all(kernel);
  run.call_all(kernel);
  ASSERT_EQ(run.check_all(), "");
  run.fill();
  run.call(0, kernel);
  run.synchronize();
  std::optional<KeyExchangeFault> fault = run.exchange(0).fault(run.stream(0).get());
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->peer, 1);
  EXPECT_EQ(fault->call, 3u);
  EXPECT_EQ(fault->call_seen, 1u);
  EXPECT_EQ(fault->keys, IndexRange{});
  EXPECT_EQ(fault->to_string(),
            "rank 1 has not begun call 3 in time; the last call of it that was seen was 1");
  EXPECT_THAT(run.poisoned(0), ::testing::Each(true));
  // Rank 1, which sees none of the others' keys, has them all.
  run.call(1, kernel);
  run.synchronize();
  EXPECT_EQ(run.check(1), "");
  EXPECT_FALSE(run.exchange(1).fault(run.stream(1).get()));
  EXPECT_EQ(run.noted_fault(0), 3u);
  EXPECT_EQ(run.noted_fault(1), 0u);
  run.call_all(kernel);
  fault = run.exchange(0).fault(run.stream(0).get());
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->call, 3u) << "the first fault stays";
  run.reset();
  EXPECT_EQ(run.noted_fault(0), 0u);
  run.fill();
  run.call_all(kernel);
  EXPECT_EQ(run.check_all(), "");
  EXPECT_EQ(run.exchange(0).calls(), 1u);
  for (int rank = 0; rank < 2; ++rank) EXPECT_FALSE(run.exchange(rank).fault(run.stream(rank).get())) << rank;
}

TEST_F(KeyExchangeTest, RefusedArguments) {
  const Placement halves = place(work_of_mask(mask::causal(), 256), 2);
  const auto field = [&](const KeyExchangeSpec& spec, const Placement& placement) {
    return error_of([&] { key_exchange_bytes(spec, placement); }).field();
  };
  EXPECT_EQ(field({.dtype = DType::fp32}, halves), "dtype");
  EXPECT_EQ(field({.batch = 0}, halves), "batch");
  EXPECT_EQ(field({.heads_kv = -1}, halves), "heads_kv");
  EXPECT_EQ(field({.head_dim = 12}, halves), "head_dim");
  EXPECT_EQ(field({.head_dim_v = 0}, halves), "head_dim_v");
  EXPECT_EQ(field({.chunk_bytes = 0}, halves), "chunk_bytes");
  EXPECT_EQ(field({}, place(work_of_mask(mask::causal(), 256, 64), 2)), "placement");
  EXPECT_EQ(field({}, place(work_of_mask(mask::causal(), 128), 2)), "placement") << "a rank without rows";
  KeyExchangeRun run({.seqlen = 256}, next_seed(), context());
  DeviceBuffer own(0, key_exchange_bytes({}, halves));
  const auto rank_field = [&](const KeyExchangeRank& rank) {
    return error_of([&] { KeyExchange({}, halves, rank, context()); }).field();
  };
  std::vector<void*> buffers = {own.data(), static_cast<char*>(own.data()) + 256};
  EXPECT_EQ(rank_field({.rank = 2, .buffers = buffers}), "rank");
  EXPECT_EQ(rank_field({.rank = 0, .buffers = buffers, .timeout = 0}), "timeout");
  EXPECT_EQ(rank_field({.rank = 0, .buffers = std::span(buffers).first(1)}), "buffers");
  buffers[1] = own.data();
  EXPECT_EQ(rank_field({.rank = 0, .buffers = buffers}), "buffers[1]");
  buffers[1] = static_cast<char*>(own.data()) + 8;
  EXPECT_EQ(rank_field({.rank = 0, .buffers = buffers}), "buffers[1]");
  buffers[1] = nullptr;
  EXPECT_EQ(rank_field({.rank = 0, .buffers = buffers}), "buffers[1]");
  const DeviceTensor rows(DType::bf16, {1, 128, 1, 64}), wrong(DType::bf16, {1, 100, 1, 64});
  EXPECT_EQ(error_of([&] { run.exchange(0).begin(rows.view(), wrong.view(), nullptr); }).field(), "v");
  TensorView sparse = rows.view();
  sparse.strides[1] = 128;
  EXPECT_EQ(error_of([&] { run.exchange(0).begin(sparse, rows.view(), nullptr); }).field(), "k");
  EXPECT_EQ(run.exchange(0).calls(), 0u) << "nothing has begun";
}

}  // namespace
}  // namespace jit::testing
