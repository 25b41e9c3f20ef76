// Gradients on a device against fp64 on the CPU: head dims, heads, lengths, layouts, masks, scores, configs.
#include <jit/attention.h>
#include <jit/emulation.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/device/gpu_fixture.h"
#include "tests/support/backward_run.h"
#include "tests/support/captured_graph.h"
#include "tests/support/error_of.h"
#include "tests/support/host_functors.h"
#include "tests/support/seed.h"
#include "tests/support/shared_cache.h"

namespace jit::testing {
namespace {

class BackwardTest : public GpuTest {
 protected:
  static void expect_right(const AttentionCase& problem) {
    try {
      BackwardRun run(problem);
      const bool deterministic = problem.seed % 2 == 0;  // every other one
      attention_when_called(problem.spec, context()).backward(run.arguments(deterministic));
      EXPECT_EQ(run.check(), "") << to_string(problem) << ", deterministic " << deterministic;
    } catch (const Error& error) {
      ADD_FAILURE() << to_string(problem) << ": " << error.what() << "\n" << error.log();
    }
  }
};

TEST_F(BackwardTest, HeadDims) {
  int index = 0;
  for (const int head_dim : {8, 24, 64, 72, 128, 200, 256, 320, 512}) {
    // Two of three in one of the two types on an emulated device.
    if (is_in_this_run(index, 3)) expect_right(problem_of({.head_dim = head_dim}, 1, 1, 35, 41));
    if (is_in_this_run(++index, 5))
      expect_right(problem_of({.dtype = DType::fp16, .head_dim = head_dim}, 1, 1, 35, 41));
  }
  for (const auto& [d, dv] : {std::pair(192, 128), {64, 256}, {256, 8}, {40, 72}, {512, 64}, {24, 392}}) {
    if (is_in_this_run(index++, 5)) expect_right(problem_of({.head_dim = d, .head_dim_v = dv}, 1, 2, 35, 41));
  }
}

TEST_F(BackwardTest, QueryHeadsShareKvHeads) {
  int index = 0;
  for (const int ratio : {2, 3, 8}) {
    ++index;  // the other mask with the next ratio
    for (const bool causal : {false, true}) {
      if (!is_in_this_run(index++, 2)) continue;
      AttentionSpec spec{.head_dim = 64, .gqa_ratio = ratio};
      if (causal) spec.mask = mask::causal();
      expect_right(problem_of(spec, 2, ratio == 8 ? 1 : 2, 37, 50));
    }
  }
}

TEST_F(BackwardTest, Lengths) {
  int index = 0;
  for (const Mask& mask : {mask::none(), mask::causal(), mask::causal(Alignment::top_left)}) {
    if (!is_in_this_run(index++, 3)) continue;
    const AttentionSpec spec{.head_dim = 32, .mask = mask};
    for (const auto& [seqlen_q, seqlen_kv] :
         {std::pair(1, 1), {1, 70}, {70, 1}, {15, 17}, {64, 64}, {65, 129}, {129, 65}, {200, 40}})
      expect_right(problem_of(spec, 1, 2, seqlen_q, seqlen_kv));
  }
}

// Gradients of what nobody sees, or of nothing, are zeros.
TEST_F(BackwardTest, EmptySequences) {
  const AttentionSpec spec{.head_dim = 32};
  for (const auto& [batch, seqlen_q, seqlen_kv] : {std::tuple(1, 0, 20), {1, 20, 0}, {1, 0, 0}, {0, 5, 5}})
    expect_right(problem_of(spec, batch, 1, seqlen_q, seqlen_kv));
}

TEST_F(BackwardTest, BakedLengths) {
  expect_right(
      problem_of({.head_dim = 32, .seqlen_q = 40, .seqlen_kv = 77, .mask = mask::causal()}, 2, 1, 40, 77));
}

TEST_F(BackwardTest, RowsApartAndAlignments) {
  int index = 0;
  for (const int head_dim : {40, 64}) {
    ++index;  // the other alignments with the next head dim
    for (const int alignment : {16, 8, 4, 2}) {
      if (!is_in_this_run(index++, 4)) continue;
      AttentionCase problem =
          problem_of({.head_dim = head_dim, .gqa_ratio = 2, .alignment = alignment, .mask = mask::causal()},
                     2, 2, 33, 47);
      problem.layout = Layout::padded;
      expect_right(problem);
    }
  }
}

TEST_F(BackwardTest, Masks) {
  std::vector<Mask> masks = {
      mask::sliding_window(20, 0),
      mask::sliding_window(9, 30, Alignment::top_left),
      mask::prefix(30) || mask::causal(),
      mask::prefix_lengths(),
      mask::document(),
      mask::document() && mask::causal(),
      mask::tree(),
      mask::tree() && mask::sliding_window(30),
      mask::block_mask(16, 32),
      mask::block_mask(64, 128, mask::causal()),
      !mask::causal(),
      mask::sliding_window(10, -1) && !mask::prefix(5),
  };
  for (const reference::TextMask& text : reference::text_masks()) masks.push_back(mask::text(text.text));
  int index = 0;
  for (const Mask& mask : masks) {
    if (is_in_this_run(index++, 5))
      expect_right(problem_of({.head_dim = 32, .gqa_ratio = 2, .mask = mask}, 2, 1, 70, 75));
  }
}

// More tiles of queries than a warp has lanes, of which each asks about one.
TEST_F(BackwardTest, MasksOfManyTilesOfQueries) {
  int index = 0;
  for (const Mask& mask :
       {mask::document(), mask::document() && mask::causal(), mask::sliding_window(300, 20), mask::tree(),
        !mask::document() && !mask::prefix(20), mask::document() && (mask::document() || mask::causal())}) {
    if (!is_in_this_run(index++, 3)) continue;
    expect_right(problem_of({.head_dim = 16, .gqa_ratio = 2, .mask = mask}, 1, 1, 2120, 150));
  }
}

TEST_F(BackwardTest, QueriesWithoutKeys) {
  // The first queries of longer sequences see nothing, and the last keys of others are seen by nobody.
  expect_right(problem_of({.head_dim = 64, .mask = mask::causal()}, 1, 2, 100, 30));
  expect_right(problem_of({.head_dim = 64, .mask = mask::causal(Alignment::top_left)}, 1, 2, 30, 100));
  expect_right(problem_of({.head_dim = 64, .mask = mask::prefix(0)}, 1, 2, 40, 40));
}

TEST_F(BackwardTest, BuiltInScores) {
  int index = 0;
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    for (const Score& score :
         {score::softcap(3), score::alibi(), score::bias(dtype).then(score::softcap(5))}) {
      if (!is_in_this_run(index++, 5)) continue;
      expect_right(
          problem_of({.dtype = dtype, .head_dim = 32, .gqa_ratio = 2, .mask = mask::causal(), .score = score},
                     2, 1, 45, 60));
    }
  }
  for (const reference::TextScore& text : reference::text_scores()) {
    if (is_in_this_run(index++, 5))
      expect_right(problem_of({.head_dim = 32, .score = score::text(text.text)}, 1, 2, 45, 60));
  }
}

// Texts that are not linear in the score: all operators, and functions of which the derivative is known.
TEST_F(BackwardTest, TextsDifferentiateThemselves) {
  struct Text {
    const char* body;
    double (*meaning)(double);
  };
  const std::vector<Text> texts = {
      {"return 2 * tanhf(score / 2) - 0.125f * score * score;",
       [](double s) { return 2 * std::tanh(s / 2) - 0.125 * s * s; }},
      {"auto x = score; x *= 0.5f; x += 1; x -= -0.25f; x /= 3;\nreturn -x + score / (2.0f + fabsf(score));",
       [](double s) { return -(s * 0.5 + 1.25) / 3 + s / (2 + std::fabs(s)); }},
      {"return score > 0.3f ? expf(0.5f * score) : fminf(score, -1.0f) + fmaxf(-2.0f, 1.5f * score);",
       [](double s) { return s > 0.3 ? std::exp(0.5 * s) : std::min(s, -1.0) + std::max(-2.0, 1.5 * s); }},
      {"return log1pf(exp2f(score)) + sqrtf(score * score + 1) * sinf(score) - cosf(score) * erff(score);",
       [](double s) {
         return std::log1p(std::exp2(s)) + std::sqrt(s * s + 1) * std::sin(s) - std::cos(s) * std::erf(s);
       }},
      {"return logf(score * score + 2) + log2f(powf(fabsf(score) + 1, 1.5f)) + rsqrtf(fmaf(score, score, "
       "1));",
       [](double s) {
         return std::log(s * s + 2) + std::log2(std::pow(std::fabs(s) + 1, 1.5)) + 1 / std::sqrt(s * s + 1);
       }},
      // A function of floats is that of floats here, too.
      {"if (isnan(score)) return score;\nconst float base = powf(2.0f, floorf(0.7f));\n"
       "return powf(base + 0.5f, score) - score * floor(0.3f) + atanf(score) * erfc(score) + pow(score, 2);",
       [](double s) { return std::pow(1.5, s) + std::atan(s) * std::erfc(s) + s * s; }},
  };
  int index = 0;
  for (const Text& text : texts) {
    if (!is_in_this_run(index++, 5)) continue;
    AttentionCase problem =
        problem_of({.head_dim = 16, .score = score::text({.name = "text", .body = text.body})}, 1, 1, 20, 24);
    problem.score = [&](double s, int, int, int, int) { return text.meaning(s); };
    expect_right(problem);
  }
}

// A value that depends on the score cannot become a float, which would lose its derivative: an error, not a
// wrong gradient.
TEST_F(BackwardTest, ATextThatLosesTheDerivativeIsRefused) {
  const AttentionSpec spec{
      .head_dim = 16, .score = score::text({.name = "lossy", .body = "float x = score * 2;\nreturn x;"})};
  AttentionCase problem = problem_of(spec, 1, 1, 4, 4);
  problem.score = [](double s, int, int, int, int) { return 2 * s; };
  const BackwardRun run(problem);
  const Error error = error_of([&] { attention_when_called(spec, context()).backward(run.arguments()); });
  EXPECT_EQ(error.code(), ErrorCode::compile_failed);
  EXPECT_THAT(error.log(), ::testing::HasSubstr("lossy"));
  EXPECT_THAT(error.log(), ::testing::HasSubstr("Dual"));
}

// Every config of the two families is right, not only those that the cost models prefer.
TEST_F(BackwardTest, Configs) {
  const CurrentDevice scope(0);
  const AttentionSpec spec{.head_dim = 48, .head_dim_v = 64, .gqa_ratio = 2, .mask = mask::causal()};
  BackwardRun run(problem_of(spec, 1, 1, 75, 83));
  const std::vector<std::pair<BackwardDqMmaSync, BackwardDkvMmaSync>> configs = {
      {{.tile_q = 16, .tile_kv = 16, .warps = 1, .stages = 1},
       {.tile_q = 16, .tile_kv = 16, .warps = 1, .stages = 1}},
      {{.tile_q = 32, .tile_kv = 48, .warps = 1, .stages = 3},
       {.tile_q = 48, .tile_kv = 32, .warps = 1, .stages = 3}},
      {{.tile_q = 96, .tile_kv = 32, .warps = 3, .stages = 2},
       {.tile_q = 32, .tile_kv = 96, .warps = 3, .stages = 2}},
      {{.tile_q = 128, .tile_kv = 128, .warps = 8, .stages = 1},
       {.tile_q = 128, .tile_kv = 128, .warps = 8, .stages = 1}},
      {{.tile_q = 64, .tile_kv = 16, .warps = 4, .stages = 4},
       {.tile_q = 16, .tile_kv = 64, .warps = 2, .stages = 4, .separate = true}},
      {{.tile_q = 64, .tile_kv = 64, .warps = 2, .stages = 1},
       {.tile_q = 64, .tile_kv = 64, .warps = 4, .stages = 1, .separate = true}},
  };
  int index = 0;
  for (const auto& [dq, dkv] : configs) {
    if (!is_in_this_run(index++, 3)) continue;
    run.poison_gradients();
    run.compute(context(), dq, dkv);
    EXPECT_EQ(run.check(), "") << to_string(KernelConfig(dq)) << ", " << to_string(KernelConfig(dkv));
  }
}

TEST_F(BackwardTest, ConfigsOfOnePass) {
  if (native_arch(device_) != Arch{9, 0, 'a'}) GTEST_SKIP() << "kernels of backward_wgmma are for sm_90a";
  const CurrentDevice scope(0);
  int index = 0;
  for (const AttentionSpec& spec : std::vector<AttentionSpec>{
           {.head_dim = 128, .gqa_ratio = 2, .mask = mask::causal()},
           {.head_dim = 64, .score = score::softcap(3)},
           {.head_dim = 96, .head_dim_v = 40, .mask = mask::sliding_window(70, 10)},
           // Lanes of a warp look together at tiles of the first, apart at those of the second.
           {.head_dim = 32, .mask = mask::document()},
           {.head_dim = 32, .mask = mask::block_mask(64, 32)},
           // Consumers of rows have no registers for keys beside these.
           {.head_dim = 64, .gqa_ratio = 2, .mask = mask::document()},
           {.head_dim = 128, .gqa_ratio = 2, .mask = mask::tree()},
           {.dtype = DType::fp16, .head_dim = 48, .head_dim_v = 64, .score = score::bias(DType::fp16)},
           {.head_dim = 40, .mask = !mask::causal() || mask::prefix(7)}}) {
    BackwardRun run(problem_of(spec, 1, 2, 150, 290));
    ++index;  // the other config with the next spec
    for (const BackwardWgmma& config :
         std::vector<BackwardWgmma>{{.stages = spec.head_dim == 64 ? 4 : 2}, {.deterministic = true}}) {
      if (!is_in_this_run(index++, 5)) continue;
      run.poison_gradients();
      run.compute(context(), config);
      EXPECT_EQ(run.check(), "") << to_string(spec) << ", " << to_string(KernelConfig(config));
    }
  }
}

// Consumers with roles.
TEST_F(BackwardTest, ConfigsOfOnePassAboveHeadDimsOf128) {
  if (native_arch(device_) != Arch{9, 0, 'a'}) GTEST_SKIP() << "kernels of backward_wgmma are for sm_90a";
  const CurrentDevice scope(0);
  int index = 0;
  for (const AttentionSpec& spec : std::vector<AttentionSpec>{
           {.head_dim = 256, .gqa_ratio = 2, .mask = mask::causal()},
           {.head_dim = 136, .head_dim_v = 200, .score = score::softcap(3)},
           {.dtype = DType::fp16, .head_dim = 192, .head_dim_v = 128, .mask = mask::sliding_window(70, 10)},
           {.head_dim = 32, .head_dim_v = 256, .mask = mask::block_mask(64, 32)},
           {.head_dim = 192, .mask = mask::document() && mask::causal()},
           {.head_dim = 256, .mask = mask::tree()}}) {
    BackwardRun run(problem_of(spec, 1, 1, 150, 90));
    ++index;  // the other config with the next spec
    for (const bool deterministic : {false, true}) {
      for (const bool pair : {false, true}) {
        if (pair && spec.head_dim <= 64) continue;
        if (!is_in_this_run(index++, 4)) continue;
        const BackwardWgmma config{.deterministic = deterministic, .pair = pair};
        run.poison_gradients();
        run.compute(context(), config);
        EXPECT_EQ(run.check(), "") << to_string(spec) << ", " << to_string(KernelConfig(config));
      }
    }
  }
}

TEST_F(BackwardTest, PairsAreForRolesAndTwoPanels) {
  if (native_arch(device_) != Arch{9, 0, 'a'}) GTEST_SKIP() << "kernels of backward_wgmma are for sm_90a";
  const CurrentDevice scope(0);
  for (const auto& [d, dv] : {std::pair(128, 128), {64, 256}}) {
    BackwardRun run(problem_of({.head_dim = d, .head_dim_v = dv}, 1, 1, 64, 64));
    const Error error = error_of([&] { run.compute(context(), BackwardWgmma{.pair = true}); });
    EXPECT_EQ(error.code(), ErrorCode::no_valid_config);
    EXPECT_THAT(error.message(), ::testing::HasSubstr("pair must be false"));
  }
}

// Pairs of blocks: the last tile has keys for one of them alone, or for both; more tiles than pairs; and bitwise
// identical results.
TEST_F(BackwardTest, PairsOfBlocks) {
  if (native_arch(device_) != Arch{9, 0, 'a'}) GTEST_SKIP() << "kernels of backward_wgmma are for sm_90a";
  const CurrentDevice scope(0);
  int index = 0;
  for (const auto& [spec, heads, seqlen_q, seqlen_kv] : std::vector<std::tuple<AttentionSpec, int, int, int>>{
           {{.head_dim = 256}, 1, 130, 300},
           {{.head_dim = 256, .mask = mask::causal()}, 2, 200, 200},
           {{.head_dim = 72, .head_dim_v = 136, .mask = mask::causal()}, 35, 100, 290},
           {{.head_dim = 200, .head_dim_v = 136}, 1, 70, 150},
           {{.head_dim = 192, .dropout = true}, 1, 70, 100}}) {
    for (const bool deterministic : {false, true}) {
      if (!is_in_this_run(index++, 3)) continue;
      BackwardRun run(problem_of(spec, 1, heads, seqlen_q, seqlen_kv));
      const BackwardWgmma config{.deterministic = deterministic, .pair = true};
      run.poison_gradients();
      run.compute(context(), config);
      EXPECT_EQ(run.check(), "") << to_string(spec) << ", " << to_string(KernelConfig(config));
      if (!deterministic) continue;
      const std::vector<std::uint8_t> first = run.gradients();
      for (int i = 0; i < sized(20, 1); ++i) {
        run.poison_gradients();
        run.compute(context(), config);
        EXPECT_EQ(run.gradients(), first) << to_string(spec);
      }
    }
  }
}

// More tiles of keys than blocks at a time, some of which no query sees, others many.
TEST_F(BackwardTest, BlocksOfOnePassTakeTilesOneAfterAnother) {
  if (native_arch(device_) != Arch{9, 0, 'a'}) GTEST_SKIP() << "kernels of backward_wgmma are for sm_90a";
  const CurrentDevice scope(0);
  for (const AttentionSpec& spec :
       std::vector<AttentionSpec>{{.head_dim = 16, .mask = mask::causal()},
                                  {.head_dim = 8, .head_dim_v = 136, .mask = mask::causal()}}) {
    const int tiles = spec.value_head_dim() > 128 ? 5 : 3;  // of a head
    BackwardRun run(problem_of(spec, 1, 150 / tiles, 100, 290));
    run.poison_gradients();
    run.compute(context(), BackwardWgmma{});
    EXPECT_EQ(run.check(), "") << to_string(spec);
  }
}

// The last tile of keys adds first in the first two heads, and the first one in the others.
TEST_F(BackwardTest, BlocksThatDrawTilesTakeTurns) {
  if (native_arch(device_) != Arch{9, 0, 'a'}) GTEST_SKIP() << "kernels of backward_wgmma are for sm_90a";
  const CurrentDevice scope(0);
  int index = 0;
  for (const AttentionSpec& spec :
       std::vector<AttentionSpec>{{.head_dim = 64, .gqa_ratio = 2, .mask = mask::causal()},
                                  {.head_dim = 128, .mask = mask::causal(Alignment::top_left)},
                                  {.head_dim = 40, .mask = mask::document() && mask::causal()},
                                  {.head_dim = 72, .gqa_ratio = 3, .mask = mask::sliding_window(70, 10)},
                                  {.head_dim = 136, .mask = mask::prefix(100) || mask::causal()},
                                  {.head_dim = 32, .mask = mask::causal(), .score = score::softcap(3)}}) {
    if (!is_in_this_run(index++, 3)) continue;
    BackwardRun run(problem_of(spec, 2, 2, 270, 420));
    std::vector<std::uint8_t> first;
    for (int i = 0; i < sized(20, 2); ++i) {
      run.poison_gradients();
      run.compute(context(), BackwardWgmma{.deterministic = true});
      EXPECT_EQ(run.check(), "") << to_string(spec);
      if (i == 0) first = run.gradients();
      EXPECT_EQ(run.gradients(), first) << to_string(spec);
    }
  }
}

TEST_F(BackwardTest, RepeatedRunsAreBitIdentical) {
  const AttentionSpec spec{
      .head_dim = 64, .gqa_ratio = 4, .mask = mask::causal(), .score = score::softcap(10)};
  BackwardRun run(problem_of(spec, 2, 1, 130, 150));
  const Attention attention = attention_when_called(spec, context());
  std::vector<std::uint8_t> first;
  for (int i = 0; i < sized(20, 3); ++i) {
    run.poison_gradients();
    attention.backward(run.arguments(true));
    if (i == 0) first = run.gradients();
    EXPECT_EQ(run.gradients(), first);
  }
}

// Calls side by side may have multiprocessors that the blocks of another one's head want.
TEST_F(BackwardTest, BlocksThatWaitForManyBeginTogether) {
  if (!device_.emulated) GTEST_SKIP() << "an emulated device tells how kernels were launched";
  if (native_arch(device_) != Arch{9, 0, 'a'}) GTEST_SKIP() << "kernels of backward_wgmma are for sm_90a";
  const CurrentDevice scope(0);
  const int tiles = device_.sm_count / 8 + 1;
  for (const auto& [key_tiles, deterministic, expected] :
       {std::tuple(tiles, true, 1), {tiles - 1, true, 0}, {tiles, false, 0}}) {
    BackwardRun run(problem_of({.head_dim = 16}, 1, 1, 128, 128 * key_tiles));
    run.poison_gradients();
    const TraceScope traces;
    run.compute(context(), BackwardWgmma{.deterministic = deterministic});
    EXPECT_EQ(std::ranges::count_if(traces.launches(), &LaunchTrace::is_cooperative), expected)
        << key_tiles << " " << deterministic;
    EXPECT_EQ(run.check(), "");
  }
}

// Tiles of one axis, and batch entries, that a grid has no room for.
TEST_F(BackwardTest, BeyondOneGrid) {
  if (device_.emulated) GTEST_SKIP() << "takes minutes on an emulated device";
  expect_right(problem_of({.head_dim = 8}, 70000, 1, 2, 3));
}

TEST_F(BackwardTest, KernelsCanBeRead) {
  const AttentionSpec spec{.head_dim = 64};
  const BackwardRun run(problem_of(spec, 1, 1, 20, 20));
  const Attention attention = attention_when_called(spec, context());
  const bool has_one_pass = native_arch(device_) == Arch{9, 0, 'a'};
  const std::vector<std::string_view> two_passes = {"backward_dq_mma_sync", "backward_dkv_mma_sync"};
  for (const bool deterministic : {false, true}) {
    const std::vector<CompiledKernel> kernels = attention.backward_kernels(run.arguments(deterministic));
    const std::vector<std::string_view> families =
        has_one_pass ? std::vector<std::string_view>(3, "backward_wgmma") : two_passes;
    ASSERT_EQ(kernels.size(), families.size());
    for (std::size_t i = 0; i < kernels.size(); ++i) EXPECT_EQ(family_name(kernels[i].config()), families[i]);
    for (const CompiledKernel& kernel : kernels) {
      EXPECT_THAT(kernel.source(), ::testing::HasSubstr("Attention backward"));
      EXPECT_THAT(kernel.why(), ::testing::HasSubstr("cost model"));
    }
  }
}

TEST_F(BackwardTest, CapturedOnceItIsPrepared) {
  const CurrentDevice scope(0);
  const AttentionSpec spec{.head_dim = 72};
  BackwardRun run(problem_of(spec, 1, 1, 40, 40));
  const Context fresh(shared_cache_settings());  // in which no other test has prepared anything
  const Attention attention = attention_when_called(spec, fresh);
  const TestStream stream;
  const CapturedGraph nothing(stream, [&] {
    const Error error = error_of([&] { attention.backward(run.arguments(), stream.get()); });
    EXPECT_EQ(error.code(), ErrorCode::not_prepared);
    EXPECT_THAT(error.message(), ::testing::HasSubstr("prepare_backward()"));
  });
  attention.prepare_backward(run.arguments());
  const CapturedGraph graph(stream, [&] { attention.backward(run.arguments(), stream.get()); });
  for (int i = 0; i < 2; ++i) {
    run.poison_gradients();
    graph.run(stream);
    EXPECT_EQ(run.check(), "");
  }
}

TEST_F(BackwardTest, ConfigsOfBackwardAreNotForForward) {
  const AttentionSpec spec{.head_dim = 64};
  const Error error = error_of([&] { attention(spec, BackwardDqMmaSync{}, context()); });
  EXPECT_EQ(error.code(), ErrorCode::no_valid_config);
  EXPECT_THAT(error.message(),
              ::testing::HasSubstr("kernels of family=backward_dq_mma_sync compute backward_dq"));
}

}  // namespace
}  // namespace jit::testing
