// Scores that dropout keeps, drawn by a kernel ahead of the one that reads bits of them: the same as where consumers draw,
// bit for bit, and what fp64 says.
#include <jit/attention.h>
#include <jit/tuning.h>

#include <functional>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/context/access.h"
#include "generator/context/context_state.h"
#include "tests/device/gpu_fixture.h"
#include "tests/support/backward_run.h"
#include "tests/support/captured_graph.h"
#include "tests/support/error_of.h"
#include "tests/support/random_spec.h"
#include "tests/support/seed.h"
#include "tests/support/shared_cache.h"
#include "tests/support/varlen_backward_run.h"

namespace jit::testing {
namespace {

using reference::draw;
using reference::Random;
using ::testing::HasSubstr;

template <class T>
T pick(std::initializer_list<T> values, Random& random) {
  return values.begin()[draw(random, 0, static_cast<int>(values.size()) - 1)];
}

class DropoutMaskAheadTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped() && native_arch(device_) != Arch{9, 0, 'a'}) GTEST_SKIP() << "needs sm_90a";
  }
};

// Batch entries of one length.
VarlenBackwardCase case_of(AttentionSpec spec, int batch, int heads_kv, int seqlen_q, int seqlen_kv) {
  spec.dropout = true;
  return {.spec = spec,
          .heads_kv = heads_kv,
          .q = {.lengths = std::vector<int>(static_cast<std::size_t>(batch), seqlen_q)},
          .kv = {.lengths = std::vector<int>(static_cast<std::size_t>(batch), seqlen_kv)},
          .seed = reference::next_seed(),
          .dropout_p = 0.3f};
}

// O of this config, precomputed and not.
void expect_equal_outputs(const VarlenBackwardCase& problem, ForwardWgmma config, const Context& context) {
  VarlenBackwardRun run(problem);
  std::vector<std::uint8_t> bytes[2];
  for (const bool ahead : {false, true}) {
    config.dropout_mask_ahead = ahead;
    EXPECT_EQ(run.check_forward(context, config, &bytes[ahead]), "")
        << to_string(problem) << ", " << to_string(KernelConfig(config));
  }
  EXPECT_TRUE(bytes[0] == bytes[1]) << to_string(problem) << ", " << to_string(KernelConfig(config));
}

// Words of one tile: half of one, one, one and a half, and two to four; several chunks of keys, and tiles of queries that
// end within a block.
TEST_F(DropoutMaskAheadTest, WordsOfATile) {
  const CurrentDevice scope(0);
  int index = 0;
  for (const int tile_kv : {32, 64, 96, 128, 192, 224}) {
    if (!is_in_this_run(index++, 2)) continue;
    const int seqlen_kv = tile_kv == 32 ? 1100 : 330;
    expect_equal_outputs(case_of({.head_dim = 16}, 1, 1, tile_kv == 128 ? 150 : 70, seqlen_kv),
                         {.tile_q = 64, .tile_kv = tile_kv}, context());
  }
}

TEST_F(DropoutMaskAheadTest, EntriesHeadsAndTiles) {
  const CurrentDevice scope(0);
  std::vector<std::pair<VarlenBackwardCase, ForwardWgmma>> cases = {
      {case_of({.head_dim = 64, .gqa_ratio = 3, .mask = mask::causal()}, 2, 2, 200, 230),
       {.tile_q = 128, .tile_kv = 64, .stages_v = 2, .order = WarpgroupOrder::ping_pong}},
      {case_of({.head_dim = 128, .mask = mask::sliding_window(70, 10)}, 1, 2, 250, 300),
       {.tile_q = 192, .tile_kv = 64, .stages_q = 2, .output = OutputPlace::separate}},
      {case_of({.dtype = DType::fp16, .head_dim = 40, .head_dim_v = 72, .score = score::softcap(3)}, 3, 1, 65,
               129),
       {.tile_q = 64, .tile_kv = 128}},
      {case_of({.head_dim = 64, .mask = mask::causal(Alignment::top_left)}, 2, 1, 140, 77),
       {.tile_q = 64, .tile_kv = 32, .rescale = Rescale::on_overflow}},
      {case_of({.head_dim = 256, .seqlen_q = 70, .seqlen_kv = 90}, 1, 2, 70, 90),
       {.tile_q = 128, .tile_kv = 64, .output = OutputPlace::direct}}};
  for (const auto& [problem, config] : reference::some_of(cases, 2))
    expect_equal_outputs(problem, config, context());
}

// Lengths that the device knows, and an entry without queries or without keys.
TEST_F(DropoutMaskAheadTest, LengthsOnTheDevice) {
  const CurrentDevice scope(0);
  VarlenBackwardCase problem = case_of({.head_dim = 64, .gqa_ratio = 2, .mask = mask::causal()}, 4, 1, 0, 0);
  problem.q = {.lengths = {0, 70, 1, 129}, .spare = {129, 59, 128, 0}};
  problem.kv = {.lengths = {40, 65, 0, 97}, .spare = {60, 35, 100, 3}};
  expect_equal_outputs(problem, {.tile_q = 64, .tile_kv = 64, .stages_v = 2}, context());
}

TEST_F(DropoutMaskAheadTest, RandomProblems) {
  const CurrentDevice scope(0);
  Random random(reference::test_seed());
  for (int i = 0; i < 4; ++i) {
    AttentionSpec spec{.dtype = pick({DType::fp16, DType::bf16}, random),
                       .head_dim = 8 * draw(random, 1, 16),
                       .gqa_ratio = draw(random, 1, 3),
                       .mask = pick({mask::none(), mask::causal(), mask::causal(Alignment::top_left),
                                     mask::sliding_window(60, 0), mask::prefix(40) || mask::causal()},
                                    random)};
    const VarlenBackwardCase problem =
        case_of(spec, draw(random, 1, 3), draw(random, 1, 2), draw(random, 1, 270), draw(random, 1, 270));
    ForwardWgmma config{.tile_q = 64 * draw(random, 1, 2),
                        .tile_kv = 32 * draw(random, 1, 4),
                        .stages_v = draw(random, 1, 2)};
    expect_equal_outputs(problem, config, context());
  }
}

// Gradients of this config, precomputed and not. Where blocks take turns sums have one order, and bits are compared.
void expect_equal_gradients(const VarlenBackwardCase& problem, BackwardWgmma config, const Context& context) {
  VarlenBackwardRun run(problem);
  std::vector<std::uint8_t> bytes[2];
  for (const bool ahead : {false, true}) {
    config.dropout_mask_ahead = ahead;
    run.poison_gradients();
    run.compute(context, config);
    EXPECT_EQ(run.check(), "") << to_string(problem) << ", " << to_string(KernelConfig(config));
    bytes[ahead] = run.gradients();
  }
  EXPECT_TRUE(!config.deterministic || bytes[0] == bytes[1])
      << to_string(problem) << ", " << to_string(KernelConfig(config));
}

// Consumers of rows, beside one of dQ and not, and with roles.
TEST_F(DropoutMaskAheadTest, Gradients) {
  const CurrentDevice scope(0);
  std::vector<std::pair<VarlenBackwardCase, BackwardWgmma>> cases = {
      {case_of({.head_dim = 64, .gqa_ratio = 2, .mask = mask::causal()}, 2, 1, 150, 200), {.stages = 4}},
      {case_of({.head_dim = 128, .mask = mask::sliding_window(50, 10)}, 1, 2, 200, 270), {}},
      {case_of({.head_dim = 128, .score = score::softcap(3)}, 2, 1, 70, 150), {}},
      {case_of({.dtype = DType::fp16, .head_dim = 24, .head_dim_v = 40}, 2, 2, 65, 33), {.stages = 4}},
      {case_of({.head_dim = 136, .head_dim_v = 64, .score = score::softcap(3)}, 1, 1, 70, 150), {}},
      {case_of({.head_dim = 192, .mask = mask::causal(Alignment::top_left)}, 1, 2, 140, 100), {}}};
  for (auto& [problem, config] : reference::some_of(cases, 2)) {
    for (const bool deterministic : {false, true}) {
      BackwardWgmma own = config;
      own.deterministic = deterministic;
      expect_equal_gradients(problem, own, context());
    }
  }
}

TEST_F(DropoutMaskAheadTest, GradientsOfRandomProblems) {
  const CurrentDevice scope(0);
  Random random(reference::test_seed());
  for (int i = 0; i < 2; ++i) {
    const AttentionSpec spec{.head_dim = 8 * draw(random, 1, 20),
                             .gqa_ratio = draw(random, 1, 3),
                             .mask = pick({mask::none(), mask::causal(), mask::sliding_window(60, 0),
                                           mask::prefix(40) || mask::causal()},
                                          random)};
    expect_equal_gradients(case_of(spec, draw(random, 1, 2), 1, draw(random, 1, 270), draw(random, 1, 270)),
                           {.stages = 2, .deterministic = true}, context());
  }
}

// The plan of calls whose lengths the device knows, and what is sized by its spec.
TEST_F(DropoutMaskAheadTest, GradientsOfLengthsOnTheDevice) {
  const CurrentDevice scope(0);
  VarlenBackwardCase problem = case_of({.head_dim = 64, .gqa_ratio = 2, .mask = mask::causal()}, 4, 1, 0, 0);
  problem.spec.sequences_kv = SequenceKind::padded;
  problem.q = {.lengths = {0, 70, 1, 129}, .spare = {129, 59, 128, 0}};
  problem.kv = {.lengths = {40, 65, 0, 97}, .spare = {60, 35, 100, 3}};
  expect_equal_gradients(problem, {.stages = 2}, context());
}

// A mask that knows its ranges by arrays: all is drawn that may be seen.
TEST_F(DropoutMaskAheadTest, DocumentsAreThoseOfFp64) {
  const BackwardRun run({.spec = {.head_dim = 64, .dropout = true, .mask = mask::document()},
                         .batch = 2,
                         .heads_kv = 1,
                         .seqlen_q = 150,
                         .seqlen_kv = 150,
                         .seed = reference::test_seed(),
                         .dropout_p = 0.25f});
  EXPECT_EQ(
      run.check_forward(context(), ForwardWgmma{.tile_q = 64, .tile_kv = 64, .dropout_mask_ahead = true}),
      "");
}

TEST_F(DropoutMaskAheadTest, ARateOfZeroKeepsAll) {
  VarlenBackwardCase problem = case_of({.head_dim = 64}, 1, 1, 70, 150);
  problem.dropout_p = 0;
  const CurrentDevice scope(0);
  expect_equal_outputs(problem, {.tile_q = 64, .tile_kv = 96}, context());
}

// Earlier contents of the workspace decide nothing: neither ones, nor zeros.
TEST_F(DropoutMaskAheadTest, AnyWorkspaceWillDo) {
  const CurrentDevice scope(0);
  const StreamMemory& memory = Access::state(context())->memory;
  const VarlenBackwardCase problem =
      case_of({.head_dim = 64, .mask = mask::causal(Alignment::top_left)}, 2, 2, 130, 150);
  const ForwardWgmma config{.tile_q = 64, .tile_kv = 64, .dropout_mask_ahead = true};
  const VarlenBackwardRun run(problem);
  // Whole tiles of queries and of keys, a bit for each score.
  const std::size_t bytes = 2 * 2 * 192 * 192 / 8;
  const auto fill = [&](unsigned char value) {
    void* const workspace = StreamLease(memory, 0, nullptr).workspace(bytes);
    check(driver().cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(workspace), value, bytes, nullptr),
          "cuMemsetD8Async");
    return workspace;
  };
  std::vector<std::uint8_t> outputs[2];
  for (const bool ones : {false, true}) {
    const void* const workspace = fill(ones ? 0xff : 0);
    EXPECT_EQ(run.check_forward(context(), config, &outputs[ones]), "");
    std::vector<unsigned char> left(bytes);
    check(driver().cuMemcpyDtoHAsync(left.data(), reinterpret_cast<CUdeviceptr>(workspace), bytes, nullptr),
          "cuMemcpyDtoHAsync");
    check(driver().cuStreamSynchronize(nullptr), "cuStreamSynchronize");
    const auto count = [&](unsigned char value) { return std::count(left.begin(), left.end(), value); };
    EXPECT_LT(count(ones ? 0xff : 0), static_cast<std::ptrdiff_t>(bytes / 2))
        << "it is another workspace than this test looks at";
    // 16 queries by 64 keys take 128 bytes. The first queries see the first of three tiles.
    EXPECT_EQ(std::count(left.begin() + 128, left.begin() + 3 * 128, ones ? 0xff : 0), 2 * 128)
        << "what no query sees was drawn";
  }
  EXPECT_TRUE(outputs[0] == outputs[1]);
}

// Both kernels are part of a graph, which reads seed and offset when it runs.
TEST_F(DropoutMaskAheadTest, AGraphDrawsAnew) {
  const CurrentDevice scope(0);
  const BackwardRun run({.spec = {.head_dim = 64, .dropout = true},
                         .seqlen_q = 70,
                         .seqlen_kv = 83,
                         .seed = reference::test_seed(),
                         .dropout_p = 0.5f});
  const BackwardArguments given = run.arguments();
  DeviceTensor first(DType::bf16, {1, 70, 1, 64}), second(DType::bf16, {1, 70, 1, 64});
  for (DeviceTensor* const o : {&first, &second}) {
    o->poison();
    o->upload();
  }
  const Attention attend =
      attention({.head_dim = 64, .dropout = true}, ForwardWgmma{.dropout_mask_ahead = true}, context());
  const auto arguments = [&](DeviceTensor& o) {
    return AttentionArguments{.q = given.q,
                              .k = given.k,
                              .v = given.v,
                              .o = o.view(),
                              .dropout_p = given.dropout_p,
                              .rng_state = given.rng_state};
  };
  const TestStream stream;
  const CapturedGraph graph(stream, [&] { attend(arguments(first), stream.get()); });
  const std::uint64_t seeds[][2] = {{1, 2}, {3, 4}};
  std::vector<std::vector<unsigned char>> outputs;
  for (const auto& seed : seeds) {
    run.upload_rng_state(seed);
    graph.run(stream);
    attend(arguments(second), stream.get());
    stream.synchronize();
    first.download();
    second.download();
    EXPECT_TRUE(first.bytes() == second.bytes());
    outputs.emplace_back(first.bytes().begin(), first.bytes().end());
  }
  EXPECT_FALSE(outputs[0] == outputs[1]);
}

// The cost model's plan, without a config: as long as there is room for bits.
TEST_F(DropoutMaskAheadTest, IsChosenWhereThereIsRoom) {
  const Context context(shared_cache_settings());
  const Attention attend = attention({.head_dim = 128, .dropout = true}, {}, context);
  const auto has_dropout_mask_ahead = [&](const KernelConfig& config) {
    const auto* const own = std::get_if<ForwardWgmma>(&config);
    return own != nullptr && own->dropout_mask_ahead;
  };
  const auto chosen = [&](std::int64_t batch, std::int64_t tokens) {
    const AttentionShape shape{.batch = batch, .heads_q = 16, .seqlen_q = tokens, .seqlen_kv = tokens};
    return has_dropout_mask_ahead(attend.kernel(sized_arguments(attend.spec(), shape)).config());
  };
  EXPECT_TRUE(chosen(2, 8192));
  EXPECT_FALSE(chosen(2, 32768)) << "the workspace would be larger than it may";
  EXPECT_FALSE(has_dropout_mask_ahead(attend.kernel().config()))
      << "calls of all sizes may run it under capture";
}

TEST_F(DropoutMaskAheadTest, WhatCannotBeServedIsRefused) {
  AttentionSpec varlen{.head_dim = 64, .dropout = true};
  varlen.sequences_q = varlen.sequences_kv = SequenceKind::varlen;
  for (const AttentionSpec& spec : {varlen, AttentionSpec{.head_dim = 64}}) {
    const Error error =
        error_of([&] { attention(spec, ForwardWgmma{.dropout_mask_ahead = true}, context()); });
    EXPECT_EQ(error.code(), ErrorCode::no_valid_config);
    EXPECT_THAT(error.message(), HasSubstr("dropout_mask_ahead must be false"));
  }
}

}  // namespace
}  // namespace jit::testing
