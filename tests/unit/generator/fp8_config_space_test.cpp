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
  EXPECT_THAT(config_rejection(tokens, with, limits), HasSubstr("forward_split_kv reads"));
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
  EXPECT_THAT(config_rejection(cache, ForwardMmaSync{}, Arch{8, 9, 0}), HasSubstr("forward_split_kv reads"));
}

TEST(ConfigRejection, CachesOfFp8NeedWarpsThatWiden) {
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
  EXPECT_THAT(rejection(plain, {.converter_warps = 2}), HasSubstr("nothing is widened"));
  EXPECT_THAT(rejection(fp8, {.direct_o = true, .stages_stored = 1, .converter_warps = 2}),
              HasSubstr("stages_stored = 1 must be 0"));
  EXPECT_THAT(rejection(stored, {.converter_warps = 2}), HasSubstr("stages_stored must be 1 or more"));
  EXPECT_THAT(rejection(stored, {.stages_stored = 1}), HasSubstr("converter_warps must be 2 or 4"));
  EXPECT_THAT(rejection(stored, {.stages_stored = 1, .converter_warps = 3}), HasSubstr("converter_warps"));
  EXPECT_THAT(rejection(tokens, own), HasSubstr("forward_split_kv reads"));
  ForwardWgmma separate = spare;
  separate.separate_o = true;
  EXPECT_EQ(rejection(stored, separate), "");
}

TEST(ConfigRejection, ValuesOfFp8AreTurnedOverAndMayHaveOnesBesideThem) {
  const DeviceLimits limits = device_limits(Arch{9, 0, 'a'});
  AttentionSpec fp8{.dtype = DType::fp8_e4m3};
  const auto rejection = [&](const AttentionSpec& spec, const ForwardWgmma& config) {
    return config_rejection(spec, config, limits);
  };
  ForwardWgmma config{.tile_kv = 96, .direct_o = true};
  EXPECT_THAT(rejection(fp8, config), HasSubstr("converter_warps must be 2 or 4 with v of fp8_e4m3"));
  config.converter_warps = 2;
  EXPECT_EQ(rejection(fp8, config), "");
  config.converter_warps = 4;
  EXPECT_EQ(rejection(fp8, config), "");
  config.sums_by_products = true;
  EXPECT_EQ(rejection(fp8, config), "");
  AttentionSpec other = fp8;
  other.sinks = true;
  EXPECT_THAT(rejection(other, config), HasSubstr("sums_by_products must be false with sinks"));
  other = fp8;
  other.descale_per = ScaleKind::block;
  EXPECT_THAT(rejection(other, config), HasSubstr("with scales of blocks"));
  EXPECT_THAT(rejection({}, {.sums_by_products = true}), HasSubstr("unless v of fp8 is turned over"));
  ForwardWgmma narrow = config;
  narrow.tile_kv = 64;
  EXPECT_THAT(rejection(fp8, narrow), HasSubstr("less than 96 keys a tile"));
  ForwardWgmma in_sequence = config;
  in_sequence.overlap = false;
  EXPECT_THAT(rejection(fp8, in_sequence), HasSubstr("with overlap = false"));
}

// Half of them wherever some may be: all of the search grid agrees with what is refused.
TEST(ConfigRejection, ExponentialsAreInterpolatedWhereLimitsTellWhere) {
  const DeviceLimits limits = device_limits(Arch{9, 0, 'a'});
  const auto rejection = [&](const AttentionSpec& spec, const ForwardWgmma& config) {
    return config_rejection(spec, config, limits);
  };
  AttentionSpec fp8{.dtype = DType::fp8_e4m3};
  ForwardWgmma config{.tile_kv = 96, .direct_o = true, .converter_warps = 2};
  for (const DType dtype : {DType::fp8_e4m3, DType::fp8_e5m2}) {
    for (int count = 0; count <= 4; ++count) {
      fp8.dtype = dtype;
      config.interpolated_exp2 = count;
      EXPECT_EQ(rejection(fp8, config), "") << count;
    }
  }
  for (const int count : {-1, 5}) {
    config.interpolated_exp2 = count;
    EXPECT_THAT(rejection(fp8, config), HasSubstr("interpolated_exp2")) << count;
  }
  config.interpolated_exp2 = 1;
  const auto expect_refused = [&](const char* why, const auto& change) {
    AttentionSpec spec = fp8;
    ForwardWgmma other = config;
    change(spec, other);
    EXPECT_THAT(rejection(spec, other), HasSubstr(fmt::format("interpolated_exp2 must be 0 {}", why)));
    other.interpolated_exp2 = 0;
    EXPECT_EQ(rejection(spec, other), "");
    for (const ForwardWgmma& one : Family<ForwardWgmma>::space({spec, limits})) {
      const bool may = spec == fp8 && one.overlap && one.rescale == Rescale::lazy;
      EXPECT_EQ(one.interpolated_exp2, may ? 4 : 0) << to_string(KernelConfig(one));
    }
  };
  expect_refused("with products of 16 bits", [](AttentionSpec& spec, ForwardWgmma& other) {
    spec.dtype = DType::bf16;
    other.converter_warps = 0;
  });
  expect_refused("with exact_exponentials",
                 [](AttentionSpec& spec, ForwardWgmma&) { spec.exact_exponentials = true; });
  expect_refused("with scales of blocks",
                 [](AttentionSpec& spec, ForwardWgmma&) { spec.descale_per = ScaleKind::block; });
  expect_refused("with a score that is text", [](AttentionSpec& spec, ForwardWgmma&) {
    spec.score = score::alibi().then(score::text({.name = "same", .body = "return score;"}));
  });
  expect_refused("with overlap = false", [](AttentionSpec&, ForwardWgmma& other) { other.overlap = false; });
  expect_refused("unless rescale = lazy",
                 [](AttentionSpec&, ForwardWgmma& other) { other.rescale = Rescale::always; });
}

TEST(ConfigRejection, KeysThatAreWidenedAheadAreReadAsAny) {
  const DeviceLimits limits = device_limits(Arch{9, 0, 'a'});
  const auto rejection = [&](const AttentionSpec& spec, const ForwardWgmma& config) {
    return config_rejection(spec, config, limits);
  };
  const ForwardWgmma ahead{.widen_ahead = true};
  const AttentionSpec stored{.kv_dtype = DType::fp8_e4m3};
  EXPECT_EQ(rejection(stored, ahead), "");
  for (const AttentionSpec& other : {AttentionSpec{}, {.dtype = DType::fp8_e4m3}}) {
    const int converters = other == AttentionSpec{} ? 0 : 2;
    EXPECT_THAT(rejection(other, {.direct_o = true, .converter_warps = converters, .widen_ahead = true}),
                HasSubstr("widen_ahead = true false"));
  }
  EXPECT_THAT(rejection(stored, {.stages_stored = 1, .converter_warps = 2, .widen_ahead = true}),
              HasSubstr("must be 0 with widen_ahead = true"));
  AttentionSpec paged = stored;
  paged.sequences_q = SequenceKind::ragged;
  paged.sequences_kv = SequenceKind::paged;
  paged.page_size = 1;  // no box of TMA
  EXPECT_EQ(rejection(paged, ahead), "");
  EXPECT_THAT(rejection(paged, {.stages_stored = 1, .converter_warps = 2}), HasSubstr("page_size"));
  EXPECT_THAT(rejection(paged, {.requests = Requests::many_queries, .widen_ahead = true}),
              HasSubstr("requests must be all with widen_ahead"));
  paged.checked = true;
  EXPECT_THAT(rejection(paged, ahead), HasSubstr("widen_ahead must be false with checked and pages"));
  AttentionSpec tokens = stored;
  tokens.descale_per = ScaleKind::token;
  EXPECT_THAT(rejection(tokens, ahead), HasSubstr("forward_split_kv reads"));
  AttentionSpec spans = stored;
  spans.split_keys = 512;
  EXPECT_THAT(rejection(spans, ahead), HasSubstr("split_keys"));
}

// P of 8 bits alone loses what is small beside the first keys, and masks that leap over keys leap forward.
TEST(ConfigRejection, DescendingKeysAreOfFp8AndOfOneRange) {
  const DeviceLimits limits = device_limits(Arch{9, 0, 'a'});
  const ForwardWgmma config{.stages_v = 2, .direct_o = true, .descending = true, .converter_warps = 2};
  AttentionSpec spec{.dtype = DType::fp8_e4m3};
  for (const Mask& mask :
       {Mask(), mask::causal(), mask::sliding_window(40, 0), mask::causal() || mask::prefix(70)}) {
    spec.mask = mask;
    EXPECT_EQ(config_rejection(spec, config, limits), "") << mask.to_string();
    const std::vector<KernelConfig> space = config_space({spec, limits}, {});
    EXPECT_FALSE(space.empty());
    for (const KernelConfig& one : space) {
      const auto* const own = std::get_if<ForwardWgmma>(&one);
      EXPECT_TRUE(own == nullptr || own->descending);
    }
  }
  for (const Mask& mask : {mask::document(), mask::sliding_window(40, 0) || mask::prefix(70)}) {
    spec.mask = mask;
    EXPECT_THAT(config_rejection(spec, config, limits), HasSubstr("more than one range of keys"));
    for (const KernelConfig& one : config_space({spec, limits}, {})) {
      const auto* const own = std::get_if<ForwardWgmma>(&one);
      EXPECT_FALSE(own != nullptr && own->descending);
    }
  }
  for (const AttentionSpec& other : {AttentionSpec{}, AttentionSpec{.kv_dtype = DType::fp8_e4m3}}) {
    EXPECT_THAT(config_rejection(other, config, limits), HasSubstr("descending must be false with bf16"));
  }
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
                                 .sequences_q = SequenceKind::ragged,
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
