// Queries, keys and values of 8 bits: types, head dims, configs, masks, scores, scales and sequences, against double
// precision over the numbers that codes and scales stand for.
#include <jit/attention.h>
#include <jit/device_buffer.h>
#include <jit/float16.h>
#include <jit/tuning.h>

#include <array>
#include <cmath>
#include <limits>
#include <random>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/driver_api.h"
#include "tests/device/fp8_case.h"
#include "tests/device/gpu_fixture.h"
#include "tests/support/error_of.h"
#include "tests/support/seed.h"

namespace jit::testing {
namespace {

class Fp8Test : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    if (native_arch(device_) != Arch{9, 0, 'a'}) GTEST_SKIP() << "q of fp8 needs sm_90a";
  }
  // A warpgroup transposes values unless `text` has producers' warps do so.
  static KernelConfig config_of(const std::string& text) {
    const bool has_converters = text.find("converter_warps") != std::string::npos;
    return parse_config("family=forward_wgmma " + text + (has_converters ? "" : " converter_warps=4"));
  }
};

constexpr const char* small_tile = "tile_q=64 tile_kv=32 stages_q=2 stages_v=2 output=separate";

TEST_F(Fp8Test, TypesOutputsAndConfigs) {
  std::vector<KernelCase> cases;
  int index = 0;
  for (const char* config :
       {"tile_q=128 tile_kv=128 stages_q=2 stages_v=2 output=separate order=ping_pong converter_warps=2",
        "tile_q=128 tile_kv=160 stages_q=1 stages_v=2 output=direct",
        "tile_q=64 tile_kv=64 stages_q=2 stages_k=3 stages_v=3 output=separate promote_every=2",
        "tile_q=192 tile_kv=96 stages_v=2 output=separate order=free"}) {
    const DType dtype = index++ % 2 == 0 ? DType::fp8_e4m3 : DType::fp8_e5m2;
    cases.push_back({fp8_case(dtype, 64, 130, 200), config_of(config)});
  }
  for (const DType out : {DType::bf16, DType::fp16, DType::fp32}) {
    AttentionCase problem = fp8_case(DType::fp8_e4m3, 32, 70, 90);
    problem.spec.out_dtype = out;
    problem.spec.gqa_ratio = 2;
    problem.with_lse = out != DType::fp16;
    cases.push_back({problem, {}});
  }
  expect_some_right(cases, 3);
}

// Sums of P by products with ones: with LSE, which is exact then, and without, with maxima that move, rows without keys,
// several work tiles for each block, a product of ones of its own beside 256 columns, and sums that move to floats.
TEST_F(Fp8Test, SumsByProducts) {
  std::vector<KernelCase> cases;
  const auto add = [&](DType dtype, int head_dim, int seqlen_q, int seqlen_kv, const Mask& mask,
                       const Score& score, const std::string& config) {
    AttentionCase problem = fp8_case(dtype, head_dim, seqlen_q, seqlen_kv);
    problem.spec.gqa_ratio = 2;
    problem.spec.mask = mask;
    problem.spec.score = score;
    problem.spec.descale_per = cases.size() % 3 == 2 ? ScaleKind::token : ScaleKind::head;
    problem.with_lse = cases.size() % 2 == 0;
    cases.push_back({problem, config_of(config + " stages_v=2")});
  };
  const DType e4m3 = DType::fp8_e4m3, e5m2 = DType::fp8_e5m2;
  const char* const two = "tile_q=128 tile_kv=96 stages_q=2 output=direct order=ping_pong converter_warps=2";
  const char* const three =
      "tile_q=192 tile_kv=128 stages_q=2 output=separate order=ping_pong converter_warps=2";
  add(e4m3, 64, 130, 400, {}, {}, two);
  add(e4m3, 64, 130, 400, {}, score::alibi(), two);  // grows from tile to tile
  add(e5m2, 128, 70, 300, {}, {}, "tile_q=64 tile_kv=224 output=separate converter_warps=4");
  add(e4m3, 32, 300, 200, mask::causal(), {}, three);  // rows without keys
  add(e5m2, 64, 260, 500, mask::sliding_window(70, 0), {}, three);
  add(e4m3, 256, 40, 250, {}, {}, "tile_q=64 tile_kv=96 output=direct converter_warps=4");
  add(e4m3, 80, 70, 450, mask::causal(), {}, "tile_q=64 tile_kv=96 output=direct promote_every=2");
  add(e4m3, 64, 1, 1, {}, {}, three);
  add(e4m3, 64, 5, 0, {}, {}, two);
  expect_some_right(cases, 4);
}

// Producers' warps transpose values, and the one that loads queries stores outputs: a block has several work tiles,
// and keys enough for the next one to be asked for late. Outputs that lie apart are stored before more queries are
// waited for.
TEST_F(Fp8Test, QueryProducerStoresOutputs) {
  std::vector<KernelCase> cases;
  for (const char* stages :
       {"stages_q=2 output=separate", "stages_q=1 output=separate", "stages_q=2 output=direct"}) {
    AttentionCase problem = fp8_case(DType::fp8_e4m3, 32, 256, 320);
    problem.batch = 30;
    problem.heads_kv = 7;
    // No key outweighs the others of its row: few columns tell little of how far such a P rounds.
    problem.amplitude = 0.5;
    cases.push_back(
        {problem, config_of(fmt::format(
                      "tile_q=128 tile_kv=32 stages_v=2 order=ping_pong converter_warps=2 {}", stages))});
  }
  expect_some_right(cases, 2);
}

TEST_F(Fp8Test, HeadDimsAndLayouts) {
  std::vector<KernelCase> cases;
  for (const auto& [d, dv] : {std::pair(8, 24), {72, 40}, {128, 192}, {256, 256}}) {
    AttentionCase problem = fp8_case(DType::fp8_e4m3, d, 33, 70);
    problem.spec.head_dim_v = dv;
    problem.layout = Layout::padded;  // rows keep 16 bytes
    cases.push_back({problem, config_of("tile_q=64 tile_kv=64 stages_v=2 output=direct")});
  }
  // More columns of O than one instruction makes of so few registers.
  cases.push_back({fp8_case(DType::fp8_e5m2, 256, 130, 70), {}});
  for (const Layout layout : {Layout::bhsd, Layout::packed_qkv}) {
    AttentionCase problem = fp8_case(DType::fp8_e5m2, 64, 40, 70);
    problem.layout = layout;
    cases.push_back({problem, config_of(small_tile)});
  }
  expect_some_right(cases, 3);
}

TEST_F(Fp8Test, MasksScoresAndLengths) {
  std::vector<KernelCase> cases;
  const auto add = [&](const Mask& mask, const Score& score, int seqlen_q, int seqlen_kv) {
    AttentionCase problem = fp8_case(DType::fp8_e4m3, 32, seqlen_q, seqlen_kv);
    problem.spec.gqa_ratio = 3;
    problem.spec.mask = mask;
    problem.spec.score = score;
    cases.push_back(
        {problem,
         config_of(cases.size() % 2 == 0 ? small_tile : "tile_q=128 tile_kv=32 stages_v=2 output=direct")});
  };
  add(mask::causal(), {}, 150, 150);
  add(mask::causal(), score::softcap(3), 140, 90);  // rows without a key
  add(mask::sliding_window(40, 0), score::alibi(), 90, 130);
  add({}, score::alibi(), 40, 260);  // scores below zero that grow
  add(mask::document(), score::bias(), 70, 70);
  add({}, {}, 1, 1);
  add({}, {}, 5, 0);
  expect_some_right(cases, 3);
}

// Tiles of keys from the last one to the first: the first ones show some queries nothing, or are cut off.
TEST_F(Fp8Test, KeysFromTheLastOneToTheFirst) {
  std::vector<KernelCase> cases;
  const auto add = [&](const Mask& mask, const Score& score, int seqlen_q, int seqlen_kv,
                       const char* config) {
    AttentionCase problem = fp8_case(DType::fp8_e4m3, 32, seqlen_q, seqlen_kv);
    problem.spec.gqa_ratio = 2;
    problem.spec.mask = mask;
    problem.spec.score = score;
    problem.with_lse = true;
    problem.spec.descale_per =
        std::array{ScaleKind::head, ScaleKind::token, ScaleKind::block}[cases.size() % 3];
    cases.push_back({problem, config_of(config)});
  };
  const char* const two =
      "tile_q=128 tile_kv=32 stages_q=2 stages_k=2 stages_v=3 output=separate order=ping_pong";
  const char* const promoted = "tile_q=128 tile_kv=64 stages_v=2 output=direct promote_every=1";
  add(mask::causal(), {}, 150, 150, two);
  add(mask::causal(), score::softcap(3), 140, 90, promoted);  // rows without a key
  add(mask::causal(), {}, 70, 300, small_tile);
  add(mask::sliding_window(40, 0), score::alibi(), 290, 330, two);
  add(mask::sliding_window(40, 10), {}, 200, 260, promoted);
  add(mask::causal() || mask::prefix(70), {}, 200, 200, "tile_q=192 tile_kv=32 stages_v=2 output=direct");
  add({}, score::alibi(), 40, 260, small_tile);
  add({}, {}, 130, 201, "tile_q=128 tile_kv=160 stages_q=2 stages_v=2 output=separate");
  add({}, {}, 1, 1, two);
  add(mask::causal(), {}, 5, 0, small_tile);
  expect_some_right(cases, 4);
}

// A scale for each query and each key, of tiles that are whole and others, of one consumer and two.
TEST_F(Fp8Test, ScalesOfTokens) {
  std::vector<KernelCase> cases;
  const auto add = [&](const Mask& mask, const Score& score, int seqlen_q, int seqlen_kv,
                       const char* config) {
    AttentionCase problem = fp8_case(DType::fp8_e4m3, 64, seqlen_q, seqlen_kv);
    problem.spec.descale_per = ScaleKind::token;
    problem.spec.gqa_ratio = 2;
    problem.spec.mask = mask;
    problem.spec.score = score;
    cases.push_back({problem, config_of(config)});
  };
  add({}, {}, 130, 200, "tile_q=128 tile_kv=64 stages_q=2 stages_v=2 output=separate order=ping_pong");
  add(mask::causal(), {}, 140, 90, small_tile);  // rows without a key
  add(mask::document(), score::alibi(), 70, 70, "tile_q=128 tile_kv=32 stages_v=2 output=direct");
  add(mask::causal(), score::softcap(3), 66, 130,
      "tile_q=64 tile_kv=96 stages_k=3 stages_v=2 output=direct promote_every=1");
  add({}, {}, 1, 1, small_tile);
  expect_some_right(cases, 3);
}

// A scale for each block of queries and of keys, in tiles of whole blocks and of halves, from any block on.
TEST_F(Fp8Test, ScalesOfBlocks) {
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
  add({}, {}, 200, 270, "tile_q=128 tile_kv=192 stages_q=2 stages_v=2 output=separate order=ping_pong");
  add(mask::causal(), {}, 140, 90, small_tile);  // rows without a key
  add(mask::sliding_window(40, 0), {}, 150, 330, "tile_q=128 tile_kv=96 stages_v=2 output=direct");
  add(mask::causal(), score::softcap(3), 66, 230,
      "tile_q=64 tile_kv=160 stages_k=3 stages_v=2 output=direct promote_every=1");
  add({}, {}, 1, 1, small_tile);
  add({}, {}, 3, 0, small_tile);
  expect_some_right(cases, 3);
}

// Attention restores what a quantizer took away: a scale for each column of values, their mean, the shift of
// LSE; on each path by which O leaves a consumer.
TEST_F(Fp8Test, ColumnsOfValuesAndLse) {
  std::vector<KernelCase> cases;
  const auto add = [&](bool channels, bool means, bool shift, const Mask& mask, const Score& score,
                       int seqlen_q, int seqlen_kv, const char* config) {
    AttentionCase problem = fp8_case(DType::fp8_e4m3, 32, seqlen_q, seqlen_kv);
    AttentionSpec& spec = problem.spec;
    const bool is_wide = cases.size() == 2;
    spec.out_dtype = is_wide ? DType::fp32 : DType::fp16;
    spec.head_dim_v = is_wide ? 32 : 40;
    problem.layout = is_wide ? Layout::bshd : Layout::padded;  // rows keep 16 bytes
    spec.gqa_ratio = 2;
    spec.v_descale_per = channels ? ScaleKind::channel : ScaleKind::head;
    spec.v_mean = means;
    spec.lse_shift = shift;
    spec.descale_per = cases.size() == 1 ? ScaleKind::token : ScaleKind::head;
    spec.mask = mask;
    spec.score = score;
    cases.push_back({problem, config_of(config)});
  };
  add(true, true, true, {}, {}, 130, 100, "tile_q=128 tile_kv=64 stages_q=2 stages_v=2 output=separate");
  add(true, false, false, mask::causal(), {}, 140, 90, small_tile);  // rows without a key
  add(false, true, true, mask::causal(), score::alibi(), 90, 70,
      "tile_q=64 tile_kv=96 stages_v=2 output=direct promote_every=1");
  add(true, true, false, {}, {}, 70, 0, "tile_q=128 tile_kv=32 stages_v=2 output=direct");
  expect_some_right(cases, 3);
}

// Persistent blocks that take several work tiles: scales are those of the tile, and results the same bits.
TEST_F(Fp8Test, ManyTilesOfManyHeads) {
  const CurrentDevice current(0);
  int index = 0;
  for (const char* config : {"tile_q=64 tile_kv=32 stages_q=2 stages_v=2 output=separate",
                             "tile_q=64 tile_kv=32 stages_v=2 output=direct promote_every=1"}) {
    if (!is_in_this_run(index++, 2)) continue;
    AttentionCase problem = fp8_case(DType::fp8_e4m3, 32, 100, 60);
    problem.heads_kv = device_.sm_count / 4 + 3;
    problem.spec.mask = mask::causal();
    AttentionRun run(problem);
    const Attention kernel = attention(problem.spec, config_of(config), context());
    std::vector<unsigned char> first;
    for (int launch = 0; launch < 2; ++launch) {
      run.poison_outputs();
      kernel(run.arguments());
      check(driver().cuCtxSynchronize(), "cuCtxSynchronize");
      if (launch == 0) {
        first = run.outputs();
        EXPECT_EQ(run.check().failure, "");
      }
    }
    EXPECT_EQ(run.outputs(), first);
  }
}

// By whichever family.
using Fp8ScalesTest = GpuTest;

// One key that all queries see: the output is its value, times its scale.
TEST_F(Fp8ScalesTest, ScalesThatAreNoUsualNumbers) {
  const CurrentDevice current(0);
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  struct Wanted {
    float q, k, v;
    bool is_number;
    float o;
  };
  AttentionSpec spec{.dtype = DType::fp8_e4m3, .head_dim = 16, .out_dtype = DType::fp32};
  const Attention kernel = attention_when_called(spec, context());
  const std::vector<unsigned char> ones(128 * 16, 0x38);  // 1 in e4m3
  DeviceBuffer elements(0, ones.size());
  elements.upload(ones.data(), ones.size());
  const auto rows = [&](int seqlen) {
    return TensorView::bshd(elements.data(), spec.dtype,
                            {.batch = 1, .seqlen = seqlen, .heads = 1, .head_dim = 16});
  };
  for (const Wanted& wanted : {Wanted{1, 1, 0.25f, true, 0.25f},
                               {0, 1, 2, true, 2},
                               {1, 0, -3, true, -3},
                               {1, 1, 0, true, 0},
                               {1e-30f, 1e-30f, 1e30f, true, 1e30f},
                               {2, 3, 1e-30f, true, 1e-30f},
                               {-1, 1, 1, false, 0},
                               {1, nan, 1, false, 0},
                               {infinity, 1, 1, false, 0},
                               {1, 1, nan, false, 0}}) {
    const float scales[3] = {wanted.q, wanted.k, wanted.v};
    DeviceBuffer scale(0, sizeof scales), o(0, 64 * 16 * sizeof(float));
    scale.upload(scales, sizeof scales);
    const auto view = [&](int i) {
      TensorView one{.data = static_cast<float*>(scale.data()) + i, .dtype = DType::fp32, .rank = 1};
      one.shape[0] = one.strides[0] = 1;
      return one;
    };
    const TensorView output =
        TensorView::bshd(o.data(), DType::fp32, {.batch = 1, .seqlen = 64, .heads = 1, .head_dim = 16});
    AttentionArguments arguments{.q = rows(64), .k = rows(100), .v = rows(100), .o = output};
    arguments.q_descale = view(0);
    arguments.k_descale = view(1);
    arguments.v_descale = view(2);
    kernel(arguments);
    check(driver().cuCtxSynchronize(), "cuCtxSynchronize");
    std::vector<float> result(64 * 16);
    o.download(result.data(), o.size());
    SCOPED_TRACE(fmt::format("q {}, k {}, v {}", wanted.q, wanted.k, wanted.v));
    for (const float value : {result.front(), result.back()}) {
      EXPECT_EQ(std::isfinite(value), wanted.is_number) << value;
      if (!wanted.is_number) continue;
      EXPECT_NEAR(value, wanted.o, std::abs(wanted.o) * 1e-3);
    }
  }
}

// Values with a mean: all scores are 0, so that the output is the mean of all values. Sums in 13 bits behind the point lose
// what each key adds, unless they move to floats every 128 keys.
TEST_F(Fp8Test, ManyValuesWithAMean) {
  const CurrentDevice current(0);
  const int keys = sized(16384, 4096), head_dim = 32;
  const AttentionSpec spec{.dtype = DType::fp8_e4m3, .head_dim = head_dim, .out_dtype = DType::fp32};
  std::mt19937_64 random(reference::test_seed());
  std::vector<unsigned char> values(static_cast<std::size_t>(keys) * head_dim);
  std::vector<double> means(head_dim);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<unsigned char>(0x34 + random() % 9);  // from 3/4 to 3/2
    means[i % head_dim] += static_cast<double>(float_from_bits(spec.dtype, values[i])) / keys;
  }
  const DeviceBuffer zeros(0, values.size()), v(0, values.size()), o(0, 64 * head_dim * sizeof(float));
  zeros.fill(0, nullptr);
  v.upload(values.data(), values.size());
  const auto rows = [&](const DeviceBuffer& memory, DType dtype, int seqlen) {
    return TensorView::bshd(memory.data(), dtype,
                            {.batch = 1, .seqlen = seqlen, .heads = 1, .head_dim = head_dim});
  };
  const auto error = [&](const char* config) {
    const Attention kernel = attention(
        spec, config_of(std::string("tile_q=64 tile_kv=32 stages_v=2 output=direct") + config), context());
    kernel({.q = rows(zeros, spec.dtype, 64),
            .k = rows(zeros, spec.dtype, keys),
            .v = rows(v, spec.dtype, keys),
            .o = rows(o, DType::fp32, 64)});
    check(driver().cuCtxSynchronize(), "cuCtxSynchronize");
    std::vector<float> result(64 * head_dim);
    o.download(result.data(), o.size());
    double worst = 0;
    for (std::size_t i = 0; i < result.size(); ++i)
      worst = std::max(worst, std::abs(static_cast<double>(result[i]) / means[i % head_dim] - 1));
    return worst;
  };
  const double once = error(" promote_every=0"), twice = error(" promote_every=4");
  EXPECT_LT(twice, 1e-4);
  EXPECT_GT(once, 0.02);
}

TEST_F(Fp8Test, WhatCannotBeServedIsRefused) {
  const AttentionSpec spec{.dtype = DType::fp8_e4m3, .head_dim = 64};
  const auto refused = [&](auto change) {
    AttentionSpec other = spec;
    change(other);
    const Error error = error_of([&] { validate(other); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_spec);
    return error.message();
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(refused([](AttentionSpec& s) { s.kv_dtype = DType::fp8_e5m2; }), HasSubstr("of one type"));
  EXPECT_THAT(refused([](AttentionSpec& s) { s.out_dtype = DType::fp8_e4m3; }),
              HasSubstr("bf16 or fp16 or fp32"));
  EXPECT_THAT(refused([](AttentionSpec& s) { s.dropout = true; }), HasSubstr("must be false"));
  EXPECT_THAT(refused([](AttentionSpec& s) {
                s.dtype = DType::bf16;
                s.kv_dtype = DType::fp8_e4m3;
                s.descale_per = ScaleKind::block;
              }),
              HasSubstr("have scales of heads or of tokens"));
  EXPECT_THAT(refused([](AttentionSpec& s) { s.descale_per = ScaleKind::channel; }),
              HasSubstr("one of v has a scale by v_descale_per"));
  EXPECT_THAT(refused([](AttentionSpec& s) { s.v_descale_per = ScaleKind::token; }),
              HasSubstr("cannot take the scale of its value"));
  EXPECT_THAT(refused([](AttentionSpec& s) {
                s.lse_shift = true;
                s.score = score::alibi().then(score::softcap(3));
              }),
              HasSubstr("with score alibi, softcap(3): it sees scores without the mean of k"));
  for (bool AttentionSpec::*means : {&AttentionSpec::v_mean, &AttentionSpec::lse_shift}) {
    EXPECT_THAT(refused([&](AttentionSpec& s) {
                  s.dtype = DType::bf16;
                  s.*means = true;
                }),
                HasSubstr("must be false where q is not of fp8"));
  }
  EXPECT_THAT(refused([](AttentionSpec& s) {
                s.dtype = DType::bf16;
                s.out_dtype = DType::fp16;
              }),
              HasSubstr("that of q, bf16"));
  const Error family =
      error_of([&] { attention(spec, parse_config("family=forward_split_wgmma"), context()); });
  EXPECT_EQ(family.code(), ErrorCode::no_valid_config);
  EXPECT_THAT(family.message(), HasSubstr("reads q of 16 bits"));
  for (const auto& [config, rule] : {std::pair("tile_kv=48", "a multiple of 32"),
                                     {"rescale=on_overflow output=separate", "must be lazy with fp8"},
                                     {"output=over_q", "O does not fit over Q"}}) {
    const Error error = error_of([&, &config = config] { attention(spec, config_of(config), context()); });
    EXPECT_THAT(error.message(), HasSubstr(rule));
  }
}

}  // namespace
}  // namespace jit::testing
