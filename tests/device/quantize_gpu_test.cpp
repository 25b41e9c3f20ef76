// jit::quantize_qkv on a device against double precision: every element, scale, mean and shift.
#include <jit/float16.h>
#include <jit/quantize.h>

#include <array>
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/device/gpu_fixture.h"
#include "tests/support/captured_graph.h"
#include "tests/support/error_of.h"
#include "tests/support/quantize_run.h"
#include "tests/support/seed.h"
#include "tests/support/shared_cache.h"

namespace jit::testing {
namespace {

class QuantizeTest : public GpuTest {
 protected:
  // By the program that reads rows twice, and where there is one by that which keeps them: bits are the same.
  static void expect_right(const QuantizeCase& problem) {
    const std::vector<std::uint8_t> written = written_by(problem, KeepRows::never);
    if (!can_keep(problem)) return;
    EXPECT_TRUE(written_by(problem, KeepRows::always) == written) << to_string(problem);
  }

  static bool can_keep(QuantizeCase problem) {
    if (device_info(0).arch.major != 9) return false;
    problem.spec.sequences = QuantizeRun(problem, 1).spec().sequences;
    problem.spec.keep_rows = KeepRows::always;
    const bool has_rows = problem.seqlen_q > 0 && problem.seqlen_kv > 0 && problem.heads_q > 0;
    try {
      validate(problem.spec);
      return has_rows;
    } catch (const Error&) {
      return false;
    }
  }

  static std::vector<std::uint8_t> written_by(QuantizeCase problem, KeepRows keep_rows) {
    problem.spec.keep_rows = keep_rows;
    QuantizeRun run(problem, reference::test_seed());
    try {
      quantize_qkv(run.spec(), context())(run.arguments());
      EXPECT_EQ(run.check(), "") << to_string(problem);
    } catch (const Error& error) {
      ADD_FAILURE() << to_string(problem) << ": " << error.what() << "\n" << error.log();
    }
    return run.written();
  }
};

using enum QuantizedScales;

// The nearest e4m3 number, of two the one with an even code; too large ones are the largest.
float rounded_to_e4m3(float x) {
  if (std::isnan(x)) return x;
  std::uint16_t best = 0;
  const auto distance = [&](std::uint16_t code) {
    return std::abs(double{float_from_bits(DType::fp8_e4m3, code)} - std::min(std::abs(double{x}), 448.0));
  };
  for (std::uint16_t code = 1; code < 0x7f; ++code) {
    if (distance(code) < distance(best) || (distance(code) == distance(best) && code % 2 == 0)) best = code;
  }
  return std::copysign(float_from_bits(DType::fp8_e4m3, best), x);
}

TEST_F(QuantizeTest, TypesAndScales) {
  const CurrentDevice current(0);
  struct Kind {
    DType dtype, out_dtype;
    QuantizedScales scales, value_scales;
  };
  for (const Kind& kind : {Kind{DType::bf16, DType::fp8_e4m3, token, head},
                           {DType::fp16, DType::fp8_e5m2, token, given},
                           {DType::fp32, DType::fp8_e4m3, head, channel},
                           {DType::fp32, DType::fp8_e5m2, given, given},
                           {DType::bf16, DType::fp8_e4m3, given, channel}}) {
    expect_right({.spec = {.dtype = kind.dtype,
                           .out_dtype = kind.out_dtype,
                           .head_dim = 64,
                           .scales = kind.scales,
                           .value_scales = kind.value_scales},
                  .outliers = 30});
  }
}

TEST_F(QuantizeTest, HeadDims) {
  const CurrentDevice current(0);
  bool centers = false;
  for (const auto& [head_dim, head_dim_v] : {std::pair{8, 8}, {72, 40}, {128, 256}, {256, 24}, {80, 88}}) {
    centers = !centers;
    expect_right({.spec = {.head_dim = head_dim,
                           .head_dim_v = head_dim_v,
                           .scales = centers ? head : token,
                           .value_scales = centers ? channel : head,
                           .center_keys = centers,
                           .center_values = centers},
                  .offset = 3});
  }
}

// Blocks that a piece of work has some of, all of the way of rows to lanes, and a last one that is not whole.
TEST_F(QuantizeTest, ScalesOfBlocks) {
  const CurrentDevice current(0);
  for (const int head_dim : {8, 72, 128, 256}) {
    const bool is_wide = head_dim == 256;
    expect_right({.spec = {.dtype = is_wide ? DType::fp32 : DType::bf16,
                           .head_dim = head_dim,
                           .head_dim_v = 8,
                           .scales = QuantizedScales::block,
                           .rotate = head_dim == 128,
                           .center_keys = head_dim != 72},
                  .batch = is_wide ? 1 : 2,
                  .seqlen_q = is_wide ? 70 : 130,
                  .seqlen_kv = is_wide ? 128 : 200,
                  .heads_q = 2,
                  .heads_kv = 1,
                  .outliers = 30,
                  .offset = 3});
  }
}

// Several pieces of work for a head, several units, and more of both than run at once.
TEST_F(QuantizeTest, MeansOfLongSequences) {
  const CurrentDevice current(0);
  for (const QuantizedScales scales : {token, head, given}) {
    expect_right({.spec = {.dtype = DType::fp32,
                           .head_dim = 256,
                           .scales = scales,
                           .value_scales = scales == token ? channel : scales,
                           .center_keys = true,
                           .center_values = scales != head},
                  .batch = 2,
                  .seqlen_q = scales == head ? 40 : 3,
                  .seqlen_kv = 80,
                  .heads_q = 2,
                  .heads_kv = 2,
                  .offset = 5});
  }
  expect_right({.spec = {.center_values = true}, .seqlen_q = 1, .seqlen_kv = 300, .heads_q = 8, .offset = 5});
  // More statistics of pieces than are on their way at once: of 256 columns, of 9 pieces of 64 tokens.
  expect_right({.spec = {.head_dim = 256, .scales = head, .center_keys = true, .center_values = true},
                .batch = 1,
                .seqlen_q = 1,
                .seqlen_kv = 20 * 64 + 5,
                .heads_q = 1,
                .heads_kv = 1,
                .offset = 5});
}

// Blocks stay, and have several pieces of work each: with tickets, and without. Pieces are small, of a token or a few.
TEST_F(QuantizeTest, MorePiecesThanBlocks) {
  for (const QuantizedScales scales : {token, head}) {
    for (const QuantizedScales value_scales : {given, channel}) {
      for (const DType dtype : {DType::bf16, DType::fp32}) {
        expect_right({.spec = {.dtype = dtype,
                               .head_dim = dtype == DType::fp32 ? 256 : 8,
                               .head_dim_v = 8,
                               .scales = scales,
                               .value_scales = value_scales},
                      .batch = 7,
                      .seqlen_q = 2,
                      .seqlen_kv = 1,
                      .heads_q = 64,
                      .heads_kv = 64});
      }
    }
  }
}

TEST_F(QuantizeTest, Rotates) {
  const CurrentDevice current(0);
  for (const int head_dim : {8, 16, 64, 128, 256}) {
    const bool is_wide = head_dim == 256;
    expect_right({.spec = {.dtype = is_wide ? DType::fp32 : DType::bf16,
                           .head_dim = head_dim,
                           .head_dim_v = 40,
                           .scales = head_dim == 64 ? head : token,
                           .rotate = true,
                           .center_keys = head_dim >= 64},
                  .seqlen_kv = 20,
                  .outliers = 50,
                  .offset = 2});
  }
}

// Before the rotation: RMS norm, then angles of positions, of which some are none of the table's.
TEST_F(QuantizeTest, NormAndPositions) {
  const CurrentDevice current(0);
  bool turn = false;
  for (const auto& [head_dim, rotary_dim] : {std::pair{64, 64}, {128, 32}, {80, 40}, {256, 0}}) {
    turn = !turn;
    const QuantizeSpec spec{.dtype = head_dim == 256 ? DType::fp32 : DType::bf16,
                            .head_dim = head_dim,
                            .scales = head_dim == 128 ? head : token,
                            .norm = head_dim != 80,
                            .norm_dtype = turn ? DType::bf16 : DType::fp32,
                            .norm_adds_one = turn,
                            .norm_eps = 0.1f,
                            .rotary_dim = rotary_dim,
                            .rotary_interleaved = head_dim == 128,
                            .cos_sin_dtype = turn ? DType::fp32 : DType::bf16,
                            .rotate = head_dim == 64};
    QuantizeSpec fitting = spec;
    if (head_dim == 80) fitting.alignment = 8;
    expect_right({.spec = fitting});
    expect_right({.spec = fitting, .batch = 0, .seqlen_q = 9, .seqlen_kv = 11});
    fitting.center_keys = true;
    expect_right({.spec = fitting, .has_positions = false, .offset = 2});
  }
}

TEST_F(QuantizeTest, LayoutsAndVarlenTokens) {
  const CurrentDevice current(0);
  const QuantizeSpec spec{
      .head_dim = 64, .head_dim_v = 32, .rotate = true, .center_keys = true, .center_values = true};
  QuantizeSpec odd = spec;
  odd.alignment = 2;
  for (const bool with_shift : {false, true}) {
    expect_right({.spec = spec, .layout = {.order = {0, 2, 1, 3}}, .offset = 1, .with_shift = with_shift});
    expect_right({.spec = spec, .batch = 0, .offset = 1, .with_shift = with_shift});
    expect_right(
        {.spec = odd, .layout = {.row_elements = 3, .first = 1}, .offset = 1, .with_shift = with_shift});
  }
}

// Lengths of batch entries: some, none, all, and numbers that are cut. All kinds of scales; several pieces of work for a
// head, of which some have no row of a sequence.
TEST_F(QuantizeTest, RowsBehindSequences) {
  const CurrentDevice current(0);
  const SequencesCase queries{.seqused = {5, 0, -3, 90}}, keys{.seqused = {70, 999, 0, 3}};
  for (const QuantizedScales scales : {token, head, block, given}) {
    expect_right({.spec = {.head_dim = 128,
                           .head_dim_v = 64,
                           .scales = scales,
                           .value_scales = scales == token   ? channel
                                           : scales == given ? given
                                                             : head,
                           .rotate = scales == token || scales == block,
                           .center_keys = true,
                           .center_values = scales != token},
                  .batch = 4,
                  .seqlen_q = 70,
                  .seqlen_kv = 140,
                  .heads_q = 2,
                  .heads_kv = 1,
                  .offset = 2,
                  .queries = queries,
                  .keys = keys});
  }
  expect_right({.spec = {.head_dim = 64, .norm = true, .rotary_dim = 32},
                .seqlen_q = 20,
                .queries = {.seqused = {20, 7}},
                .keys = {.seqused = {33, 1}}});
}

// Varlen rows before the first sequence, behind the last one, and behind a length; sequences of no rows; and boundaries
// that are cut.
TEST_F(QuantizeTest, RowsBetweenVarlenSequences) {
  const CurrentDevice current(0);
  const SequencesCase queries{.cu_seqlens = {1, 1, 9, 40, 60}}, keys{.cu_seqlens = {-7, 30, 30, 100, 999}};
  SequencesCase used_queries = queries, used_keys = keys;
  used_queries.seqused = {4, 6, 99, 0}, used_keys.seqused = {11, 2, 40, 3};
  used_keys.cu_seqlens = {3, 30, 30, 100, 120};
  for (const QuantizedScales scales : {token, head, block}) {
    QuantizeCase problem{.spec = {.head_dim = 128,
                                  .head_dim_v = 64,
                                  .scales = scales,
                                  .value_scales = scales == block ? channel : head,
                                  .center_keys = true,
                                  .center_values = true},
                         .batch = 0,
                         .seqlen_q = 70,
                         .seqlen_kv = 140,
                         .offset = 2,
                         .queries = queries,
                         .keys = keys};
    expect_right(problem);
    problem.queries = used_queries, problem.keys = used_keys;
    expect_right(problem);
  }
  expect_right({.spec = {.head_dim = 64, .rotary_dim = 64},
                .batch = 0,
                .seqlen_q = 20,
                .keys = {.cu_seqlens = {0, 40}}});
}

// Three programs: of no lengths, of lengths, of boundaries.
TEST_F(QuantizeTest, LengthsOfAllRowsChangeNoBit) {
  const CurrentDevice current(0);
  const auto written = [](const QuantizeCase& problem) {
    QuantizeRun run(problem, reference::test_seed());
    quantize_qkv(run.spec(), context())(run.arguments());
    EXPECT_EQ(run.check(), "") << to_string(problem);
    return run.written();
  };
  for (const QuantizedScales scales : {token, head, block}) {
    QuantizeCase problem{.spec = {.head_dim = 64,
                                  .scales = scales,
                                  .value_scales = scales == block ? channel : head,
                                  .rotate = true,
                                  .center_keys = true,
                                  .center_values = true},
                         .seqlen_q = 70,
                         .offset = 2};
    QuantizeCase full = problem;
    full.queries.seqused = {70, 70}, full.keys.seqused = {70, 70};
    EXPECT_EQ(written(full), written(problem)) << to_string(full);
    problem.batch = full.batch = 0;
    full.queries = {.cu_seqlens = {0, 1, 40, 70}}, full.keys = {.cu_seqlens = {0, 30, 30, 70}};
    EXPECT_EQ(written(full), written(problem)) << to_string(full);
  }
}

TEST_F(QuantizeTest, NothingOrLittleToDo) {
  const CurrentDevice current(0);
  for (const bool center : {false, true}) {
    const QuantizeSpec spec{.head_dim = 64, .center_keys = center, .center_values = center};
    expect_right({.spec = spec, .seqlen_q = 0});
    expect_right({.spec = spec, .seqlen_kv = 0});
    expect_right({.spec = spec, .heads_q = 0});
    expect_right({.spec = spec, .heads_q = 0, .heads_kv = 0});
  }
}

// With scales of tokens each element is known to the bit: x · (1 / (largest / 448)) in fp32, rounded.
TEST_F(QuantizeTest, RoundsAsItSays) {
  const CurrentDevice current(0);
  const QuantizeSpec spec{.dtype = DType::fp32, .head_dim = 32};
  constexpr float infinity = std::numeric_limits<float>::infinity(),
                  nan = std::numeric_limits<float>::quiet_NaN(), most = std::numeric_limits<float>::max();
  const std::vector<std::array<float, 4>> rows = {{0, -0.0f, 0, 0},       {1, 17, 18, 19},
                                                  {3, -448, 1e-3f, 27},   {0x1p-101f, 0, 1e-40f, 0},
                                                  {nan, 1, 0.5f, -0.25f}, {infinity, 1, -infinity, 0},
                                                  {most, -most, 1, 0},    {0x1p-99f, 0x1p-102f, 0, 0}};
  const auto tokens = static_cast<std::int64_t>(rows.size());
  const std::vector<std::int64_t> shape = {tokens, 1, 32};
  DeviceTensor q(DType::fp32, shape), q_out(DType::fp8_e4m3, shape), k_out(DType::fp8_e4m3, shape),
      v_out(DType::fp8_e4m3, shape), q_scale(DType::fp32, {tokens, 1}), k_scale(DType::fp32, {tokens, 1}),
      v_scale(DType::fp32, {1});
  std::vector<float> wanted;
  for (std::int64_t token = 0; token < tokens; ++token) {
    const std::array<float, 4>& row = rows[static_cast<std::size_t>(token)];
    float largest = 0;
    for (const float x : row) largest = std::isnan(x) ? largest : std::max(largest, std::abs(x));
    const float scale = largest < 0x1p-100f ? 1.0f : std::min(largest, most) / 448;
    for (std::int64_t c = 0; c < 32; ++c) {
      const float x = row[static_cast<std::size_t>(c % 4)];
      q.set({token, 0, c}, x);
      wanted.push_back(rounded_to_e4m3(x * (1.0f / scale)));
    }
  }
  q.upload();
  quantize_qkv(spec, context())({.q = q.view(),
                                 .k = q.view(),
                                 .v = q.view(),
                                 .q_out = q_out.view(),
                                 .k_out = k_out.view(),
                                 .v_out = v_out.view(),
                                 .q_descale = q_scale.view(),
                                 .k_descale = k_scale.view(),
                                 .v_descale = v_scale.view()});
  q_out.download();
  k_out.download();
  for (std::int64_t token = 0; token < tokens; ++token) {
    for (std::int64_t c = 0; c < 32; ++c) {
      const double expected = wanted.at(static_cast<std::size_t>(32 * token + c));
      for (const auto& [name, out] : {std::pair("q", &q_out), {"k", &k_out}}) {
        const double got = out->get({token, 0, c});  // NaN has a sign that nobody asked for
        EXPECT_TRUE(std::isnan(expected) ? std::isnan(got)
                                         : got == expected && std::signbit(got) == std::signbit(expected))
            << name << ", token " << token << ", column " << c << ": " << got << ", should be " << expected;
      }
    }
  }
}

TEST_F(QuantizeTest, EqualInputsGiveEqualBits) {
  const CurrentDevice current(0);
  const QuantizeCase problem{.spec = {.dtype = DType::fp32,
                                      .head_dim = 256,
                                      .scales = head,
                                      .value_scales = channel,
                                      .rotate = true,
                                      .center_keys = true,
                                      .center_values = true},
                             .seqlen_kv = 40,
                             .heads_q = 2};
  QuantizeRun run(problem, reference::test_seed());
  const QuantizeQkv kernel = quantize_qkv(run.spec(), context());
  kernel(run.arguments());
  ASSERT_EQ(run.check(), "");
  const std::vector<std::uint8_t> first = run.written();
  for (int round = 0; round < 2; ++round) {
    kernel(run.arguments());
    ASSERT_EQ(run.check(), "");
    EXPECT_EQ(run.written(), first);
  }
}

TEST_F(QuantizeTest, GraphsReplayOnOtherNumbers) {
  const CurrentDevice current(0);
  const QuantizeCase problem{.spec = {.head_dim = 64, .center_keys = true, .center_values = true},
                             .offset = 2,
                             .keys = {.seqused = {33, 70}}};
  QuantizeRun run(problem, reference::test_seed());
  const QuantizeQkv kernel = quantize_qkv(run.spec(), context());
  const TestStream stream;
  const CapturedGraph graph(stream, [&] { kernel(run.arguments(), stream.get()); });
  for (int replay = 0; replay < 2; ++replay) {
    run.fill();
    graph.run(stream);
    EXPECT_EQ(run.check(), "") << "replay " << replay;
  }
}

}  // namespace
}  // namespace jit::testing
