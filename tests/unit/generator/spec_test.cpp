#include <jit/spec.h>
#include <jit/spec_table.h>

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/kernels/search.h"
#include "generator/problem/kernel_spec.h"
#include "tests/support/error_of.h"
#include "tests/support/random_spec.h"
#include "tests/support/seed.h"

namespace jit {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr Arch sm_80{8, 0, 0}, sm_90a{9, 0, 'a'};

struct BadSpec {
  AttentionSpec spec;
  const char* field;
  const char* value;
  const char* rule;
  const char* nearest;
};

TEST(Supports, NamesFieldValueRuleAndNearest) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const std::vector<BadSpec> bad = {
      {{.dtype = DType::fp32}, "dtype", "fp32", "must be bf16 or fp16", "bf16"},
      {{.dtype = DType::uint8}, "dtype", "uint8", "must be bf16 or fp16", "bf16"},
      {{.head_dim = 100}, "head_dim", "100", "must be a multiple of 8 from 8 to 512", "104"},
      {{.head_dim = 0}, "head_dim", "0", "must be a multiple of 8 from 8 to 512", "8"},
      {{.head_dim = -64}, "head_dim", "-64", "must be a multiple of 8 from 8 to 512", "8"},
      {{.head_dim = 516}, "head_dim", "516", "must be a multiple of 8 from 8 to 512", "512"},
      {{.split_keys = 512, .q_positions = true, .key_arrivals = true},
       "key_arrivals",
       "true",
       "must be false unless sequences are dense, q, k and v have 16 bits, and split_keys is 0",
       "false"},
      {{.sequences_q = SequenceKind::varlen, .sequences_kv = SequenceKind::varlen, .key_arrivals = true},
       "key_arrivals",
       "true",
       "must be false unless sequences are dense",
       "false"},
      {{.head_dim = 260}, "head_dim", "260", "must be a multiple of 8 from 8 to 512", "264"},
      {{.head_dim = 2147483647}, "head_dim", "2147483647", "must be a multiple of 8 from 8 to 512", "512"},
      {{.head_dim_v = 65}, "head_dim_v", "65", "must be a multiple of 8 from 8 to 512", "72"},
      {{.head_dim_v = 520}, "head_dim_v", "520", "must be a multiple of 8 from 8 to 512", "512"},
      {{.head_dim_v = -8}, "head_dim_v", "-8", "must be a multiple of 8 from 8 to 512", "8"},
      {{.head_dim = 584, .head_dim_v = 512, .values_in_keys = true},
       "head_dim",
       "584",
       "from 8 to 576",
       "576"},
      {{.head_dim = 576, .values_in_keys = true}, "head_dim_v", "576", "from 8 to 512", "512"},
      {{.head_dim = 576, .head_dim_v = 200, .values_in_keys = true},
       "head_dim_v",
       "200",
       "must be a multiple of 128 where head_dim is above 512",
       "128"},
      {{.head_dim = 64, .head_dim_v = 72, .values_in_keys = true},
       "head_dim_v",
       "72",
       "must be at most head_dim = 64",
       "64"},
      {{.head_dim = 576, .head_dim_v = 512, .alignment = 8, .values_in_keys = true},
       "alignment",
       "8",
       "must be 16 bytes where head_dim is above 512",
       "16"},
      {{.dtype = DType::fp8_e4m3, .head_dim = 512, .head_dim_v = 64},
       "head_dim",
       "512",
       "must be a multiple of 8 from 8 to 256 with fp8 queries",
       "256"},
      {{.dtype = DType::fp8_e5m2, .head_dim_v = 264},
       "head_dim_v",
       "264",
       "must be a multiple of 8 from 8 to 256 with fp8 queries",
       "256"},
      {{.dropout = true, .values_in_keys = true},
       "values_in_keys",
       "true",
       "must be false with dropout",
       "false"},
      {{.kv_dtype = DType::fp8_e5m2, .values_in_keys = true},
       "values_in_keys",
       "true",
       "must be false where k is of fp8",
       "false"},
      {{.interpolated_exponentials = true},
       "interpolated_exponentials",
       "true",
       "is for q, k and v of fp8, whose probabilities are rounded to 8 bits",
       "false"},
      {{.kv_dtype = DType::fp8_e4m3, .interpolated_exponentials = true},
       "interpolated_exponentials",
       "true",
       "beside q of 16 bits all are computed: leave it out, or set dtype to fp8_e4m3",
       "false"},
      {{.kv_dtype = DType::int8, .max_logit = true},
       "max_logit",
       "true",
       "must be false with k and v of int8",
       "false"},
      {{.dtype = DType::fp8_e4m3, .row_max = true},
       "row_max",
       "true",
       "must be false with k and v of fp8",
       "false"},
      {{.gqa_ratio = 0}, "gqa_ratio", "0", "must be at least 1", "1"},
      {{.gqa_ratio = -3}, "gqa_ratio", "-3", "must be at least 1", "1"},
      {{.alignment = 1}, "alignment", "1", "must be 16, 8, 4 or 2 bytes", "2"},
      {{.alignment = 12}, "alignment", "12", "must be 16, 8, 4 or 2 bytes", "8"},
      {{.alignment = 32}, "alignment", "32", "must be 16, 8, 4 or 2 bytes", "16"},
      {{.alignment = 0}, "alignment", "0", "must be 16, 8, 4 or 2 bytes", "2"},
      {{.seqlen_q = -1}, "seqlen_q", "-1", "must be positive, or 0", "0"},
      {{.seqlen_kv = -1}, "seqlen_kv", "-1", "must be positive, or 0", "0"},
      {{.softmax_scale = 0.0f}, "softmax_scale", "0", "must be positive and at most 100000", "0.088"},
      {{.softmax_scale = -1.0f}, "softmax_scale", "-1", "must be positive and at most 100000", "0.088"},
      {{.head_dim = 64, .softmax_scale = nan},
       "softmax_scale",
       "nan",
       "must be positive and at most 100000",
       "0.125"},
      {{.head_dim = 64, .softmax_scale = infinity}, "softmax_scale", "inf", "must be positive", "0.125"},
      {{.head_dim = 64, .softmax_scale = 3e38f}, "softmax_scale", "3e+38", "scale q or k instead", "0.125"},
      {{.softmax_scale = std::nextafter(max_softmax_scale, infinity)},
       "softmax_scale",
       "100000.01",
       "at most",
       ""},
  };
  for (const BadSpec& expected : bad) {
    const std::vector<Refusal> refusals = refusals_of(expected.spec, sm_90a);
    ASSERT_THAT(refusals, SizeIs(1)) << expected.field << " = " << expected.value;
    EXPECT_EQ(refusals[0].field, expected.field);
    EXPECT_THAT(refusals[0].value, HasSubstr(expected.value));
    EXPECT_THAT(refusals[0].rule, HasSubstr(expected.rule));
    EXPECT_THAT(refusals[0].nearest, ::testing::StartsWith(expected.nearest));
    EXPECT_THAT(refusals[0].to_string(), HasSubstr(refusals[0].nearest));

    const Error error = testing::error_of([&] { validate(expected.spec); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_spec);
    EXPECT_EQ(error.field(), std::string("spec.") + expected.field);
    EXPECT_THAT(error.what(), HasSubstr(expected.rule));
  }
}

TEST(Supports, InterpolatedExponentialsWhereverFp8Is) {
  for (const DType dtype : {DType::fp8_e4m3, DType::fp8_e5m2}) {
    const AttentionSpec spec{.dtype = dtype, .interpolated_exponentials = true};
    for (const Arch& arch : known_archs()) EXPECT_THAT(refusals_of(spec, arch), IsEmpty()) << to_string(arch);
    EXPECT_THAT(to_string(spec), HasSubstr("d128 interpolated_exponentials=true"));
  }
  EXPECT_EQ(to_string(AttentionSpec{.dtype = DType::fp8_e4m3}), "fp8_e4m3 d128");
}

TEST(Supports, TheNearestValueWorks) {
  for (int head_dim = -20; head_dim <= 540; ++head_dim) {
    AttentionSpec spec{.head_dim = head_dim};
    const std::vector<Refusal> refusals = refusals_of(spec, sm_80);
    EXPECT_EQ(refusals.empty(), head_dim >= 8 && head_dim <= 512 && head_dim % 8 == 0) << head_dim;
    if (refusals.empty()) continue;
    spec.head_dim = std::stoi(refusals[0].nearest);
    EXPECT_THAT(refusals_of(spec, sm_80), IsEmpty()) << head_dim;
    EXPECT_LT(std::abs(spec.head_dim - std::clamp(head_dim, 8, 512)), 8);
  }
  for (int alignment = -2; alignment <= 40; ++alignment) {
    AttentionSpec spec{.alignment = alignment};
    if (const std::vector<Refusal> refusals = refusals_of(spec, sm_80); !refusals.empty())
      spec.alignment = std::stoi(refusals[0].nearest);
    EXPECT_THAT(refusals_of(spec, sm_80), IsEmpty()) << alignment;
  }
}

TEST(Supports, ReportsAllReasonsAtOnce) {
  const AttentionSpec spec{
      .dtype = DType::int32, .head_dim = 3, .head_dim_v = 5, .gqa_ratio = 0, .alignment = 3};
  EXPECT_THAT(refusals_of(spec, {7, 5, 0}), SizeIs(6));
}

// q of 8 bits: sequences and rows of any kind.
TEST(Supports, Fp8QueriesAreServedEverywhere) {
  AttentionSpec spec{.dtype = DType::fp8_e5m2,
                     .sequences_q = SequenceKind::varlen,
                     .sequences_kv = SequenceKind::paged,
                     .page_size = 16,
                     .sinks = true};
  spec.alignment = 2;
  for (const Arch& arch : known_archs()) {
    EXPECT_THAT(refusals_of(spec, arch), IsEmpty()) << to_string(arch);
    const DeviceLimits limits = device_limits(arch);
    EXPECT_THAT(ranked_configs(spec, typical_shape(limits, spec), limits), ::testing::Not(IsEmpty()));
  }
}

TEST(Supports, OldArchitecturesAreRefused) {
  for (const Arch arch : {Arch{7, 5, 0}, Arch{7, 0, 0}, Arch{6, 1, 0}}) {
    const std::vector<Refusal> refusals = refusals_of({}, arch);
    ASSERT_THAT(refusals, SizeIs(1));
    EXPECT_EQ(refusals[0].field, "arch");
    EXPECT_EQ(refusals[0].value, to_string(arch));
    EXPECT_EQ(refusals[0].nearest, "sm_80");
  }
  for (const Arch& arch : known_archs()) EXPECT_THAT(refusals_of({}, arch), IsEmpty()) << to_string(arch);
  EXPECT_THAT(refusals_of({}, DeviceInfo{.arch = {7, 5, 0}}), SizeIs(1));
  EXPECT_THAT(refusals_of({}, DeviceInfo{.arch = {9, 0, 0}}), IsEmpty());
}

FunctorText reading(const std::string& name, const std::vector<FunctorTensorSpec>& tensors) {
  return {.name = name, .body = "return true;", .tensors = tensors};
}

TEST(Supports, TensorsOfMaskAndScoreShareNames) {
  AttentionSpec spec;
  spec.mask = mask::text(reading("m", {{"shared", DType::fp32}, {"mine", DType::int32}}));
  spec.score = score::text(reading("s", {{"shared", DType::fp32}, {"yours", DType::int64}}));
  std::vector<std::string> names;
  for (const FunctorTensorSpec& tensor : functor_tensors(spec)) names.push_back(tensor.name);
  EXPECT_THAT(names, ::testing::ElementsAre("shared", "mine", "yours"));
  EXPECT_THAT(refusals_of(spec, sm_90a), IsEmpty());

  spec.score = score::text(reading("s", {{"shared", DType::int32}}));
  EXPECT_EQ(testing::error_of([&] { functor_tensors(spec); }).code(), ErrorCode::invalid_spec);
  ASSERT_THAT(refusals_of(spec, sm_90a), SizeIs(1));
  EXPECT_THAT(refusals_of(spec, sm_90a)[0].to_string(), HasSubstr("shared"));
  EXPECT_THROW(validate(spec), Error);
}

TEST(Supports, AtMostEightTensors) {
  std::vector<FunctorTensorSpec> tensors;
  for (int i = 0; i < 8; ++i) tensors.push_back({"t" + std::to_string(i), DType::fp32});
  AttentionSpec spec;
  spec.mask = mask::text(reading("m", tensors));
  EXPECT_THAT(refusals_of(spec, sm_90a), IsEmpty());
  spec.score = score::alibi();
  ASSERT_THAT(refusals_of(spec, sm_90a), SizeIs(1));
  EXPECT_EQ(refusals_of(spec, sm_90a)[0].nearest, "8");
}

TEST(AttentionSpec, RandomSpecsAreValid) {
  reference::Random random(reference::test_seed());
  for (int i = 0; i < 500; ++i) {
    const AttentionSpec spec = reference::random_spec(random);
    EXPECT_NO_THROW(validate(spec)) << to_string(spec);
  }
}

TEST(AttentionSpec, Defaults) {
  EXPECT_FLOAT_EQ(AttentionSpec{.head_dim = 64}.scale(), 0.125f);
  EXPECT_FLOAT_EQ((AttentionSpec{.head_dim = 64, .softmax_scale = 0.3f}.scale()), 0.3f);
  EXPECT_EQ((AttentionSpec{.head_dim = 64}.value_head_dim()), 64);
  EXPECT_EQ((AttentionSpec{.head_dim = 64, .head_dim_v = 32}.value_head_dim()), 32);
}

TEST(AttentionSpec, EveryFieldCountsInComparison) {
  const AttentionSpec base;
  const std::vector<AttentionSpec> others = {
      {.dtype = DType::fp16},    {.head_dim = 64},       {.head_dim_v = 64}, {.gqa_ratio = 2},
      {.alignment = 8},          {.seqlen_q = 128},      {.seqlen_kv = 128}, {.mask = mask::causal()},
      {.score = score::alibi()}, {.softmax_scale = 0.5f}};
  for (const AttentionSpec& other : others) EXPECT_NE(base, other) << to_string(other);
  EXPECT_EQ(base, AttentionSpec{});
}

// Kernels of gradients that read lengths of dense sequences are those of such a spec, and nobody else's.
TEST(AttentionSpec, PaddedSequencesFollowFromCalls) {
  const AttentionSpec dense{.head_dim = 64, .seqlen_kv = 128, .mask = mask::causal()};
  const AttentionSpec padded = with_lengths(dense);
  EXPECT_EQ(padded.sequences_kv, SequenceKind::padded);
  EXPECT_FALSE(is_plain(padded));
  EXPECT_EQ(padded.seqlen_kv, 0) << "baked lengths are those of whole tensors";
  EXPECT_THAT(to_string(padded), HasSubstr("padded"));
  EXPECT_EQ(as_given(padded), (AttentionSpec{.head_dim = 64, .mask = mask::causal()}));
  EXPECT_EQ(forward_spec(dense, true), dense) << "kernels whose keys are split serve it";
  const AttentionSpec dropout{.dropout = true};
  EXPECT_EQ(forward_spec(dropout, true), with_lengths(dropout));
  EXPECT_EQ(forward_spec(dropout, false), dropout);
  const AttentionSpec varlen{.sequences_q = SequenceKind::varlen};
  EXPECT_EQ(with_lengths(varlen), varlen);
  EXPECT_EQ(as_given(varlen), varlen);
  EXPECT_THAT(refusals_of(padded, sm_90a), SizeIs(1));
  EXPECT_EQ(testing::error_of([&] { validate(padded); }).message(),
            "spec.sequences_kv = padded must be dense, varlen or paged; nearest supported: dense");
  EXPECT_EQ(testing::error_of([] { parse_sequence_kind("padded"); }).code(), ErrorCode::invalid_argument);
}

TEST(AttentionSpec, PrintsOnOneLine) {
  EXPECT_EQ(to_string(AttentionSpec{}), "bf16 d128");
  AttentionSpec spec{.dtype = DType::fp16,
                     .head_dim = 192,
                     .head_dim_v = 128,
                     .gqa_ratio = 4,
                     .alignment = 8,
                     .seqlen_q = 7,
                     .seqlen_kv = 9};
  spec.mask = mask::causal();
  spec.score = score::softcap(30);
  EXPECT_EQ(to_string(spec),
            "fp16 d192/128 gqa4 align8 seqlen_q=7 seqlen_kv=9 mask=causal score=softcap(30)");
}

}  // namespace
}  // namespace jit
