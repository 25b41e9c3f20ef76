// jit::append on a device against double precision: every byte of the caches.
#include <jit/append.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/device/append_run.h"
#include "tests/device/gpu_fixture.h"
#include "tests/support/captured_graph.h"
#include "tests/support/error_of.h"
#include "tests/support/seed.h"
#include "tests/support/shared_cache.h"

namespace jit::testing {
namespace {

using ::testing::HasSubstr;

class AppendTest : public GpuTest {
 protected:
  static void expect_right(const AppendCase& problem) {
    AppendRun run(problem, reference::test_seed());
    try {
      append(problem.spec, context())(run.arguments());
      EXPECT_EQ(run.check(), "") << to_string(problem);
    } catch (const Error& error) {
      ADD_FAILURE() << to_string(problem) << ": " << error.what() << "\n" << error.log();
    }
  }
};

constexpr std::array destinations = {Destination::slots, Destination::pages, Destination::contiguous};

TEST_F(AppendTest, StoresAndNothingElse) {
  const CurrentDevice current(0);
  const AppendSpec spec{.head_dim = 64, .head_dim_v = 40};
  for (const Destination to : destinations) {
    for (const int page_size : {1, 3, 16})
      expect_right({.spec = spec, .to = to, .page_size = page_size, .heads_q = 0});
    expect_right({.spec = spec, .to = to, .new_tokens = {2, 2, 2, 2}, .is_dense = true, .heads_q = 0});
    expect_right(
        {.spec = {.head_dim = 256}, .to = to, .new_tokens = {1, 1, 1, 1}, .heads_q = 0, .heads_kv = 1});
  }
}

// HND, K beside V in one row, pages apart, rows at two bytes.
TEST_F(AppendTest, CachesInAnyLayout) {
  const CurrentDevice current(0);
  const AppendSpec spec{.head_dim = 64, .rotary_dim = 32};
  for (const TensorLayout& layout : {TensorLayout{.order = {0, 2, 1, 3}}, TensorLayout{.row_elements = 128},
                                     TensorLayout{.order = {2, 0, 1, 3}},
                                     TensorLayout{.order = {0, 2, 1, 3}, .row_elements = 128, .first = 64}}) {
    expect_right({.spec = spec, .page_size = 3, .cache_layout = layout});
    expect_right({.spec = spec, .to = Destination::pages, .page_size = 3, .cache_layout = layout});
  }
  expect_right({.spec = {.head_dim = 64, .alignment = 2, .rotary_dim = 32},
                .cache_layout = {.row_elements = 67, .first = 1}});
}

TEST_F(AppendTest, Rotates) {
  const CurrentDevice current(0);
  bool with_positions = true;
  for (const bool interleaved : {false, true}) {
    for (const auto& [head_dim, rotary_dim] : std::vector<std::pair<int, int>>{
             {64, 64}, {128, 32}, {80, 24}, {8, 2}, {256, 256}, {512, 64}, {40, 20}}) {
      const AppendSpec spec{.dtype = interleaved ? DType::fp16 : DType::bf16,
                            .head_dim = head_dim,
                            .rotary_dim = rotary_dim,
                            .rotary_interleaved = interleaved,
                            .cos_sin_dtype = rotary_dim % 16 == 0 ? DType::fp32 : DType::bf16};
      AppendSpec fitting = spec;
      if (rotary_dim % 8 != 0) fitting.alignment = rotary_dim % 4 == 0 ? 8 : 4;
      expect_right({.spec = fitting, .into_q_out = rotary_dim == 32});
      expect_right(
          {.spec = fitting, .to = Destination::pages, .with_positions = with_positions = !with_positions});
    }
  }
}

TEST_F(AppendTest, RotatesBySections) {
  const CurrentDevice current(0);
  for (const bool interleaved : {false, true}) {
    for (const bool in_turns : {false, true}) {
      const AppendSpec spec{.head_dim = 64,
                            .rotary_dim = 48,
                            .rotary_interleaved = interleaved,
                            .mrope_sections = {10, 9, 5},
                            .mrope_interleaved = in_turns};
      expect_right({.spec = spec});
      expect_right({.spec = spec, .to = Destination::pages, .new_tokens = {2, 2, 2, 2}, .is_dense = true});
      expect_right({.spec = spec, .to = Destination::contiguous, .with_positions = false});
    }
  }
}

TEST_F(AppendTest, Normalizes) {
  const CurrentDevice current(0);
  for (const bool adds_one : {false, true}) {
    for (const int head_dim : {128, 72, 1024}) {
      const AppendSpec spec{.head_dim = head_dim,
                            .rotary_dim = 64,
                            .norm = true,
                            .norm_dtype = adds_one ? DType::fp32 : DType::bf16,
                            .norm_adds_one = adds_one,
                            .norm_eps = 0.1f};
      expect_right({.spec = spec});
      expect_right({.spec = spec, .heads_q = 0});
    }
  }
  expect_right({.spec = {.norm = true}, .into_q_out = true});
}

// Tokens without a slot, a page or a position are skipped; nothing else is written.
TEST_F(AppendTest, SkipsWhatHasNoPlace) {
  const CurrentDevice current(0);
  for (const Destination to : destinations) {
    expect_right({.spec = {.head_dim = 64, .rotary_dim = 64},
                  .to = to,
                  .new_tokens = {5, 9, 3, 9},
                  .past_tokens = {0, 9, 1, 14},
                  .with_bad_places = true});
    expect_right({.spec = {.head_dim = 64, .rotary_dim = 48, .mrope_sections = {8, 8, 8}},
                  .to = to,
                  .new_tokens = {5, 9, 3, 9},
                  .past_tokens = {0, 9, 1, 14},
                  .into_q_out = true,
                  .with_bad_places = true});
  }
}

// Some requests take no part, at the ends and in between; more than a warp looks at at once.
TEST_F(AppendTest, FindsTheRequestOfEachToken) {
  const CurrentDevice current(0);
  AppendCase many{.spec = {.head_dim = 8}, .to = Destination::contiguous, .heads_q = 0, .heads_kv = 1};
  std::mt19937_64 random(reference::test_seed());
  for (const int requests : {1, 2, 31, 33, 70}) {
    many.new_tokens.clear();
    many.past_tokens.clear();
    for (int i = 0; i < requests; ++i) {
      many.new_tokens.push_back(static_cast<int>(random() % 3));
      many.past_tokens.push_back(static_cast<int>(random() % 3));
    }
    expect_right(many);
  }
}

TEST_F(AppendTest, NothingToDo) {
  const CurrentDevice current(0);
  for (const Destination to : destinations) {
    expect_right(
        {.spec = {.head_dim = 64, .rotary_dim = 64}, .to = to, .new_tokens = {0, 0}, .past_tokens = {1, 2}});
    expect_right(
        {.spec = {.head_dim = 64}, .to = to, .new_tokens = {0, 0}, .past_tokens = {1, 2}, .is_dense = true});
    expect_right({.spec = {.head_dim = 64}, .to = to, .heads_q = 0, .heads_kv = 0});
  }
}

TEST_F(AppendTest, EqualInputsGiveEqualBits) {
  const CurrentDevice current(0);
  const AppendCase problem{.spec = {.rotary_dim = 128, .norm = true}, .into_q_out = true};
  AppendRun run(problem, reference::test_seed());
  const Append kernel = append(problem.spec, context());
  kernel(run.arguments());
  ASSERT_EQ(run.check(), "");
  const std::vector<std::uint8_t> first = run.written();
  for (int round = 0; round < 3; ++round) {
    kernel(run.arguments());
    ASSERT_EQ(run.check(), "");
    EXPECT_EQ(run.written(), first);
  }
}

TEST_F(AppendTest, GraphsReplayOnOtherLengths) {
  const CurrentDevice current(0);
  for (const Destination to : destinations) {
    const AppendCase problem{.spec = {.head_dim = 64, .rotary_dim = 64}, .to = to};
    AppendRun run(problem, reference::test_seed());
    const Append kernel = append(problem.spec, context());
    const TestStream stream;
    const CapturedGraph graph(stream, [&] { kernel(run.arguments(), stream.get()); });
    for (int replay = 0; replay < 3; ++replay) {
      run.fill();
      graph.run(stream);
      EXPECT_EQ(run.check(), "") << "replay " << replay;
    }
  }
}

TEST_F(AppendTest, NotPreparedOnASecondDevice) {
  if (devices().size() < 2) GTEST_SKIP() << "needs two devices";
  const AppendCase problem{.spec = {.head_dim = 64}};
  const Append kernel = [&] {
    const CurrentDevice current(0);
    return append(problem.spec, Context(shared_cache_settings()));
  }();
  AppendRun run(problem, reference::test_seed());
  const CurrentDevice current(1);
  const TestStream stream;
  const CapturedGraph graph(stream, [&] {
    const Error error = error_of([&] { kernel(run.arguments(), stream.get()); });
    EXPECT_EQ(error.code(), ErrorCode::not_prepared);
    EXPECT_THAT(error.message(), HasSubstr("prepare()"));
    kernel.prepare();
  });
}

}  // namespace
}  // namespace jit::testing
