// The quantizer without a device: specs, programs, checks of arguments, sizes of a launch.
#include <jit/quantize.h>

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/operations/quantize/arguments.h"
#include "generator/operations/quantize/program.h"
#include "generator/operations/quantize/resident.h"
#include "generator/pack/quantizer_kernels.h"
#include "tests/support/error_of.h"

namespace jit::testing {
namespace {

using ::testing::HasSubstr;
using enum QuantizedScales;

TensorView tensor_at(std::uintptr_t place, DType dtype, std::initializer_list<std::int64_t> shape) {
  return TensorView::dense(reinterpret_cast<void*>(place << 32), dtype, shape);
}

TEST(QuantizeSpecTest, RefusesWhatCannotBeServed) {
  const std::vector<std::pair<const char*, QuantizeSpec>> wrong = {
      {"spec.dtype", {.dtype = DType::fp8_e4m3}},
      {"spec.out_dtype", {.out_dtype = DType::bf16}},
      {"spec.head_dim", {.head_dim = 0}},
      {"spec.head_dim", {.head_dim = 264}},
      {"spec.head_dim_v", {.head_dim_v = 12}},
      {"spec.alignment", {.alignment = 32}},
      {"spec.scales", {.scales = channel}},
      {"spec.value_scales", {.value_scales = token}},
      {"spec.rotary_dim", {.rotary_dim = 130}},
      {"spec.rotary_dim", {.rotary_dim = 7}},
      {"spec.cos_sin_dtype", {.cos_sin_dtype = DType::int64}},
      {"spec.norm_dtype", {.norm_dtype = DType::fp8_e4m3}},
      {"spec.norm_eps", {.norm_eps = 0}},
      {"spec.rotate", {.head_dim = 96, .rotate = true}},
      {"spec.sequences", {.sequences = SequenceKind::paged}},
      {"spec.keep_rows", {.sequences = SequenceKind::padded, .keep_rows = KeepRows::always}},
      {"spec.keep_rows", {.alignment = 8, .keep_rows = KeepRows::always}},
      {"spec.keep_rows", {.head_dim_v = 32, .keep_rows = KeepRows::always}},
      {"spec.keep_rows", {.dtype = DType::fp32, .head_dim = 256, .keep_rows = KeepRows::always}},
      {"spec.keep_rows", {.value_scales = given, .keep_rows = KeepRows::always}}};
  for (const auto& [field, spec] : wrong) {
    const Error error = error_of([&, spec = spec] { validate(spec); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_spec);
    EXPECT_EQ(error.field(), field);
    EXPECT_THAT(error.message(), HasSubstr("nearest supported"));
  }
  validate(QuantizeSpec());
  validate({.keep_rows = KeepRows::always});
}

// The host's estimate for 132 multiprocessors and heads of 128 columns.
TEST(QuantizeSpecTest, RowsAreKeptWhereItGains) {
  const auto gains = [](int batch, std::int64_t seqlen, std::int64_t heads, int head_dim) {
    const QuantizeSpec spec{.head_dim = head_dim, .scales = QuantizedScales::head};
    const auto rows_at = [&](int place, DType dtype) {
      return tensor_at(place, dtype, {batch, seqlen, heads, head_dim});
    };
    QuantizeArguments arguments;
    int place = 0;
    for (TensorView* input : {&arguments.q, &arguments.k, &arguments.v})
      *input = rows_at(++place, DType::bf16);
    for (TensorView* output : {&arguments.q_out, &arguments.k_out, &arguments.v_out})
      *output = rows_at(++place, DType::fp8_e4m3);
    for (TensorView* scale : {&arguments.q_descale, &arguments.k_descale, &arguments.v_descale})
      *scale = tensor_at(++place, DType::fp32, {batch, heads});
    QuantizeParams params;
    fill_params(spec, arguments, params);
    return cannot_keep_rows(spec, params, 132).empty() && gains_by_keeping_rows(spec, params, 132);
  };
  EXPECT_TRUE(gains(1, 16384, 16, 128));
  EXPECT_TRUE(gains(2, 8192, 16, 64));
  EXPECT_FALSE(gains(1, 131072, 16, 128)) << "a head fills more than the pipelines' larger part";
  EXPECT_FALSE(gains(1, 512, 16, 128)) << "pipelines are not filled once";
  EXPECT_FALSE(gains(1, 16384, 16, 48)) << "not measured";
}

TEST(QuantizeSpecTest, EachFieldMakesAnotherProgram) {
  const std::vector<QuantizeSpec> specs = {{},
                                           {.dtype = DType::fp32},
                                           {.out_dtype = DType::fp8_e5m2},
                                           {.head_dim = 64},
                                           {.head_dim_v = 64},
                                           {.alignment = 8},
                                           {.scales = given},
                                           {.value_scales = channel},
                                           {.rotate = true},
                                           {.center_keys = true},
                                           {.center_values = true},
                                           {.sequences = SequenceKind::padded},
                                           {.sequences = SequenceKind::varlen},
                                           {.norm = true},
                                           {.norm_dtype = DType::fp32},
                                           {.norm_adds_one = true},
                                           {.rotary_dim = 64},
                                           {.rotary_interleaved = true},
                                           {.cos_sin_dtype = DType::bf16}};
  std::set<std::string> sources;
  for (const QuantizeSpec& spec : specs) sources.insert(quantize_program(spec).source);
  EXPECT_EQ(sources.size(), specs.size());
  EXPECT_TRUE(sources.contains(quantize_program({.norm_eps = 0.5f}).source)) << "a run-time fact";
}

// Rotated and not, with k's mean and without, and of both with lengths and without.
TEST(QuantizeSpecTest, QuantizersOfAPack) {
  AttentionSpec spec{.dtype = DType::fp8_e4m3, .out_dtype = DType::bf16};
  EXPECT_EQ(of_quantizers(spec, {}).size(), 8u);
  EXPECT_EQ(of_quantizers(spec, {.arch = {9, 0, 'a'}}).size(), 12u)
      << "four that keep rows beside those of no lengths";
  spec.sequences_q = spec.sequences_kv = SequenceKind::varlen;
  EXPECT_EQ(of_quantizers(spec, {}).size(), 8u);
}

QuantizeArguments some_arguments() {
  return {.q = tensor_at(1, DType::bf16, {2, 5, 4, 64}),
          .k = tensor_at(2, DType::bf16, {2, 9, 2, 64}),
          .v = tensor_at(3, DType::bf16, {2, 9, 2, 32}),
          .q_out = tensor_at(4, DType::fp8_e4m3, {2, 5, 4, 64}),
          .k_out = tensor_at(5, DType::fp8_e4m3, {2, 9, 2, 64}),
          .v_out = tensor_at(6, DType::fp8_e4m3, {2, 9, 2, 32}),
          .q_descale = tensor_at(7, DType::fp32, {2, 5, 4}),
          .k_descale = tensor_at(8, DType::fp32, {2, 9, 2}),
          .v_descale = tensor_at(9, DType::fp32, {2, 2})};
}

TEST(QuantizeArgumentsTest, RefusesByName) {
  const QuantizeSpec spec{.head_dim = 64, .head_dim_v = 32};
  const auto refused = [&](const char* field, const char* message, const QuantizeSpec& asked,
                           const auto& change) {
    QuantizeArguments arguments = some_arguments();
    change(arguments);
    const Error error = error_of([&] { check_arguments(asked, arguments); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
    EXPECT_EQ(error.field(), field);
    EXPECT_THAT(error.message(), HasSubstr(message));
  };
  check_arguments(spec, some_arguments());
  using A = QuantizeArguments;
  refused("k", "is missing", spec, [](A& a) { a.k = {}; });
  refused("k", "has batch = 3; it must be 2", spec, [](A& a) {
    a.k = tensor_at(2, DType::bf16, {3, 9, 2, 64});
  });
  refused("v", "is fp16; it must be bf16", spec, [](A& a) { a.v.dtype = DType::fp16; });
  refused("v", "has seqlen_kv = 8", spec, [](A& a) { a.v.shape[1] = 8; });
  refused("q_out", "is fp8_e5m2; it must be fp8_e4m3", spec, [](A& a) { a.q_out.dtype = DType::fp8_e5m2; });
  refused("q", "must be a multiple of k's", spec, [](A& a) {
    a.q.shape[2] = a.q_out.shape[2] = 3;
    a.q_descale = tensor_at(7, DType::fp32, {2, 5, 3});
  });
  refused("q_descale", "is missing", spec, [](A& a) { a.q_descale = {}; });
  refused("k_descale", "it must be (batch, seqlen_kv, heads_kv)", spec, [](A& a) {
    a.k_descale = tensor_at(8, DType::fp32, {2, 2});
  });
  refused("v_mean", "spec.center_values is not set", spec, [](A& a) {
    a.v_mean = tensor_at(10, DType::fp32, {2, 2, 32});
  });
  refused("lse_shift", "spec.center_keys is not set", spec, [](A& a) {
    a.lse_shift = tensor_at(10, DType::fp32, {2, 4, 5});
  });
  refused("v_out", "shares memory with k", spec, [](A& a) { a.v_out.data = a.k.data; });
  refused("v_out", "along head_dim; it must be 1, so give it with a row of head_dim for each token", spec,
          [&](A& a) {
            constexpr std::int64_t pitch = 16;
            const std::int64_t strides[] = {64 * pitch, 1, 32 * pitch, pitch};
            std::copy(std::begin(strides), std::end(strides), a.v_out.strides);
          });
  refused("k_out", "not aligned", spec, [](A& a) { a.k_out.data = static_cast<char*>(a.k_out.data) + 1; });
  refused("cos_sin", "spec.rotary_dim is 0", spec, [](A& a) {
    a.cos_sin = tensor_at(10, DType::fp32, {9, 64});
  });
  refused("k_norm_weight", "spec.norm is not set", spec,
          [](A& a) { a.k_norm_weight = tensor_at(10, DType::bf16, {64}); });
  QuantizeSpec other = spec;
  other.rotary_dim = 32;
  refused("cos_sin", "is missing", other, [](A&) {});
  refused("cos_sin", "has rotary_dim = 64; it must be 32", other, [](A& a) {
    a.cos_sin = tensor_at(10, DType::fp32, {9, 64});
  });
  refused("q_positions", "is int32; it must be int64", other, [](A& a) {
    a.cos_sin = tensor_at(10, DType::fp32, {9, 32});
    a.q_positions = tensor_at(11, DType::int32, {2, 5});
  });
  other = spec;
  other.norm = true;
  refused("q_norm_weight", "is missing", other, [](A&) {});
  other = spec;
  other.center_values = true;
  refused("v_mean", "is missing", other, [](A&) {});
  refused("v_mean", "must be dense", other, [](A& a) {
    a.v_mean = tensor_at(10, DType::fp32, {2, 2, 32});
    a.v_mean.strides[0] = 128;
  });
  other = spec;
  other.value_scales = channel;
  refused("v_descale", "it must be (batch, heads_kv, head_dim_v)", other, [](A&) {});
  other.value_scales = given;
  refused("v_descale", "has heads_kv = 3", other, [](A& a) { a.v_descale = tensor_at(9, DType::fp32, {3}); });
  other.scales = given;
  QuantizeArguments without = some_arguments();
  without.q_descale = without.k_descale = {};
  without.v_descale = tensor_at(9, DType::fp32, {1});
  check_arguments(other, without);
}

TEST(QuantizeArgumentsTest, SequencesThatAreRefused) {
  QuantizeSpec spec{.head_dim = 64, .head_dim_v = 32};
  const auto lengths = [](std::initializer_list<std::int64_t> shape, DType dtype = DType::int32) {
    return tensor_at(12, dtype, shape);
  };
  const auto varlen = [] {
    return QuantizeArguments{.q = tensor_at(1, DType::bf16, {5, 4, 64}),
                             .k = tensor_at(2, DType::bf16, {9, 2, 64}),
                             .v = tensor_at(3, DType::bf16, {9, 2, 32}),
                             .q_out = tensor_at(4, DType::fp8_e4m3, {5, 4, 64}),
                             .k_out = tensor_at(5, DType::fp8_e4m3, {9, 2, 64}),
                             .v_out = tensor_at(6, DType::fp8_e4m3, {9, 2, 32}),
                             .q_descale = tensor_at(7, DType::fp32, {5, 4}),
                             .k_descale = tensor_at(8, DType::fp32, {9, 2}),
                             .v_descale = tensor_at(9, DType::fp32, {2})};
  };
  const auto check = [&](const QuantizeArguments& arguments) {
    spec.sequences = sequences_of(arguments);
    check_arguments(spec, arguments);
  };
  const auto refused = [&](const char* field, const char* message, const QuantizeArguments& arguments) {
    const Error error = error_of([&] { check(arguments); });
    EXPECT_EQ(error.field(), field) << error.what();
    EXPECT_THAT(error.message(), HasSubstr(message));
  };
  QuantizeArguments a = some_arguments();
  a.seqused_k = a.seqused_q = lengths({2});
  check(a);
  a.seqused_k = lengths({3});
  refused("seqused_k", "has batch = 3; it must be 2", a);
  a.seqused_k = lengths({2}, DType::int64);
  refused("seqused_k", "is int64; it must be int32", a);
  a.seqused_k = lengths({2});
  a.seqused_k.strides[0] = 2;
  refused("seqused_k", "must be dense", a);
  a.seqused_k = {}, a.seqused_q.data = a.k_out.data;
  refused("k_out", "shares memory with seqused_q", a);
  a = some_arguments();
  a.cu_seqlens_q = lengths({3});
  refused("cu_seqlens_q", "give seqused_q, or varlen q", a);
  a = varlen();
  a.cu_seqlens_q = lengths({4}), a.seqused_q = lengths({3});
  check(a);
  a.cu_seqlens_k = lengths({5});
  refused("cu_seqlens_k", "has batch + 1 = 5; it must be 4", a);
  a.cu_seqlens_k = {}, a.seqused_k = lengths({3});
  refused("cu_seqlens_k", "is missing; seqused_k is of sequences", a);
  a.seqused_k = {}, a.seqused_q = lengths({4});
  refused("seqused_q", "has batch = 4; it must be 3", a);
  a.seqused_q = {}, a.cu_seqlens_q = lengths({0});
  refused("cu_seqlens_q", "must have at least 1", a);
}

// Each array is of some programs alone, and those want one of theirs.
TEST(QuantizeArgumentsTest, SequencesThatTheSpecDoesNotName) {
  using A = QuantizeArguments;
  using enum SequenceKind;
  const auto refused = [](SequenceKind sequences, TensorView A::*given, const char* field,
                          const char* message) {
    QuantizeArguments arguments = some_arguments();
    if (given != nullptr) arguments.*given = tensor_at(12, DType::int32, {2});
    const Error error = error_of(
        [&] { check_arguments({.head_dim = 64, .head_dim_v = 32, .sequences = sequences}, arguments); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_EQ(error.field(), field);
    EXPECT_THAT(error.message(), HasSubstr(message));
  };
  refused(dense, &A::cu_seqlens_q, "cu_seqlens_q", "was given; spec.sequences is dense");
  refused(dense, &A::seqused_q, "seqused_q", "was given; spec.sequences is dense");
  refused(dense, &A::seqused_k, "seqused_k", "was given; spec.sequences is dense");
  refused(padded, &A::cu_seqlens_k, "cu_seqlens_k", "was given; spec.sequences is padded");
  refused(padded, nullptr, "seqused_k", "is missing, and so is seqused_q; spec.sequences is padded");
  refused(varlen, nullptr, "cu_seqlens_k", "is missing, and so is cu_seqlens_q; spec.sequences is varlen");
  refused(varlen, &A::seqused_k, "cu_seqlens_k",
          "is missing, and so is cu_seqlens_q; spec.sequences is varlen");
}

// Scales that are read may lie anywhere beside what is read, and a launch waits for nothing unless it must know a sequence.
TEST(QuantizeArgumentsTest, SizesOfALaunch) {
  QuantizeSpec spec{.head_dim = 64, .head_dim_v = 32, .value_scales = given};
  QuantizeParams params;
  QuantizeSizes sizes = fill_params(spec, some_arguments(), params);
  EXPECT_EQ(sizes.pieces, 4 * (2 + 1 + 1));  // units · (query heads of one, and a chunk each of k and v)
  EXPECT_EQ(sizes.counter_bytes, 0u);
  EXPECT_EQ(sizes.workspace_bytes, 0u);
  spec.value_scales = channel;
  QuantizeArguments arguments = some_arguments();
  arguments.v_descale = tensor_at(9, DType::fp32, {2, 2, 32});
  sizes = fill_params(spec, arguments, params);
  EXPECT_EQ(sizes.pieces, 4 * (2 + 1 + 2));
  EXPECT_EQ(sizes.counter_bytes, (1 + 3 * 4) * sizeof(unsigned));
  EXPECT_EQ(sizes.workspace_bytes, 4u * 32 * sizeof(float) + 4 * 2 * 32 * sizeof(float));
  arguments.k.shape[2] = arguments.v.shape[2] = arguments.k_out.shape[2] = arguments.v_out.shape[2] = 0;
  arguments.q.shape[2] = arguments.q_out.shape[2] = 0;
  arguments.q_descale = tensor_at(7, DType::fp32, {2, 5, 0});
  arguments.k_descale = tensor_at(8, DType::fp32, {2, 9, 0});
  arguments.v_descale = tensor_at(9, DType::fp32, {2, 0, 32});
  EXPECT_EQ(fill_params(spec, arguments, params).pieces, 0);
}

// Equal seeds draw equal signs, others others, and both halves of a seed count.
TEST(QuantizeArgumentsTest, SignsAreOfTheSeed) {
  const QuantizeSpec spec{.head_dim = 64, .head_dim_v = 32};
  std::set<std::vector<unsigned>> drawn;
  for (const std::uint64_t seed : {0ull, 1ull, 1ull << 32, 1ull}) {
    QuantizeArguments arguments = some_arguments();
    arguments.rotation_seed = seed;
    QuantizeParams params;
    fill_params(spec, arguments, params);
    drawn.insert({std::begin(params.signs), std::end(params.signs)});
  }
  EXPECT_EQ(drawn.size(), 3u);
}

}  // namespace
}  // namespace jit::testing
