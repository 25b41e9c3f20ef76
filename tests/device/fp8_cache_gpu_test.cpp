// Keys and values of 8 bits under queries of 16, by C++'s interface: every config that shares rows and keys among warps
// in another way, against double precision over the numbers that codes and scales stand for. Varlen and paged
// sequences: tests/python/test_fp8_cache.py.
#include <jit/attention.h>
#include <jit/tuning.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/context/access.h"
#include "generator/context/context_state.h"
#include "generator/plan/kernel_choice.h"
#include "generator/problem/arguments.h"
#include "generator/tuning/forward_buffers.h"
#include "tests/device/gpu_fixture.h"
#include "tests/support/error_of.h"
#include "tests/support/seed.h"
#include "tests/support/shared_cache.h"

namespace jit::testing {
namespace {

class Fp8CacheTest : public GpuTest {
 protected:
  static KernelConfig config_of(const char* text) {
    return parse_config(fmt::format("family=forward_split_kv {}", text));
  }
};

AttentionCase case_of(DType kv_dtype, ScaleKind kind, int seqlen_q, int seqlen_kv) {
  return problem_of({.head_dim = 64, .gqa_ratio = 3, .kv_dtype = kv_dtype, .descale_per = kind}, 2, 2,
                    seqlen_q, seqlen_kv);
}

TEST_F(Fp8CacheTest, TypesScalesAndConfigs) {
  std::vector<KernelCase> cases;
  int lengths = 0, index = 0;
  for (const char* text :
       {"row_warps=1 key_warps=4 tile_kv=64 stages=3", "row_warps=2 key_warps=2 tile_kv=32 stages=2",
        "row_warps=4 key_warps=1 tile_kv=16 stages=4",
        "row_warps=1 key_warps=1 tile_kv=48 stages=2 blocks_per_sm=1"}) {
    for (const DType kv_dtype : {DType::fp8_e4m3, DType::fp8_e5m2}) {
      for (const ScaleKind kind : {ScaleKind::head, ScaleKind::token}) {
        if (!is_in_this_run(index++, 4)) continue;
        const AttentionCase problem = case_of(kv_dtype, kind, 1 + lengths % 3 * 9, 70 + 40 * (lengths % 4));
        cases.push_back({problem, fitted(problem.spec, config_of(text))});
      }
      ++lengths;
    }
    ++index;  // another type and kind of scales with the next config
  }
  expect_all_right(cases);
}

TEST_F(Fp8CacheTest, HeadDimsLayoutsAndAlignments) {
  std::vector<KernelCase> cases;
  int index = 0;
  const KernelConfig small = config_of("key_warps=2 tile_kv=32 stages=2 blocks_per_sm=1");
  const auto add = [&](const AttentionCase& problem) {
    if (is_in_this_run(index++, 3)) cases.push_back({problem, small});
  };
  for (const auto& [d, dv] : {std::pair(8, 8), {40, 72}, {128, 128}, {192, 128}, {256, 256}}) {
    AttentionCase problem = case_of(DType::fp8_e4m3, ScaleKind::head, 2, 100);
    problem.spec.dtype = DType::fp16;
    problem.spec.head_dim = d;
    problem.spec.head_dim_v = dv;
    problem.layout = Layout::padded;  // rows of 8 elements keep 16 bytes
    add(problem);
  }
  for (const Layout layout : {Layout::bhsd, Layout::packed_qkv, Layout::reversed}) {
    AttentionCase problem = case_of(DType::fp8_e5m2, ScaleKind::token, 3, 77);
    problem.layout = layout;
    cases.push_back({problem, small});  // of one kernel
  }
  for (const int alignment : {2, 4, 8, 16}) {
    AttentionCase problem = case_of(DType::fp8_e4m3, ScaleKind::head, 3, 70);
    problem.spec.head_dim = 72;
    problem.spec.alignment = alignment;
    problem.layout = Layout::padded;
    add(problem);
  }
  expect_all_right(cases);
}

TEST_F(Fp8CacheTest, MasksScoresAndManyQueries) {
  std::vector<KernelCase> cases;
  int index = 0;
  for (const ScaleKind kind : {ScaleKind::head, ScaleKind::token}) {
    AttentionCase problem = case_of(DType::fp8_e4m3, kind, 90, 130);
    problem.spec.mask = mask::causal() && mask::sliding_window(50, 0);
    problem.spec.score = score::alibi();
    if (is_in_this_run(index++, 2)) cases.push_back({problem, {}});
    problem.seed += 1000;
    problem.spec.split_keys = 64;
    problem.spec.sinks = false;
    if (is_in_this_run(index, 2)) cases.push_back({problem, {}});
  }
  expect_all_right(cases);
}

// By TMA and wgmma: a warpgroup makes numbers of 16 bits of keys and values.
class Fp8CacheWgmmaTest : public Fp8CacheTest {
 protected:
  void SetUp() override {
    Fp8CacheTest::SetUp();
    if (!IsSkipped() && native_arch(device_) != Arch{9, 0, 'a'}) GTEST_SKIP() << "needs sm_90a";
  }
  static KernelConfig wgmma(const char* text) {
    return parse_config(fmt::format("family=forward_split_wgmma {}", text));
  }
};

TEST_F(Fp8CacheWgmmaTest, TypesAndConfigs) {
  std::vector<KernelCase> cases;
  int lengths = 0, index = 0;
  for (const char* text : {"tile_rows=64 tile_kv=64 stages=2 stages_stored=3",
                           "tile_rows=128 tile_kv=32 stages=2 stages_stored=1",
                           "tile_rows=64 tile_kv=16 stages=1 stages_stored=4 stages_q=2",
                           "tile_rows=128 tile_kv=48 stages=1 stages_stored=1"}) {
    for (const DType kv_dtype : {DType::fp8_e4m3, DType::fp8_e5m2}) {
      AttentionCase problem =
          case_of(kv_dtype, ScaleKind::head, 1 + lengths % 3 * 30, 70 + 61 * (lengths % 4));
      if (kv_dtype == DType::fp8_e5m2) problem.spec.dtype = DType::fp16;
      if (is_in_this_run(index++, 3)) cases.push_back({problem, wgmma(text)});
      ++lengths;
    }
    ++index;  // the other type with the next config
  }
  expect_all_right(cases);
}

// By TMA and mma.sync: boxes in panels. Head dims below a panel, of a half, of two.
TEST_F(Fp8CacheWgmmaTest, BoxesAndMmaSync) {
  std::vector<KernelCase> cases;
  int turn = 0, index = 0;
  const auto add = [&](const AttentionCase& problem, const char* text) {
    if (is_in_this_run(turn++, 3)) cases.push_back({problem, config_of(text)});
  };
  for (const char* text : {"copies=tma row_warps=1 key_warps=4 tile_kv=128 stages=3",
                           "copies=tma row_warps=2 key_warps=2 tile_kv=32 stages=2",
                           "copies=tma row_warps=4 key_warps=1 tile_kv=16 stages=4 blocks_per_sm=1",
                           "copies=tma warp_rows=8 key_warps=4 tile_kv=128 stages=2"}) {
    for (const DType kv_dtype : {DType::fp8_e4m3, DType::fp8_e5m2}) {
      AttentionCase problem = case_of(kv_dtype, ScaleKind::head, 1 + index % 3 * 9, 70 + 61 * (index % 4));
      if (index++ % 3 == 1) problem.spec.dtype = DType::fp16;
      add(problem, text);
    }
    ++turn;  // the other type with the next config
  }
  for (const auto& [d, dv] : {std::pair(16, 48), {80, 144}, {256, 192}}) {
    AttentionCase problem = case_of(DType::fp8_e4m3, ScaleKind::head, 3, 100);
    problem.spec.head_dim = d;
    problem.spec.head_dim_v = dv;
    add(problem, "copies=tma key_warps=2 tile_kv=64 stages=2 blocks_per_sm=1");
    add(problem, "copies=tma warp_rows=8 key_warps=2 tile_kv=64 stages=2 blocks_per_sm=1");
  }
  AttentionCase problem = case_of(DType::fp8_e4m3, ScaleKind::head, 90, 130);
  problem.spec.mask = mask::causal() && mask::sliding_window(50, 0);
  problem.spec.score = score::alibi();
  add(problem, "copies=tma row_warps=2 key_warps=2 tile_kv=64 stages=2");
  expect_all_right(cases);
}

// Many queries. Head dims below a panel, of several panels, and of half a panel; queries that see no key; a
// mask with words of keys.
TEST_F(Fp8CacheWgmmaTest, ManyQueries) {
  std::vector<KernelCase> cases;
  const auto add = [&](AttentionCase problem, const char* text) {
    cases.push_back({problem, parse_config(fmt::format("family=forward_wgmma {}", text))});
  };
  AttentionCase narrow = case_of(DType::fp8_e5m2, ScaleKind::head, 200, 150);
  narrow.spec.head_dim = 16;
  narrow.spec.head_dim_v = 48;
  narrow.spec.mask = mask::causal();
  add(narrow,
      "tile_q=128 tile_kv=48 stages_v=2 output=direct order=ping_pong stages_stored=1 converter_warps=2");
  AttentionCase wide = case_of(DType::fp8_e4m3, ScaleKind::head, 70, 210);
  wide.spec.head_dim = 192;
  wide.spec.head_dim_v = 256;
  add(wide, "tile_q=128 tile_kv=32 stages_k=1 stages_v=1 output=direct stages_stored=1 converter_warps=4");
  AttentionCase documents = case_of(DType::fp8_e4m3, ScaleKind::head, 150, 170);
  documents.spec.dtype = DType::fp16;
  documents.spec.mask = mask::document();
  add(documents,
      "tile_q=192 tile_kv=64 stages_q=2 stages_v=3 order=ping_pong stages_stored=3 converter_warps=2");
  expect_all_right(cases);
}

// Outputs that lie apart are stored by the warp that loads queries, before it waits for more work: several work tiles for
// each block, and keys enough for the next one to be asked for late.
TEST_F(Fp8CacheWgmmaTest, OutputsApartAreStoredBeforeMoreQueries) {
  AttentionCase problem = case_of(DType::fp8_e4m3, ScaleKind::head, 256, 320);
  problem.batch = 30;
  problem.heads_kv = 7;
  problem.spec.head_dim = 32;
  problem.spec.gqa_ratio = 1;
  std::vector<KernelCase> cases;
  for (const char* stages : {"stages_q=1", "stages_q=2"}) {
    cases.push_back({problem, parse_config(fmt::format(
                                  "family=forward_wgmma tile_q=128 tile_kv=32 stages_v=2 output=separate "
                                  "order=ping_pong stages_stored=2 converter_warps=2 {}",
                                  stages))});
  }
  expect_some_right(cases, 1);
}

TEST_F(Fp8CacheWgmmaTest, HeadDimsMasksAndScores) {
  std::vector<KernelCase> cases;
  int index = 0;
  const KernelConfig small = wgmma("tile_rows=64 tile_kv=32 stages=1 stages_stored=2");
  for (const auto& [d, dv] : {std::pair(16, 48), {80, 144}, {192, 128}}) {
    AttentionCase problem = case_of(DType::fp8_e4m3, ScaleKind::head, 3, 100);
    problem.spec.head_dim = d;
    problem.spec.head_dim_v = dv;
    if (is_in_this_run(index++, 3)) cases.push_back({problem, small});
  }
  AttentionCase problem = case_of(DType::fp8_e4m3, ScaleKind::head, 90, 130);
  problem.spec.mask = mask::causal() && mask::sliding_window(50, 0);
  problem.spec.score = score::alibi();  // of scores as they are, scales included
  cases.push_back({problem, small});
  problem.spec.score = {};
  problem.spec.split_keys = 64;
  cases.push_back({problem, wgmma("tile_rows=128 tile_kv=64 stages=2 stages_stored=2")});
  expect_all_right(cases);
}

// Random keys and values of 8 bits, and with a scale for each key scales of the tuner's own.
TEST_F(Fp8CacheTest, TheTunersReferenceReadsTheSame) {
  const CurrentDevice scope(0);
  const Context context(shared_cache_settings());
  ContextState& state = *Access::state(context);
  const TestStream stream;
  const auto check = [&](const AttentionSpec& spec, const AttentionSpec& of) {
    AttentionArguments arguments = sized_arguments(spec, {.heads_q = 2, .seqlen_q = 5, .seqlen_kv = 70});
    AttentionParams params;
    EXPECT_TRUE(fill_params(spec, {}, arguments, params));
    const ForwardBuffers buffers(state, spec, device_, params, stream.get());
    const KernelConfig config = config_of("key_warps=2 tile_kv=32 stages=2 blocks_per_sm=1");
    return buffers.check(
        make_plan(state, of, build_kernel(state, of, config, native_target(device_)), 0, "test"),
        stream.get());
  };
  const AttentionSpec spec{.head_dim = 16, .kv_dtype = DType::fp8_e4m3};
  AttentionSpec paged{
      .head_dim = 16, .gqa_ratio = 2, .kv_dtype = DType::fp8_e5m2, .descale_per = ScaleKind::token};
  paged.sequences_kv = SequenceKind::paged;
  paged.page_size = 8;
  EXPECT_EQ(check(spec, spec), "");
  EXPECT_EQ(check(paged, paged), "");
  AttentionSpec other = paged;
  other.descale_per = ScaleKind::head;
  EXPECT_THAT(check(paged, other), ::testing::StartsWith("wrong: "));
}

TEST_F(Fp8CacheTest, WhatCannotBeServedIsRefused) {
  const AttentionSpec spec{.head_dim = 64, .kv_dtype = DType::fp8_e4m3};
  const AttentionRun run(case_of(DType::fp8_e4m3, ScaleKind::head, 1, 8));
  const AttentionArguments arguments = run.arguments();
  const BackwardArguments gradients{.d_o = arguments.o,
                                    .q = arguments.q,
                                    .k = arguments.k,
                                    .v = arguments.v,
                                    .o = arguments.o,
                                    .lse = arguments.lse,
                                    .dq = {},
                                    .dk = {},
                                    .dv = {}};
  const Error backward = error_of([&] { attention_when_called(spec).backward(gradients); });
  EXPECT_EQ(backward.code(), ErrorCode::invalid_spec);
  EXPECT_EQ(backward.field(), "spec.kv_dtype");
  const Error family = error_of([&] { attention(spec, parse_config("family=forward_mma_sync")); });
  EXPECT_EQ(family.code(), ErrorCode::no_valid_config);
  EXPECT_THAT(family.message(), ::testing::HasSubstr("reads k and v of the type of q, bf16"));
}

}  // namespace
}  // namespace jit::testing
