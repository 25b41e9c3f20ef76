// Dropout on a device against fp64 with the host's own random numbers. Python's tests have numbers of NumPy beside it.
#include <jit/attention.h>
#include <jit/tuning.h>

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/context/access.h"
#include "generator/context/context_state.h"
#include "generator/plan/kernel_choice.h"
#include "generator/problem/arguments.h"
#include "generator/tuning/forward_buffers.h"
#include "tests/device/gpu_fixture.h"
#include "tests/support/backward_run.h"
#include "tests/support/captured_graph.h"
#include "tests/support/error_of.h"
#include "tests/support/fresh_folder.h"
#include "tests/support/seed.h"
#include "tests/support/shared_cache.h"
#include "tests/support/varlen_backward_run.h"

namespace jit::testing {
namespace {

using ::testing::HasSubstr;

class DropoutTest : public GpuTest {
 protected:
  static AttentionCase case_of(AttentionSpec spec, float rate, int batch, int heads_kv, int seqlen_q,
                               int seqlen_kv) {
    spec.dropout = true;
    AttentionCase problem = problem_of(spec, batch, heads_kv, seqlen_q, seqlen_kv);
    problem.dropout_p = rate;
    return problem;
  }
};

TEST_F(DropoutTest, GradientsAreThoseOfFp64) {
  for (const AttentionCase& problem :
       {case_of({.head_dim = 64, .gqa_ratio = 2, .mask = mask::causal(), .score = score::softcap(3)}, 0.1f, 2,
                2, 45, 70),
        case_of({.dtype = DType::fp16, .head_dim = 24, .head_dim_v = 40, .alignment = 2}, 0.5f, 1, 1, 19, 33),
        case_of({.head_dim = 32}, 0.9f, 1, 2, 50, 40)}) {
    BackwardRun run(problem);
    attention_when_called(problem.spec, context()).backward(run.arguments());
    EXPECT_EQ(run.check(), "") << to_string(problem) << ", rate " << problem.dropout_p;
  }
}

// Whose rows are groups of 32 keys, halves of them, and neither; tiles of one group of queries, of two and of three.
TEST_F(DropoutTest, EveryConfigDropsTheSame) {
  const CurrentDevice scope(0);
  const AttentionCase problem =
      case_of({.head_dim = 16, .gqa_ratio = 2, .mask = mask::causal()}, 0.3f, 1, 1, 75, 83);
  BackwardRun run(problem);
  const std::vector<std::pair<BackwardDqMmaSync, BackwardDkvMmaSync>> configs = {
      {{.tile_q = 16, .tile_kv = 32, .warps = 1, .stages = 1}, {.tile_q = 16, .tile_kv = 16, .warps = 1}},
      {{.tile_q = 32, .tile_kv = 64, .warps = 1, .stages = 2}, {.tile_q = 48, .tile_kv = 32, .warps = 1}},
      {{.tile_q = 64, .tile_kv = 96, .warps = 4, .stages = 2},
       {.tile_q = 32, .tile_kv = 96, .warps = 2, .separate = true}},
  };
  for (const auto& [dq, dkv] : configs) {
    run.poison_gradients();
    run.compute(context(), dq, dkv);
    EXPECT_EQ(run.check(), "") << to_string(KernelConfig(dq)) << ", " << to_string(KernelConfig(dkv));
  }
}

// Tiles of one group of keys and of three, one group of queries for a warp and two.
TEST_F(DropoutTest, ForwardIsThatOfFp64) {
  const BackwardRun run(case_of({.head_dim = 16, .head_dim_v = 24, .gqa_ratio = 2, .mask = mask::causal()},
                                0.3f, 2, 1, 75, 110));
  for (const ForwardMmaSync& config : {ForwardMmaSync{.tile_q = 32, .tile_kv = 32, .warps = 2},
                                       ForwardMmaSync{.tile_q = 128, .tile_kv = 96, .warps = 4}})
    EXPECT_EQ(run.check_forward(context(), config), "") << to_string(KernelConfig(config));
}

TEST_F(DropoutTest, ForwardByWgmma) {
  if (native_arch(device_) != Arch{9, 0, 'a'}) GTEST_SKIP() << "kernels of forward_wgmma are for sm_90a";
  const BackwardRun run(case_of({.head_dim = 64, .mask = mask::causal()}, 0.3f, 1, 3, 150, 200));
  // With the next work tile begun early, in sequence, and with maxima on overflow alone.
  for (const ForwardWgmma& config :
       {ForwardWgmma{.tile_q = 128, .tile_kv = 64, .order = WarpgroupOrder::ping_pong},
        ForwardWgmma{.tile_q = 64, .tile_kv = 96},
        ForwardWgmma{.tile_q = 64, .tile_kv = 32, .rescale = Rescale::on_overflow}})
    EXPECT_EQ(run.check_forward(context(), config), "") << to_string(KernelConfig(config));
}

// One kernel serves all rates, and one of 0 draws nothing.
TEST_F(DropoutTest, ARateOfZeroKeepsAll) {
  const AttentionSpec spec{.head_dim = 64, .mask = mask::causal()};
  const CurrentDevice scope(0);
  BackwardRun run(case_of(spec, 0, 1, 1, 70, 83));
  EXPECT_EQ(run.check_forward(context(), ForwardMmaSync{.tile_q = 64, .tile_kv = 32, .warps = 4}), "");
  run.compute(context(), BackwardDqMmaSync{.tile_q = 32, .tile_kv = 32, .warps = 2},
              BackwardDkvMmaSync{.tile_q = 32, .tile_kv = 32, .warps = 2});
  EXPECT_EQ(run.check(), "");
  if (native_arch(device_) != Arch{9, 0, 'a'}) return;
  EXPECT_EQ(run.check_forward(context(), ForwardWgmma{.tile_q = 64, .tile_kv = 64}), "");
  run.poison_gradients();
  run.compute(context(), BackwardWgmma{.stages = 2});
  EXPECT_EQ(run.check(), "");
}

// dP of the next step early and late, P weighed apart from W and not, two heads that share keys, partial tiles.
TEST_F(DropoutTest, InOnePass) {
  if (native_arch(device_) != Arch{9, 0, 'a'}) GTEST_SKIP() << "kernels of backward_wgmma are for sm_90a";
  const CurrentDevice scope(0);
  int index = 0;
  for (const AttentionSpec& spec : std::vector<AttentionSpec>{
           {.head_dim = 64, .gqa_ratio = 2, .mask = mask::causal(), .score = score::softcap(3)},
           {.head_dim = 128},
           {.head_dim = 136, .head_dim_v = 64, .score = score::softcap(3)}}) {
    BackwardRun run(case_of(spec, 0.2f, 1, 1, 70, 150));
    ++index;  // the other config with the next spec
    for (const BackwardWgmma& config :
         {BackwardWgmma{.stages = 2}, BackwardWgmma{.stages = 2, .deterministic = true}}) {
      if (!is_in_this_run(index++, 2)) continue;
      run.poison_gradients();
      run.compute(context(), config);
      EXPECT_EQ(run.check(), "") << to_string(spec) << ", " << to_string(KernelConfig(config));
    }
  }
}

// Requests without queries, without keys, of one row, and of several tiles that end anywhere.
VarlenBackwardCase varlen_case(AttentionSpec spec, std::vector<int> lengths_q, std::vector<int> lengths_kv) {
  spec.dropout = true;
  spec.sequences_q = spec.sequences_kv = SequenceKind::varlen;
  return {.spec = spec,
          .heads_kv = 2,
          .q = {.lengths = std::move(lengths_q)},
          .kv = {.lengths = std::move(lengths_kv)},
          .seed = reference::test_seed(),
          .dropout_p = 0.3f};
}
VarlenBackwardCase varlen_case(const AttentionSpec& spec) {
  return varlen_case(spec, {0, 70, 1, 129}, {40, 65, 0, 97});
}

struct BackwardConfigs {
  BackwardDqMmaSync dq;
  BackwardDkvMmaSync dkv;
};
constexpr BackwardConfigs two_pass_configs[] = {
    {{.tile_q = 32, .tile_kv = 64, .warps = 1, .stages = 2}, {.tile_q = 48, .tile_kv = 32, .warps = 1}},
    {{.tile_q = 64, .tile_kv = 32, .warps = 4, .stages = 2},
     {.tile_q = 32, .tile_kv = 96, .warps = 2, .separate = true}}};

// Rows of nobody lie before, between and behind the sequences: not read, and not written.
TEST_F(DropoutTest, VarlenSequencesAreThoseOfFp64) {
  const CurrentDevice scope(0);
  VarlenBackwardCase problem = varlen_case({.head_dim = 24, .gqa_ratio = 2, .mask = mask::causal()});
  problem.q.spare = {7, 0, 66, 1};
  problem.kv.spare = {0, 64, 5, 2};
  problem.q.around = 3;
  problem.kv.around = 70;
  VarlenBackwardRun run(problem);
  EXPECT_EQ(run.check_forward(context(), ForwardMmaSync{.tile_q = 32, .tile_kv = 64, .warps = 2}), "");
  for (const auto& [dq, dkv] : two_pass_configs) {
    run.poison_gradients();
    run.compute(context(), dq, dkv);
    EXPECT_EQ(run.check(), "") << to_string(KernelConfig(dq)) << ", " << to_string(KernelConfig(dkv));
  }
}

// Dense tensors with arrays of rows in use run the kernels that read lengths.
TEST_F(DropoutTest, RowsInUseOfDenseTensors) {
  for (const SequenceKind kind_q : {SequenceKind::dense, SequenceKind::varlen}) {
    VarlenBackwardCase problem = varlen_case({.head_dim = 32, .mask = mask::causal()});
    problem.spec.sequences_q = kind_q;
    problem.spec.sequences_kv = SequenceKind::dense;
    problem.q.spare = {129, 59, 128, 0};
    problem.kv.spare = {60, 35, 100, 3};
    VarlenBackwardRun run(problem);
    const CurrentDevice scope(0);
    EXPECT_EQ(run.check_forward(context(), {}), "") << to_string(problem);
    attention_when_called(problem.spec, context()).backward(run.arguments());
    EXPECT_EQ(run.check(), "") << to_string(problem);
  }
}

TEST_F(DropoutTest, VarlenSequencesByWgmma) {
  if (native_arch(device_) != Arch{9, 0, 'a'}) GTEST_SKIP() << "kernels with wgmma are for sm_90a";
  const CurrentDevice scope(0);
  for (const auto& [spec, config] : std::vector<std::pair<AttentionSpec, ForwardWgmma>>{
           {{.head_dim = 64, .gqa_ratio = 2, .mask = mask::causal()}, {.tile_q = 128, .tile_kv = 64}},
           {{.head_dim = 128, .score = score::softcap(3)}, {.tile_q = 64, .tile_kv = 96}}}) {
    VarlenBackwardRun run(varlen_case(spec));
    EXPECT_EQ(run.check_forward(context(), config), "") << to_string(spec);
    run.compute(context(), BackwardWgmma{.stages = 2});
    EXPECT_EQ(run.check(), "") << to_string(spec);
  }
}

// Kernels for some requests alone are none of these: nobody would run the other half.
TEST_F(DropoutTest, ACallTakesOneKernel) {
  if (native_arch(device_) != Arch{9, 0, 'a'}) GTEST_SKIP() << "calls take two kernels on sm_90a only";
  const CurrentDevice scope(0);
  const FreshFolder folder;
  Settings settings;
  settings.cache_dir = folder / "cache";
  settings.tuning = TuningMode::off;
  const Context context(settings);
  const VarlenBackwardCase problem =
      varlen_case({.head_dim = 64, .mask = mask::causal()}, {1, 1, 300}, {1, 1, 300});
  const VarlenBackwardRun run(problem);
  const BackwardArguments given = run.arguments();
  attention_when_called(problem.spec, context)({.q = given.q,
                                                .k = given.k,
                                                .v = given.v,
                                                .o = given.o,
                                                .cu_seqlens_q = given.cu_seqlens_q,
                                                .cu_seqlens_k = given.cu_seqlens_k,
                                                .dropout_p = given.dropout_p,
                                                .rng_state = given.rng_state});
  int kernels = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(settings.cache_dir))
    kernels += entry.path().extension() == ".bin" ? 1 : 0;
  EXPECT_EQ(kernels, 1);
}

// One seed makes the same tensors for a problem, however they are described.
TEST_F(DropoutTest, VarlenSequencesOfEqualLengthsHaveTheBitsOfDenseOnes) {
  const CurrentDevice scope(0);
  const bool has_wgmma = native_arch(device_) == Arch{9, 0, 'a'};
  std::vector<KernelConfig> configs = {ForwardMmaSync{.tile_q = 64, .tile_kv = 32}};
  if (has_wgmma) configs.push_back(ForwardWgmma{.tile_q = 128, .tile_kv = 64});
  std::vector<std::vector<std::uint8_t>> bytes[2];
  for (const bool is_varlen : {false, true}) {
    VarlenBackwardCase problem =
        varlen_case({.head_dim = 64, .gqa_ratio = 2, .mask = mask::causal()}, {75, 75}, {83, 83});
    if (!is_varlen) problem.spec.sequences_q = problem.spec.sequences_kv = SequenceKind::dense;
    VarlenBackwardRun run(problem);
    for (const KernelConfig& config : configs)
      EXPECT_EQ(run.check_forward(context(), config, &bytes[is_varlen].emplace_back()), "");
    const auto& [dq, dkv] = two_pass_configs[1];
    run.compute(context(), dq, dkv);
    EXPECT_EQ(run.check(), "");
    bytes[is_varlen].push_back(run.gradients());
  }
  EXPECT_TRUE(bytes[0] == bytes[1]);
}

// Seed and offset are read when the graph runs.
TEST_F(DropoutTest, AGraphReadsTheSeedAnew) {
  const CurrentDevice scope(0);
  const AttentionCase problem = case_of({.head_dim = 16}, 0.5f, 1, 1, 20, 32);
  BackwardRun run(problem);
  const Attention attention = attention_when_called(problem.spec, context());
  const BackwardArguments arguments = run.arguments();
  attention.prepare_backward(arguments);
  const TestStream stream;
  const CapturedGraph graph(stream, [&] { attention.backward(arguments, stream.get()); });
  graph.run(stream);
  EXPECT_EQ(run.check(), "");
  run.poison_gradients();
  const std::uint64_t other[] = {1, 2};
  run.upload_rng_state(other);
  graph.run(stream);
  EXPECT_NE(run.check(), "");
}

// A rate and a seed of the tuner's own.
TEST_F(DropoutTest, TheTunersReferenceDropsTheSame) {
  const CurrentDevice scope(0);
  const AttentionSpec spec{.head_dim = 16, .dropout = true};
  AttentionParams params;
  ASSERT_TRUE(
      fill_params(spec, {}, sized_arguments(spec, {.heads_q = 2, .seqlen_q = 40, .seqlen_kv = 70}), params));
  const TestStream stream;
  ContextState& state = *Access::state(context());
  const ForwardBuffers buffers(state, spec, device_, params, stream.get());
  const auto check = [&](const AttentionSpec& of) {
    const KernelConfig config = ForwardMmaSync{.tile_q = 64, .tile_kv = 32};
    return buffers.check(
        make_plan(state, of, build_kernel(state, of, config, native_target(device_)), 0, "test"),
        stream.get());
  };
  EXPECT_EQ(check(spec), "");
  EXPECT_THAT(check({.head_dim = 16}), ::testing::StartsWith("wrong: relative error"));
}

TEST_F(DropoutTest, WhatHasNoDropoutSaysSo) {
  const CurrentDevice scope(0);
  const AttentionSpec spec{.head_dim = 64, .dropout = true};
  for (const KernelConfig& config :
       std::vector<KernelConfig>{ForwardSplitKv{}, ForwardMmaSync{.tile_kv = 48}}) {
    const Error error = error_of([&] { attention(spec, config, context()); });
    EXPECT_EQ(error.code(), ErrorCode::no_valid_config);
    EXPECT_THAT(error.message(), HasSubstr("dropout"));
  }
}

}  // namespace
}  // namespace jit::testing
