// jit::exchange_merge between devices against double precision: results, bits, graphs, ranks that sleep or do something else.
#include <jit/exchange_merge.h>

#include <array>
#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/device/gpu_fixture.h"
#include "tests/support/captured_graph.h"
#include "tests/support/error_of.h"
#include "tests/support/exchange_run.h"
#include "tests/support/seed.h"
#include "tests/support/shared_cache.h"

namespace jit::testing {
namespace {

using ::testing::HasSubstr;

class ExchangeMergeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_no_device(); !reason.empty()) GTEST_SKIP() << reason;
    if (devices().size() < 2) GTEST_SKIP() << "one device has nobody to exchange with";
  }
  static Context& context() {
    static Context context(shared_cache_settings());
    return context;
  }
  static std::uint64_t next_seed() {
    static std::uint64_t calls = 0;
    return reference::test_seed() + ++calls;
  }
  static void expect_right(const ExchangeCase& problem, const std::string& what) {
    ExchangeRun run(problem, next_seed());
    const ExchangeMerge kernel = exchange_merge(problem.spec, context());
    for (int call = 0; call < 3; ++call) {
      run.fill();
      run.call_all(kernel);
      EXPECT_EQ(run.check_all(), "") << what << ", call " << call;
    }
    for (int rank = 0; rank < run.ranks(); ++rank) EXPECT_FALSE(run.fault(rank)) << what;
  }
};

TEST_F(ExchangeMergeTest, RanksAndShares) {
  for (const ExchangeShare share : {ExchangeShare::all, ExchangeShare::heads, ExchangeShare::tokens}) {
    for (const int ranks : {1, 2, 3, 4}) {
      expect_right({.spec = {.head_dim_v = 64, .ranks = ranks, .share = share}, .tokens = 7, .heads = 4},
                   fmt::format("{} ranks, share {}", ranks, static_cast<int>(share)));
    }
  }
}

// Shares that are not equal, and that are empty.
TEST_F(ExchangeMergeTest, UnequalAndEmptyShares) {
  for (const ExchangeShare share : {ExchangeShare::heads, ExchangeShare::tokens}) {
    for (const auto& [tokens, heads] : {std::pair{1, 1}, std::pair{2, 5}, std::pair{40, 2}}) {
      expect_right({.spec = {.head_dim_v = 32, .ranks = 3, .share = share}, .tokens = tokens, .heads = heads},
                   fmt::format("{} tokens, {} heads, share {}", tokens, heads, static_cast<int>(share)));
    }
  }
}

TEST_F(ExchangeMergeTest, TypesAndHeadDims) {
  constexpr std::array types = {DType::bf16, DType::fp16, DType::fp32};
  constexpr std::array<std::pair<int, int>, 9> head_dims = {
      {{8, 16}, {128, 16}, {1, 2}, {40, 16}, {320, 16}, {1024, 16}, {6, 4}, {72, 8}, {512, 16}}};
  std::size_t next = 0;
  for (const DType in : types) {
    for (const DType out : types) {
      const auto [d, alignment] = head_dims[next++];
      expect_right({.spec = {.dtype = in,
                             .out_dtype = out,
                             .head_dim_v = d,
                             .alignment = alignment,
                             .share = ExchangeShare::heads},
                    .tokens = 3},
                   fmt::format("{} to {}, head dim {}", to_string(in), to_string(out), d));
    }
  }
}

TEST_F(ExchangeMergeTest, StridesAndRoom) {
  const ExchangeMergeSpec spec{.dtype = DType::bf16, .head_dim_v = 64};
  expect_right({.spec = spec, .lse_layout = {.order = {1, 0}}}, "lse (tokens, heads)");
  expect_right({.spec = spec, .o_layout = {.order = {1, 0, 2}, .row_elements = 72}}, "o by heads, with gaps");
  expect_right({.spec = spec, .room = 100}, "buffers for more tokens");
  expect_right({.spec = spec, .tokens = 300, .heads = 8}, "more tiles than one block");
}

// All ranks get the same bits, and the same again.
TEST_F(ExchangeMergeTest, BitsRepeat) {
  ExchangeRun run({.spec = {.dtype = DType::bf16, .ranks = 3}, .tokens = 9}, next_seed());
  const ExchangeMerge kernel = exchange_merge(run.problem().spec, context());
  std::vector<std::uint8_t> first;
  for (int call = 0; call < 4; ++call) {
    run.call_all(kernel);
    ASSERT_EQ(run.check_all(), "");
    if (call == 0) first = run.bytes(0);
    for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(run.bytes(rank), first) << call << " " << rank;
  }
}

// Nobody waits for the host between calls: a rank may be one ahead.
TEST_F(ExchangeMergeTest, CallsFollowEachOther) {
  ExchangeRun run({.spec = {.head_dim_v = 64, .ranks = 3, .share = ExchangeShare::heads}, .tokens = 5},
                  next_seed());
  const ExchangeMerge kernel = exchange_merge(run.problem().spec, context());
  run.call_all(kernel);
  for (int rank = 0; rank < 3; ++rank) {
    for (int call = 0; call < 5; ++call) run.call(rank, kernel);
  }
  run.synchronize();
  EXPECT_EQ(run.check_all(), "");
}

TEST_F(ExchangeMergeTest, Graphs) {
  ExchangeRun run({.spec = {.ranks = 2, .share = ExchangeShare::heads}, .tokens = 4}, next_seed());
  const ExchangeMerge kernel = exchange_merge(run.problem().spec, context());
  run.call_all(kernel);
  std::vector<std::unique_ptr<CapturedGraph>> graphs;
  for (int rank = 0; rank < 2; ++rank) {
    const CurrentDevice device(run.device_of(rank));
    graphs.push_back(std::make_unique<CapturedGraph>(
        run.stream(rank),
        [&] {
          run.call(rank, kernel);
          run.call(rank, kernel);
          run.call(rank, kernel);
        },
        CU_STREAM_CAPTURE_MODE_RELAXED));
  }
  for (int replay = 0; replay < 3; ++replay) {
    run.fill();
    for (int rank = 0; rank < 2; ++rank) {
      const CurrentDevice device(run.device_of(rank));
      graphs[static_cast<std::size_t>(rank)]->launch(run.stream(rank));
    }
    run.synchronize();
    EXPECT_EQ(run.check_all(), "") << replay;
    run.fill();
    run.call_all(kernel);
    EXPECT_EQ(run.check_all(), "") << "a call between replays";
  }
}

// A rank that has no work while the others wait is late, not wrong.
TEST_F(ExchangeMergeTest, SleepingRanks) {
  ExchangeRun run({.spec = {.ranks = 3}, .tokens = 3}, next_seed());
  const ExchangeMerge kernel = exchange_merge(run.problem().spec, context());
  run.call_all(kernel);
  for (int late = 0; late < 3; ++late) {
    run.fill();
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; ++rank) {
      threads.emplace_back([&, rank] {
        const CurrentDevice device(run.device_of(rank));
        if (rank == late) std::this_thread::sleep_for(std::chrono::milliseconds(20));
        run.call(rank, kernel);
        run.stream(rank).synchronize();
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(run.check_all(), "") << late;
  }
}

TEST_F(ExchangeMergeTest, ARankThatNeverCallsIsNamed) {
  ExchangeRun run({.spec = {.ranks = 3}, .tokens = 3, .timeout = 0.05}, next_seed());
  const ExchangeMerge kernel = exchange_merge(run.problem().spec, context());
  run.call_all(kernel);
  run.call_all(kernel);
  ASSERT_EQ(run.check_all(), "");
  run.fill();
  run.call(0, kernel);
  run.call(2, kernel);
  run.synchronize();
  for (const int rank : {0, 2}) {
    EXPECT_TRUE(run.is_poisoned(rank));
    const std::optional<ExchangeFault> fault = run.fault(rank);
    ASSERT_TRUE(fault);
    EXPECT_EQ(fault->peer, 1);
    EXPECT_EQ(fault->call, 3u);
    EXPECT_EQ(fault->call_seen, 1u);
    EXPECT_THAT(fault->to_string(), HasSubstr("rank 1 has not delivered call 3 in time"));
  }
  EXPECT_FALSE(run.fault(1)) << "it has not waited";
  // From now on nobody gets numbers, at once.
  run.call(1, kernel);  // its third call: the peers had sent
  run.synchronize();
  EXPECT_EQ(run.check(1), "");
  run.call_all(kernel);
  for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(run.is_poisoned(rank)) << rank;
  ASSERT_TRUE(run.fault(1));
  EXPECT_EQ(run.fault(1)->rows_seen, -1);
  EXPECT_THAT(run.fault(1)->to_string(), HasSubstr("has had a fault before call 4"));
  EXPECT_EQ(run.fault(0)->call, 3u) << "the first fault stays";
  // Until all begin anew.
  run.reset();
  run.fill();
  run.call_all(kernel);
  EXPECT_EQ(run.check_all(), "");
  for (int rank = 0; rank < 3; ++rank) EXPECT_FALSE(run.fault(rank));
}

TEST_F(ExchangeMergeTest, OtherSizesAreTold) {
  ExchangeRun run({.spec = {.ranks = 2}, .tokens = 3}, next_seed());
  const ExchangeMerge kernel = exchange_merge(run.problem().spec, context());
  run.call_all(kernel);
  ExchangeMergeArguments fewer = run.arguments(1);
  for (TensorView* view : {&fewer.o, &fewer.out}) view->shape[0] = 2;
  for (TensorView* view : {&fewer.lse, &fewer.out_lse}) view->shape[1] = 2;
  run.call(0, kernel);
  {
    const CurrentDevice device(run.device_of(1));
    kernel(fewer, run.stream(1).get());
  }
  run.synchronize();
  ASSERT_TRUE(run.fault(0));
  EXPECT_THAT(run.fault(0)->to_string(),
              HasSubstr("rank 1 exchanges 8 rows in call 2, and this rank 12: all must have the same"));
  EXPECT_TRUE(run.is_poisoned(0));
}

TEST_F(ExchangeMergeTest, WithoutTokens) {
  ExchangeRun run({.spec = {.ranks = 2}, .tokens = 0}, next_seed());
  run.call_all(exchange_merge(run.problem().spec, context()));
  EXPECT_EQ(run.check_all(), "");
}

TEST_F(ExchangeMergeTest, RefusedArguments) {
  ExchangeRun run({.spec = {.ranks = 2}, .tokens = 3}, next_seed());
  const ExchangeMergeSpec spec = run.problem().spec;
  const auto field = [&](const auto& change) {
    ExchangeMergeArguments arguments = run.arguments(0);
    std::vector<void*> buffers(arguments.buffers.begin(), arguments.buffers.end());
    change(arguments, buffers);
    arguments.buffers = buffers;
    return error_of([&] { check_arguments(spec, arguments); }).field();
  };
  using Arguments = ExchangeMergeArguments;
  using Buffers = std::vector<void*>;
  EXPECT_EQ(field([](Arguments& a, Buffers&) { a.o.dtype = DType::bf16; }), "o");
  EXPECT_EQ(field([](Arguments& a, Buffers&) { a.lse.shape[0] = 5; }), "lse");
  EXPECT_EQ(field([](Arguments& a, Buffers&) { a.out.shape[1] = 2; }), "out");
  EXPECT_EQ(field([](Arguments& a, Buffers&) { a.out.data = a.o.data; }), "out");
  EXPECT_EQ(field([](Arguments& a, Buffers&) { a.rank = 2; }), "rank");
  EXPECT_EQ(field([](Arguments& a, Buffers&) { a.rank = -1; }), "rank");
  EXPECT_EQ(field([](Arguments& a, Buffers&) { a.timeout = 0; }), "timeout");
  EXPECT_EQ(field([](Arguments& a, Buffers&) { a.timeout = std::nan(""); }), "timeout");
  EXPECT_EQ(field([](Arguments& a, Buffers&) { a.buffer_bytes = 4; }), "buffer_bytes");
  EXPECT_EQ(field([](Arguments&, Buffers& b) { b.pop_back(); }), "buffers");
  EXPECT_EQ(field([](Arguments&, Buffers& b) { b[1] = nullptr; }), "buffers[1]");
  EXPECT_EQ(field([](Arguments&, Buffers& b) { b[1] = b[0]; }), "buffers[1]");
  EXPECT_EQ(field([](Arguments&, Buffers& b) { b[1] = static_cast<char*>(b[1]) + 8; }), "buffers[1]");
  EXPECT_EQ(error_of([] { validate(ExchangeMergeSpec{.ranks = 17}); }).code(), ErrorCode::invalid_spec);
  EXPECT_EQ(error_of([] { validate(ExchangeMergeSpec{.dtype = DType::int32}); }).code(),
            ErrorCode::invalid_spec);
  EXPECT_EQ(error_of([] { exchange_merge_bytes({}, -1, 4); }).field(), "tokens");
}

}  // namespace
}  // namespace jit::testing
