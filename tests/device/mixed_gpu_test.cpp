// Calls whose requests two kernels share, those of many queries and those of few: who computes which. That results are
// right: tests/python/test_mixed.py.
#include <jit/attention.h>

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/context/access.h"
#include "generator/context/context_state.h"
#include "generator/kernels/families.h"
#include "generator/plan/kernel_choice.h"
#include "generator/problem/arguments.h"
#include "templates/scheduling/request_kinds.cuh"
#include "tests/device/gpu_fixture.h"
#include "tests/support/captured_graph.h"
#include "tests/support/device_tensor.h"
#include "tests/support/error_of.h"
#include "tests/support/host_functors.h"
#include "tests/support/seed.h"
#include "tests/support/shared_cache.h"
#include "tests/support/stream_memory_words.h"

namespace jit::testing {
namespace {

constexpr int head_dim = 64, heads = 2;

std::vector<int> boundaries(const std::vector<int>& lengths) {
  std::vector<int> begins(lengths.size() + 1, 0);
  std::partial_sum(lengths.begin(), lengths.end(), begins.begin() + 1);
  return begins;
}

// Varlen queries over varlen keys, as many of each; o is poisoned before each run. `room`: rows behind the last
// request, which make the host expect as many more queries. `gqa_ratio`: query heads of a KV head, of which there are
// `heads`.
class MixedRun {
 public:
  explicit MixedRun(const std::vector<int>& lengths, int room = 0, int gqa_ratio = 1)
      : heads_q_(heads * gqa_ratio),
        begins_(boundaries(lengths)),
        q_(DType::bf16, {begins_.back() + room, heads_q_, head_dim}),
        k_(DType::bf16, {begins_.back() + room, heads, head_dim}),
        v_(DType::bf16, {begins_.back() + room, heads, head_dim}),
        o_(DType::bf16, {begins_.back() + room, heads_q_, head_dim}),
        cu_(DType::int32, {static_cast<std::int64_t>(begins_.size())}) {
    reference::Random random(reference::test_seed());
    for (DeviceTensor* tensor : {&q_, &k_, &v_}) {
      tensor->fill([&](std::int64_t) { return reference::draw(random, -64, 64) / 32.0; });
      tensor->upload();
    }
    set_boundaries(begins_);
    poison();
  }

  void set_boundaries(const std::vector<int>& begins) {
    begins_ = begins;
    cu_.fill([&](std::int64_t i) { return begins_[static_cast<std::size_t>(i)]; });
    cu_.upload();
  }
  void poison() {
    o_.poison();
    o_.upload();
  }
  AttentionArguments arguments() const {
    return {.q = q_.view(),
            .k = k_.view(),
            .v = v_.view(),
            .o = o_.view(),
            .cu_seqlens_q = cu_.view(),
            .cu_seqlens_k = cu_.view()};
  }
  const std::vector<std::uint8_t>& output() {
    o_.download();
    return o_.bytes();
  }
  // The numbers of the rows of requests of few queries.
  std::vector<double> of_few() {
    o_.download();
    std::vector<double> numbers;
    for (std::size_t i = 0; i + 1 < begins_.size(); ++i) {
      if (begins_[i + 1] - begins_[i] > few_queries) continue;
      for (std::int64_t row = begins_[i]; row < begins_[i + 1]; ++row) {
        for (std::int64_t head = 0; head < heads_q_; ++head) {
          for (std::int64_t d = 0; d < head_dim; ++d) numbers.push_back(o_.get({row, head, d}));
        }
      }
    }
    return numbers;
  }
  // For each request the number of elements that were written. Poison is NaN.
  std::vector<int> written() {
    o_.download();
    std::vector<int> counts;
    for (std::size_t i = 0; i + 1 < begins_.size(); ++i) {
      int count = 0;
      for (std::int64_t row = begins_[i]; row < begins_[i + 1]; ++row) {
        for (std::int64_t head = 0; head < heads_q_; ++head) {
          for (std::int64_t d = 0; d < head_dim; ++d) count += !std::isnan(o_.get({row, head, d}));
        }
      }
      counts.push_back(count);
    }
    return counts;
  }

 private:
  int heads_q_;
  std::vector<int> begins_;
  DeviceTensor q_, k_, v_, o_, cu_;
};

class MixedTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped() && native_arch(device_) != Arch{9, 0, 'a'})
      GTEST_SKIP() << "calls take two kernels on sm_90a only";
  }

  static AttentionSpec spec(int gqa_ratio = 1) {
    return {.head_dim = head_dim,
            .gqa_ratio = gqa_ratio,
            .sequences_q = SequenceKind::varlen,
            .sequences_kv = SequenceKind::varlen,
            .mask = mask::causal()};
  }

  // Runs the steps of one kernel: what it leaves to the other one stays as it was.
  void run_alone(const MixedRun& run, const char* config, int turns, int gqa_ratio = 1) const {
    ContextState& state = *Access::state(context());
    const AttentionSpec own = spec(gqa_ratio);
    Plan plan = make_plan(state, own, build_kernel(state, own, parse_config(config), native_target(device_)),
                          0, "test");
    if (turns == 2) {
      plan.steps.push_back(plan.steps.front());
      plan.steps.back().turn = 1;
    }
    AttentionParams params;
    ASSERT_TRUE(fill_params(own, functor_tensor_uses(own), run.arguments(), params));
    run_plan(plan, params, state.memory, nullptr);
    check(driver().cuCtxSynchronize(), "cuCtxSynchronize");
  }
};

// Both sides of the boundary, and then more requests of one query than there are blocks, with one of many among them.
std::vector<int> tested_lengths() {
  std::vector<int> lengths = {200, 1, few_queries + 1, few_queries, 0, 129, few_queries - 1, 3};
  lengths.resize(150, 1);
  lengths[80] = 70;
  return lengths;
}
const std::vector<int> lengths = tested_lengths();

TEST_F(MixedTest, EachRequestIsComputedByOneKernel) {
  const CurrentDevice current(0);
  MixedRun run(lengths);
  const auto numbers = [&](bool of_many) {
    std::vector<int> counts;
    for (const int n : lengths) counts.push_back((n > few_queries) == of_many ? n * heads * head_dim : 0);
    return counts;
  };
  run_alone(run, "family=forward_wgmma tile_q=128 tile_kv=64 requests=many_queries", 1);
  EXPECT_EQ(run.written(), numbers(true));
  run.poison();
  run_alone(run, "family=forward_split_wgmma tile_rows=64 tile_kv=64 requests=few_queries", 2);
  EXPECT_EQ(run.written(), numbers(false));
}

// Where the host expects many tiles of queries, the kernel for few is launched once. Then some of its blocks give way:
// how many, lengths say.
constexpr int room_for_many_tiles = 132 * 128 / heads + 128;

TEST_F(MixedTest, BlocksThatGiveWayLeaveNothingOut) {
  const CurrentDevice current(0);
  const char* config = "family=forward_split_wgmma tile_rows=64 tile_kv=64 requests=few_queries";
  // Most of the work is decoding; about as much is prefill; and nearly all.
  for (const int prompt : {65, 300, 1500}) {
    std::vector<int> own(40, 20);
    own[3] = prompt;
    own.push_back(3);
    MixedRun run(own, room_for_many_tiles);
    run_alone(run, config, 2);
    std::vector<int> counts;
    for (const int n : own) counts.push_back(n > few_queries ? 0 : n * heads * head_dim);
    EXPECT_EQ(run.written(), counts) << prompt;
    const std::vector<double> numbers = run.of_few();
    run_alone(run, "family=forward_split_wgmma tile_rows=64 tile_kv=64", 1);
    EXPECT_THAT(numbers, ::testing::Pointwise(::testing::DoubleNear(0.02), run.of_few())) << prompt;
  }
}

// Units of many rows, which all of their blocks merge: those of one launch, or of both.
TEST_F(MixedTest, BlocksOfTwoLaunchesMergeTogether) {
  const CurrentDevice current(0);
  constexpr int gqa_ratio = 64;
  const std::string config = "family=forward_split_wgmma tile_rows=64 tile_kv=16";
  const std::vector<int> own = {2, 20, few_queries + 1, 1};
  MixedRun run(own, 0, gqa_ratio);
  run_alone(run, (config + " requests=few_queries").c_str(), 2, gqa_ratio);
  std::vector<int> counts;
  for (const int n : own) counts.push_back(n > few_queries ? 0 : n * heads * gqa_ratio * head_dim);
  EXPECT_EQ(run.written(), counts);
  const std::vector<double> numbers = run.of_few();
  EXPECT_EQ(disorder(context(), nullptr), "");
  run_alone(run, config.c_str(), 1, gqa_ratio);
  EXPECT_THAT(numbers, ::testing::Pointwise(::testing::DoubleNear(0.02), run.of_few()));
}

// The kinds of requests are found at each run: other lengths, another kernel.
TEST_F(MixedTest, CapturedCallsReplayOnOtherLengths) {
  const CurrentDevice current(0);
  const TestStream stream;
  MixedRun run(lengths);
  const Attention kernel = attention(spec(), {}, context());
  kernel.prepare(run.arguments());
  EXPECT_THAT(to_string(kernel.kernel(run.arguments()).config()), ::testing::HasSubstr("few_queries"));
  const CapturedGraph graph(stream, [&] { kernel(run.arguments(), stream.get()); });
  std::vector<int> turned(lengths.rbegin(), lengths.rend());
  for (const std::vector<int>& own : {lengths, turned, std::vector<int>(lengths.size(), 3)}) {
    run.set_boundaries(boundaries(own));
    run.poison();
    kernel(run.arguments(), stream.get());
    stream.synchronize();
    const std::vector<std::uint8_t> expected = run.output();
    for (int round = 0; round < 2; ++round) {
      run.poison();
      graph.run(stream);
      EXPECT_EQ(run.output(), expected);
    }
  }
}

TEST_F(MixedTest, AConfigOfHalfACallIsRefused) {
  const Error error = error_of([] {
    attention(spec(), parse_config("family=forward_wgmma tile_q=128 requests=many_queries"), context());
  });
  EXPECT_EQ(error.code(), ErrorCode::no_valid_config);
  EXPECT_THAT(error.message(), ::testing::HasSubstr("requests must be all"));
}

}  // namespace
}  // namespace jit::testing
