// Queries, keys and values of 8 bits by mma.sync: types, head dims, rows of any alignment, configs, masks, scores and
// scales, against double precision over the numbers that codes and scales stand for.
#include <jit/attention.h>
#include <jit/tuning.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/device/fp8_case.h"
#include "tests/device/gpu_fixture.h"
#include "tests/support/error_of.h"

namespace jit::testing {
namespace {

class Fp8MmaTest : public GpuTest {
 protected:
  static KernelConfig config_of(const std::string& text) {
    return parse_config("family=forward_mma_sync " + text);
  }

  const KernelConfig small_ = config_of("tile_q=64 tile_kv=32 warps=4 stages_k=2 stages_v=2");
};

TEST_F(Fp8MmaTest, TypesOutputsAndConfigs) {
  std::vector<KernelCase> cases;
  const auto add = [&](DType dtype, DType out, const char* config) {
    AttentionCase problem = fp8_case(dtype, 64, 70, 100);
    problem.spec.out_dtype = out;
    problem.spec.gqa_ratio = out == DType::bf16 ? 1 : 2;
    problem.with_lse = out != DType::fp16;
    cases.push_back({problem, config_of(config)});
  };
  add(DType::fp8_e4m3, DType::bf16, "tile_q=128 tile_kv=64 warps=4 stages_k=1 stages_v=2");
  add(DType::fp8_e5m2, DType::fp16, "tile_q=64 tile_kv=32 warps=4 q_in_registers=true rescale=always");
  add(DType::fp8_e4m3, DType::fp32, "tile_q=64 tile_kv=96 warps=2 stages_k=3 stages_v=2");
  expect_some_right(cases, 2);
}

// Half a chunk of 16 bytes in a row, columns that are no whole step of the products, and rows of every alignment.
TEST_F(Fp8MmaTest, HeadDimsAndRows) {
  std::vector<KernelCase> cases;
  const auto add = [&](int d, int dv, int alignment, DType out, Layout layout) {
    AttentionCase problem = fp8_case(DType::fp8_e4m3, d, 33, 70);
    problem.spec.head_dim_v = dv;
    problem.spec.alignment = alignment;
    problem.spec.out_dtype = out;
    problem.layout = layout;
    cases.push_back({problem, small_});
  };
  add(8, 24, 16, DType::bf16, Layout::padded);
  add(72, 40, 8, DType::bf16, Layout::bshd);
  add(40, 72, 4, DType::fp16, Layout::padded);
  add(24, 8, 2, DType::fp32, Layout::padded);
  add(256, 192, 2, DType::bf16, Layout::reversed);
  expect_some_right(cases, 2);
}

TEST_F(Fp8MmaTest, MasksScoresAndLengths) {
  std::vector<KernelCase> cases;
  const auto add = [&](const Mask& mask, const Score& score, int seqlen_q, int seqlen_kv) {
    AttentionCase problem = fp8_case(DType::fp8_e4m3, 32, seqlen_q, seqlen_kv);
    problem.spec.gqa_ratio = 3;
    problem.spec.mask = mask;
    problem.spec.score = score;
    cases.push_back({problem, small_});
  };
  add(mask::causal(), {}, 100, 100);
  add(mask::causal(), score::softcap(3), 100, 60);  // rows without a key
  add(mask::document(), score::bias(), 70, 70);
  add({}, {}, 1, 1);
  add({}, {}, 5, 0);
  expect_some_right(cases, 2);
}

// A scale for each query and each key, of pipelines of one stage and more, and of more keys than threads.
TEST_F(Fp8MmaTest, ScalesOfTokens) {
  std::vector<KernelCase> cases;
  const auto add = [&](const Mask& mask, const Score& score, const char* config) {
    AttentionCase problem = fp8_case(DType::fp8_e5m2, 64, 100, 70);
    problem.spec.descale_per = ScaleKind::token;
    problem.spec.gqa_ratio = 2;
    problem.spec.mask = mask;
    problem.spec.score = score;
    cases.push_back({problem, config_of(config)});
  };
  add(mask::causal(), {}, "tile_q=64 tile_kv=32 warps=2 stages_k=3 stages_v=2");
  add({}, score::alibi(), "tile_q=32 tile_kv=96 warps=2 stages_k=1 stages_v=1");
  expect_some_right(cases, 2);
}

// A scale for each block of queries and of keys: warps of one block and of a part of one, tiles of whole blocks and of
// halves, of scores that softmax sees as they are and of others.
TEST_F(Fp8MmaTest, ScalesOfBlocks) {
  std::vector<KernelCase> cases;
  const auto add = [&](const Mask& mask, const Score& score, int seqlen_q, int seqlen_kv,
                       const char* config) {
    AttentionCase problem = fp8_case(DType::fp8_e4m3, 32, seqlen_q, seqlen_kv);
    problem.spec.descale_per = ScaleKind::block;
    problem.spec.gqa_ratio = 2;
    problem.spec.mask = mask;
    problem.spec.score = score;
    cases.push_back({problem, config_of(config)});
  };
  add({}, {}, 140, 200, "tile_q=128 tile_kv=64 warps=4 stages_k=2 stages_v=1");
  add(mask::causal(), {}, 140, 90,
      "tile_q=64 tile_kv=96 warps=4 stages_k=1 stages_v=2");  // rows without a key
  add(mask::causal(), score::softcap(3), 70, 230, "tile_q=32 tile_kv=32 warps=2 rescale=always");
  add({}, {}, 3, 0, "tile_q=64 tile_kv=32 warps=4");
  expect_some_right(cases, 2);
}

// Attention restores what a quantizer took away: a scale for each column of values, their mean, the shift of
// LSE.
TEST_F(Fp8MmaTest, ColumnsOfValuesAndLse) {
  std::vector<KernelCase> cases;
  const auto add = [&](bool channels, bool means, bool shift, const Mask& mask, int dv, DType out,
                       const KernelConfig& config) {
    AttentionCase problem = fp8_case(DType::fp8_e4m3, 32, 70, 50);
    AttentionSpec& spec = problem.spec;
    spec.out_dtype = out;
    spec.head_dim_v = dv;
    spec.alignment = 8;
    spec.gqa_ratio = 2;
    spec.v_descale_per = channels ? ScaleKind::channel : ScaleKind::head;
    spec.v_mean = means;
    spec.lse_shift = shift;
    spec.mask = mask;
    cases.push_back({problem, config});
  };
  add(true, true, true, {}, 40, DType::fp16, small_);               // half of 16 columns
  add(false, true, true, mask::causal(), 32, DType::fp32, small_);  // rows without a key
  add(true, false, false, {}, 8, DType::bf16, small_);
  const KernelConfig split =
      parse_config("family=forward_split_kv row_warps=2 key_warps=2 tile_kv=32 stages=2");
  add(true, true, true, {}, 40, DType::fp16, split);
  cases.back().problem.seqlen_q = 8;
  add(false, true, true, mask::causal(), 32, DType::fp32, split);
  cases.back().problem.seqlen_q = 8, cases.back().problem.seqlen_kv = 3;
  expect_some_right(cases, 2);
}

// The other family by mma.sync: few queries, and sequences of any lengths, which tests of Python compute.
TEST_F(Fp8MmaTest, KeysSplitOverBlocks) {
  std::vector<KernelCase> cases;
  const auto add = [&](DType dtype, DType out, int d, int dv, int alignment, ScaleKind scales, int seqlen_q) {
    AttentionCase problem = fp8_case(dtype, d, seqlen_q, 90);
    problem.spec.head_dim_v = dv;
    problem.spec.alignment = alignment;
    problem.spec.out_dtype = out;
    problem.spec.descale_per = scales;
    problem.spec.gqa_ratio = 3;
    problem.spec.mask = mask::causal();
    problem.layout = Layout::padded;
    cases.push_back({problem, parse_config(fmt::format(
                                  "family=forward_split_kv warp_rows={} key_warps=2 tile_kv=32 stages=2",
                                  seqlen_q == 7 ? 8 : 16))});
  };
  add(DType::fp8_e4m3, DType::bf16, 72, 40, 8, ScaleKind::head, 7);
  add(DType::fp8_e5m2, DType::fp16, 48, 64, 16, ScaleKind::token, 7);
  add(DType::fp8_e5m2, DType::fp32, 24, 64, 2, ScaleKind::token, 12);
  add(DType::fp8_e4m3, DType::bf16, 32, 32, 16, ScaleKind::block, 70);
  expect_some_right(cases, 2);
}

TEST_F(Fp8MmaTest, WhatCannotBeServedIsRefused) {
  using ::testing::HasSubstr;
  const AttentionSpec spec{.dtype = DType::fp8_e4m3, .head_dim = 64};
  EXPECT_THAT(error_of([&] { attention(spec, config_of("tile_kv=48"), context()); }).message(),
              HasSubstr("tile_kv = 48 must be a multiple of 32 with fp8"));
  AttentionSpec paged = spec;
  paged.sequences_kv = SequenceKind::paged;
  paged.page_size = 16;
  EXPECT_THAT(error_of([&] { attention(paged, small_, context()); }).message(),
              HasSubstr("reads dense sequences"));
}

}  // namespace
}  // namespace jit::testing
