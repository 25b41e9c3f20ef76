// Arguments made from sizes, and what they are good for without a GPU.
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <jit/tuning.h>

#include "tests/support/error_of.h"

namespace jit {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

const AttentionSpec spec{.head_dim = 64, .head_dim_v = 32, .gqa_ratio = 4};
const AttentionShape shape{.batch = 2, .heads_q = 8, .seqlen_q = 100, .seqlen_kv = 300};

TEST(SizedArguments, AreArgumentsOfACall) {
  const AttentionArguments arguments = sized_arguments(spec, shape);
  EXPECT_NO_THROW(check_arguments(spec, arguments));
  EXPECT_EQ(arguments.q.shape[1], 100);
  EXPECT_EQ(arguments.k.shape[2], 2);
  EXPECT_EQ(arguments.v.shape[3], 32);
  EXPECT_EQ(arguments.o.shape[3], 32);
}

TEST(SizedArguments, HaveWhatAQuantizerLeaves) {
  AttentionSpec quantized = spec;
  quantized.dtype = DType::fp8_e4m3;
  quantized.descale_per = ScaleKind::block;
  quantized.v_descale_per = ScaleKind::channel;
  quantized.v_mean = quantized.lse_shift = true;
  AttentionArguments arguments = sized_arguments(quantized, shape);
  EXPECT_NO_THROW(check_arguments(quantized, arguments));
  EXPECT_EQ(arguments.q_descale.shape[1], 2);  // blocks of 64 rows
  EXPECT_EQ(arguments.k_descale.shape[1], 5);
  EXPECT_EQ(arguments.v_mean.shape[2], 32);
  EXPECT_EQ(arguments.lse_shift.shape[1], 8);
  arguments.v_mean.strides[2] = 2;
  EXPECT_EQ(error_of([&] { check_arguments(quantized, arguments); }).field(), "v_mean");
  quantized.v_mean = false;
  EXPECT_THAT(error_of([&] { check_arguments(quantized, arguments); }).message(),
              HasSubstr("was given, but the spec has no v_mean = true"));
}

TEST(SizedArguments, TakeTheTensorsOfMaskAndScore) {
  AttentionSpec alibi = spec;
  alibi.score = score::alibi();
  EXPECT_EQ(error_of([&] { check_arguments(alibi, sized_arguments(alibi, shape)); }).field(), "alibi_slopes");
  float slopes[8] = {};
  const TensorView view = TensorView::dense(slopes, DType::fp32, {8});
  EXPECT_NO_THROW(check_arguments(alibi, sized_arguments(alibi, shape, {{"alibi_slopes", view}})));
}

TEST(SizedArguments, RefuseSizesThatCannotBe) {
  const auto refused = [](AttentionShape sizes) { return error_of([&] { sized_arguments(spec, sizes); }); };
  EXPECT_EQ(refused({.batch = 0, .heads_q = 8}).message(), "batch: is 0; it must be at least 1");
  EXPECT_EQ(refused({.heads_q = 6}).message(), "heads_q: is 6; it must be a multiple of spec.gqa_ratio = 4");
  EXPECT_EQ(refused({.heads_q = 8, .seqlen_q = -1}).field(), "seqlen_q");
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT(refused({.heads_q = 8, .seqlen_kv = most}).message(), HasSubstr("at most"));
  constexpr std::int64_t large = 1 << 30;
  EXPECT_EQ(refused({.batch = large, .heads_q = 8, .seqlen_kv = large}).field(), "seqlen_kv");
}

// Whatever a spec's sequences are, what is made up passes the checks of a call.
TEST(SizedArguments, OfBackwardPassTheChecks) {
  std::vector<AttentionSpec> specs(6, spec);
  specs[1].sequences_q = specs[2].sequences_kv = SequenceKind::varlen;
  specs[3].sequences_q = specs[3].sequences_kv = SequenceKind::varlen;
  specs[1].sinks = specs[3].sinks = true;
  specs[3].dropout = specs[4].dropout = true;
  specs[5].out_dtype = DType::fp32;
  for (const AttentionSpec& own : specs) {
    const BackwardArguments arguments = sized_backward_arguments(own, shape);
    EXPECT_NO_THROW(check_backward_arguments(own, arguments)) << to_string(own);
    EXPECT_EQ(arguments.dv.shape[arguments.dv.rank - 1], 32);
  }
  EXPECT_EQ(error_of([] { sized_backward_arguments(spec, {.heads_q = 6}); }).field(), "heads_q");
  EXPECT_EQ(error_of([] { sized_backward_arguments({.values_in_keys = true}, {}); }).field(),
            "spec.values_in_keys");
}

TEST(SizedArguments, CandidatesAreRankedForThem) {
  const DeviceInfo device{.name = "Ampere",
                          .arch = {8, 0},
                          .sm_count = 108,
                          .smem_per_block_optin = 163 * 1024,
                          .smem_per_sm = 164 * 1024,
                          .registers_per_sm = 65536};
  const auto ranked = [&](const AttentionShape& sizes) {
    return candidate_configs(spec, sized_arguments(spec, sizes), device);
  };
  for (const KernelConfig& config : ranked(shape)) EXPECT_EQ(config_rejection(spec, config, device), "");
  const AttentionShape decode{.batch = 1, .heads_q = 8, .seqlen_q = 1, .seqlen_kv = 4096};
  const AttentionShape prefill{.batch = 8, .heads_q = 32, .seqlen_q = 4096, .seqlen_kv = 4096};
  EXPECT_NE(ranked(decode)[0], ranked(prefill)[0]);
  const DeviceInfo old{.name = "Volta", .arch = {7, 0}};
  const Error error = error_of([&] { candidate_configs(spec, sized_arguments(spec, shape), old); });
  EXPECT_EQ(error.code(), ErrorCode::unsupported_device);
}

}  // namespace
}  // namespace jit
