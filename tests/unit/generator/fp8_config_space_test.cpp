// Configs and their rules where q, k and v, or k and v alone, are of fp8.
#include "generator/kernels/families.h"
#include "generator/kernels/search.h"
#include "generator/tuning/candidates.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace jit {
namespace {

using ::testing::HasSubstr;

TEST(ConfigRejection, CachesOfFp8NeedBuffersForWhatIsStored) {
  const DeviceLimits limits = device_limits(Arch{9, 0, 'a'});
  const AttentionSpec plain, stored{.kv_dtype = DType::fp8_e4m3};
  AttentionSpec tokens = stored;
  tokens.descale_per = ScaleKind::token;
  const ForwardSplitWgmma without, with{.stages_stored = 2};
  EXPECT_EQ(config_rejection(plain, without, limits), "");
  EXPECT_EQ(config_rejection(stored, with, limits), "");
  EXPECT_THAT(config_rejection(plain, with, limits), HasSubstr("stages_stored = 2 must be 0"));
  EXPECT_THAT(config_rejection(stored, without, limits), HasSubstr("stages_stored must be 1 or more"));
  EXPECT_EQ(config_rejection(tokens, with, limits), "");
  // 80 registers to begin with.
  AttentionSpec narrow = stored;
  narrow.head_dim = 32;
  ForwardSplitWgmma two{.tile_rows = 64, .tile_kv = 112, .blocks_per_sm = 2, .stages_stored = 2};
  EXPECT_THAT(config_rejection(narrow, two, limits), HasSubstr("a thread begins with 80"));
  two.tile_kv = 96;
  EXPECT_EQ(config_rejection(narrow, two, limits), "");
}

TEST(ConfigRejection, ForwardMmaSyncReadsFp8QueriesInStepsOf32Keys) {
  const AttentionSpec fp8{.dtype = DType::fp8_e4m3}, cache{.kv_dtype = DType::fp8_e4m3};
  for (const Arch& arch : known_archs()) {
    EXPECT_EQ(config_rejection(fp8, ForwardMmaSync{.tile_q = 64, .tile_kv = 96, .warps = 4}, arch), "");
    EXPECT_THAT(config_rejection(fp8, ForwardMmaSync{.tile_q = 64, .tile_kv = 48, .warps = 4}, arch),
                HasSubstr("tile_kv = 48 must be a multiple of 32 with fp8"));
  }
  EXPECT_THAT(config_rejection(cache, ForwardMmaSync{}, Arch{8, 9, 0}),
              HasSubstr("; forward_split_kv serves it"));
}

TEST(ConfigRejection, CachesOfFp8NeedWarpsThatUpcast) {
  const DeviceLimits limits = device_limits(Arch{9, 0, 'a'});
  const AttentionSpec plain, stored{.kv_dtype = DType::fp8_e4m3}, fp8{.dtype = DType::fp8_e4m3};
  AttentionSpec tokens = stored;
  tokens.descale_per = ScaleKind::token;
  const auto rejection = [&](const AttentionSpec& spec, const ForwardWgmma& config) {
    return config_rejection(spec, config, limits);
  };
  const ForwardWgmma own{.stages_stored = 1, .converter_warps = 4},
      spare{.stages_stored = 1, .converter_warps = 2};
  EXPECT_EQ(rejection(stored, own), "");
  EXPECT_EQ(rejection(stored, spare), "");
  EXPECT_THAT(rejection(plain, own), HasSubstr("stages_stored = 1 and converter_warps = 4 must be 0"));
  EXPECT_THAT(rejection(plain, {.converter_warps = 2}), HasSubstr("nothing is upcast"));
  EXPECT_THAT(rejection(fp8, {.output = OutputPlace::direct, .stages_stored = 1, .converter_warps = 2}),
              HasSubstr("stages_stored = 1 must be 0"));
  EXPECT_THAT(rejection(stored, {.converter_warps = 2}), HasSubstr("stages_stored must be 1 or more"));
  EXPECT_THAT(rejection(stored, {.stages_stored = 1}), HasSubstr("converter_warps must be 2 or 4"));
  EXPECT_THAT(rejection(stored, {.stages_stored = 1, .converter_warps = 3}), HasSubstr("converter_warps"));
  EXPECT_EQ(rejection(tokens, own), "");
  ForwardWgmma separate = spare;
  separate.output = OutputPlace::separate;
  EXPECT_EQ(rejection(stored, separate), "");
}

TEST(ConfigRejection, ValuesOfFp8AreTurnedOver) {
  const DeviceLimits limits = device_limits(Arch{9, 0, 'a'});
  AttentionSpec fp8{.dtype = DType::fp8_e4m3};
  ForwardWgmma config{.tile_kv = 96, .output = OutputPlace::direct};
  EXPECT_THAT(config_rejection(fp8, config, limits),
              HasSubstr("converter_warps must be 2 or 4 with v of fp8_e4m3"));
  for (const int warps : {2, 4}) {
    config.converter_warps = warps;
    EXPECT_EQ(config_rejection(fp8, config, limits), "");
  }
}

// Ones lie beside values that are transposed, where an instruction has columns for them.
TEST(ForwardWgmmaFacts, SumsByProducts) {
  using forward_wgmma::has_sums_by_products;
  const AttentionSpec fp8{.dtype = DType::fp8_e4m3};
  const ForwardWgmma config{.tile_kv = 96, .output = OutputPlace::direct, .converter_warps = 2};
  EXPECT_TRUE(has_sums_by_products(fp8, config));
  EXPECT_FALSE(
      has_sums_by_products(fp8, {.tile_kv = 64, .output = OutputPlace::direct, .converter_warps = 2}));
  const auto has_without = [&](const auto& change) {
    AttentionSpec spec = fp8;
    change(spec);
    return has_sums_by_products(spec, config);
  };
  EXPECT_TRUE(has_without([](AttentionSpec& spec) { spec.head_dim_v = 240; }));
  EXPECT_FALSE(has_without([](AttentionSpec& spec) { spec.head_dim_v = 256; }));
  EXPECT_FALSE(has_without([](AttentionSpec& spec) { spec.sinks = true; }));
  EXPECT_FALSE(has_without([](AttentionSpec& spec) { spec.descale_per = ScaleKind::block; }));
  EXPECT_FALSE(has_without([](AttentionSpec& spec) { spec.dtype = DType::bf16; }));
}

TEST(ForwardWgmmaFacts, ExponentialsAreInterpolatedWhereLimitsTellWhere) {
  const auto count = [](const auto& change) {
    AttentionSpec spec{.dtype = DType::fp8_e4m3, .interpolated_exponentials = true};
    change(spec);
    return forward_wgmma::interpolated_exponentials(spec);
  };
  EXPECT_EQ(count([](AttentionSpec&) {}), 4);
  EXPECT_EQ(count([](AttentionSpec& spec) { spec.dtype = DType::fp8_e5m2; }), 4);
  EXPECT_EQ(count([](AttentionSpec& spec) { spec.score = score::alibi(); }), 4);
  EXPECT_EQ(count([](AttentionSpec& spec) { spec.dtype = DType::bf16; }), 0);
  EXPECT_EQ(count([](AttentionSpec& spec) { spec.interpolated_exponentials = false; }), 0);
  EXPECT_EQ(count([](AttentionSpec& spec) { spec.descale_per = ScaleKind::block; }), 0);
  EXPECT_EQ(count([](AttentionSpec& spec) {
              spec.score = score::alibi().then(score::text({.name = "same", .body = "return score;"}));
            }),
            0);
}

TEST(ConfigRejection, KeysThatAreUpcastAheadAreReadAsAny) {
  const DeviceLimits limits = device_limits(Arch{9, 0, 'a'});
  const auto rejection = [&](const AttentionSpec& spec, const ForwardWgmma& config) {
    return config_rejection(spec, config, limits);
  };
  const ForwardWgmma ahead{.upcast_ahead = true};
  const AttentionSpec stored{.kv_dtype = DType::fp8_e4m3};
  EXPECT_EQ(rejection(stored, ahead), "");
  for (const AttentionSpec& other : {AttentionSpec{}, {.dtype = DType::fp8_e4m3}}) {
    const int converters = other == AttentionSpec{} ? 0 : 2;
    EXPECT_THAT(
        rejection(other,
                  {.output = OutputPlace::direct, .converter_warps = converters, .upcast_ahead = true}),
        HasSubstr("upcast_ahead = true false"));
  }
  EXPECT_THAT(rejection(stored, {.stages_stored = 1, .converter_warps = 2, .upcast_ahead = true}),
              HasSubstr("must be 0 with upcast_ahead = true"));
  AttentionSpec paged = stored;
  paged.sequences_q = SequenceKind::varlen;
  paged.sequences_kv = SequenceKind::paged;
  paged.page_size = 1;  // no box of TMA
  EXPECT_EQ(rejection(paged, ahead), "");
  EXPECT_THAT(rejection(paged, {.stages_stored = 1, .converter_warps = 2}), HasSubstr("page_size"));
  EXPECT_THAT(rejection(paged, {.requests = Requests::many_queries, .upcast_ahead = true}),
              HasSubstr("requests must be all with upcast_ahead"));
  paged.checked = true;
  EXPECT_THAT(rejection(paged, ahead), HasSubstr("upcast_ahead must be false with checked and pages"));
  AttentionSpec tokens = stored;
  tokens.descale_per = ScaleKind::token;
  EXPECT_EQ(rejection(tokens, ahead), "");  // scales are applied ahead
  for (const DType packed : {DType::int4, DType::nvfp4, DType::mxfp4}) {
    AttentionSpec four{.kv_dtype = packed};
    if (packed == DType::int4) four.descale_per = ScaleKind::token;
    EXPECT_EQ(rejection(four, ahead), "");
    const ForwardWgmma converted{.stages_stored = 1, .converter_warps = 2};
    const ForwardSplitWgmma split{.stages_stored = 2};
    EXPECT_EQ(rejection(four, converted), "");
    EXPECT_EQ(config_rejection(four, split, limits), "");
    four.head_dim_v = packed == DType::mxfp4 ? 64 : 48;  // no whole words of scales, or chunks of numbers
    const int step = packed == DType::mxfp4 ? 128 : packed == DType::nvfp4 ? 64 : 32;
    const auto expected = HasSubstr(
        fmt::format("converts {} with head dims of multiples of {}; they are 128", to_string(packed), step));
    EXPECT_THAT(rejection(four, converted), expected);
    EXPECT_THAT(rejection(four, converted), HasSubstr("upcast_ahead must be true"));
    EXPECT_THAT(config_rejection(four, split, limits), expected);
    EXPECT_EQ(rejection(four, ahead), "");
  }
  AttentionSpec spans = stored;
  spans.split_keys = 512;
  EXPECT_THAT(rejection(spans, ahead), HasSubstr("split_keys"));
}

// P of 8 bits alone loses what is small beside the first keys, and masks that leap over keys leap forward.
TEST(ForwardWgmmaFacts, DescendingKeysAreOfFp8AndOfOneRange) {
  using forward_wgmma::goes_down;
  AttentionSpec spec{.dtype = DType::fp8_e4m3};
  for (const Mask& mask :
       {Mask(), mask::causal(), mask::sliding_window(40, 0), mask::causal() || mask::prefix(70)}) {
    spec.mask = mask;
    EXPECT_TRUE(goes_down(spec)) << mask.to_string();
  }
  for (const Mask& mask : {mask::document(), mask::sliding_window(40, 0) || mask::prefix(70)}) {
    spec.mask = mask;
    EXPECT_FALSE(goes_down(spec)) << mask.to_string();
  }
  EXPECT_FALSE(goes_down({}));
  EXPECT_FALSE(goes_down({.kv_dtype = DType::fp8_e4m3}));
}

// Many queries are forward_wgmma's, few those of the families that split keys.
TEST(RankedConfigs, CachesOfFp8AreRankedByQueries) {
  DeviceLimits limits = device_limits(Arch{9, 0, 'a'});
  limits.sm_count = 132;
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    for (const int head_dim : {64, 128, 256}) {
      for (const Mask& mask : {Mask(), mask::causal()}) {
        const AttentionSpec spec{.dtype = dtype,
                                 .head_dim = head_dim,
                                 .gqa_ratio = 4,
                                 .sequences_q = SequenceKind::varlen,
                                 .sequences_kv = SequenceKind::paged,
                                 .page_size = 16,
                                 .kv_dtype = DType::fp8_e4m3,
                                 .mask = mask};
        const auto first = [&](std::int64_t batch, std::int64_t queries) {
          const ProblemShape shape{.batch = batch,
                                   .heads_q = 32,
                                   .seqlen_q = queries,
                                   .seqlen_kv = 8192,
                                   .has_device_lengths = true,
                                   .is_plain = false};
          return std::string(family_name(ranked_configs(spec, shape, limits).front()));
        };
        EXPECT_EQ(first(4, 2048), "forward_wgmma") << to_string(spec);
        EXPECT_THAT(first(64, 1), ::testing::StartsWith("forward_split_")) << to_string(spec);
        EXPECT_THAT(first(16, 8), ::testing::StartsWith("forward_split_")) << to_string(spec);
      }
    }
  }
}

}  // namespace
}  // namespace jit
