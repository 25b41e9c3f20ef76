#include "generator/kernels/families.h"
#include "generator/kernels/search.h"
#include "generator/tuning/candidates.h"

#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <jit/compiled_kernel.h>

#include "tests/support/random_spec.h"
#include "tests/support/seed.h"

namespace jit {
namespace {

using ::testing::HasSubstr;

TEST(ConfigSpace, EveryConfigIsLegalAndOccursOnce) {
  reference::Random random(reference::test_seed());
  for (const Arch& arch : known_archs()) {
    const DeviceLimits limits = device_limits(arch);
    for (int i = 0; i < 8; ++i) {
      const AttentionSpec spec = reference::random_spec(random);
      const std::vector<KernelConfig> configs = config_space({spec, limits});
      std::vector<std::string> names;
      for (const KernelConfig& config : configs) {
        ASSERT_EQ(config_rejection(spec, config, limits), "") << to_string(spec) << " " << to_string(config);
        const int smem_bytes = footprint(spec, config).smem_bytes;
        const int blocks = std::visit(
            [](const auto& own) {
              if constexpr (requires { own.blocks_per_sm; }) return own.blocks_per_sm;
              return 1;
            },
            config);
        ASSERT_LE(smem_bytes, smem_per_block_optin(arch));
        ASSERT_LE(blocks * (smem_bytes + 1024), smem_per_sm(arch));
        ASSERT_GE(smem_bytes, 0);
        names.push_back(to_string(config));
      }
      std::sort(names.begin(), names.end());
      EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
    }
  }
}

// However many functors wide heads have: what these add is spilled where registers run out.
TEST(ConfigSpace, ManyFunctorsOverPagesHaveAKernel) {
  AttentionSpec spec{.head_dim = 256,
                     .gqa_ratio = 4,
                     .sequences_kv = SequenceKind::paged,
                     .page_size = 3,
                     .kv_dtype = DType::fp8_e4m3,
                     .mask = mask::causal() && mask::sliding_window(7, 0) && mask::prefix_lengths(),
                     .score = score::softcap(4)};
  for (int more = 0; more < 6; ++more) {
    spec.score = spec.score.then(score::alibi());
    for (const Arch& arch : known_archs())
      EXPECT_FALSE(config_space({spec, device_limits(arch)}).empty()) << to_string(spec) << to_string(arch);
  }
}

// Head dims above 512 are one family's, which copies by TMA what can be copied so, and all else row by row.
TEST(ConfigSpace, LatentsAreCopiedByWhoCanReadThem) {
  const auto copies_of = [](int page_size, bool tma) {
    const AttentionSpec spec{.head_dim = 576,
                             .head_dim_v = 512,
                             .gqa_ratio = 16,
                             .sequences_kv = SequenceKind::paged,
                             .page_size = page_size,
                             .values_in_keys = true};
    std::set<Copies> copies;
    for (const KernelConfig& config : config_space({spec, device_limits(Arch{9, 0, 'a'})}, {.tma = tma})) {
      EXPECT_TRUE(std::holds_alternative<ForwardMlaWgmma>(config)) << to_string(config);
      if (const auto* own = std::get_if<ForwardMlaWgmma>(&config)) copies.insert(own->copies);
    }
    EXPECT_TRUE(config_space({spec, device_limits(Arch{8, 0, 0})}).empty());
    return copies;
  };
  using Set = std::set<Copies>;
  EXPECT_EQ(copies_of(64, true), (Set{Copies::tma, Copies::cp_async}));
  EXPECT_EQ(copies_of(64, false), (Set{Copies::cp_async}));
  EXPECT_EQ(copies_of(1, true), (Set{Copies::cp_async}));
}

struct BadConfig {
  const char* change;
  const char* message;
  AttentionSpec spec = {};
};

TEST(ConfigRejection, NamesFieldValueAndRule) {
  const std::vector<BadConfig> bad = {
      {"warps=0", "warps = 0 must be 1 to 16"},
      {"warps=17", "warps = 17 must be 1 to 16"},
      {"warps=-4", "warps = -4 must be 1 to 16"},
      {"tile_q=0", "tile_q = 0 must be a multiple of 16 from 16 to 256"},
      {"tile_q=96", "tile_q = 96 must be a multiple of 16 · warps = 64"},
      {"tile_q=512", "tile_q = 512 must be a multiple"},
      {"tile_q=-64", "tile_q = -64 must be a multiple"},
      {"tile_kv=0", "tile_kv = 0 must be a multiple of 16 from 16 to 256"},
      {"tile_kv=40", "tile_kv = 40 must be a multiple of 16 from 16 to 256"},
      {"tile_kv=272", "tile_kv = 272 must be a multiple of 16 from 16 to 256"},
      {"stages_k=0", "stages_k = 0 must be 1 to 4"},
      {"stages_k=5", "stages_k = 5 must be 1 to 4"},
      {"stages_v=0", "stages_v = 0 must be 1 to 4"},
      {"stages_v=-1", "stages_v = -1 must be 1 to 4"},
      {"blocks_per_sm=0", "blocks_per_sm = 0 must be 1 to 8"},
      {"blocks_per_sm=9", "blocks_per_sm = 9 must be 1 to 8"},
      {"tile_kv=128 stages_k=4 stages_v=4", "exceeds the 232448 that a block may have on sm_90a"},
      {"blocks_per_sm=4", "exceed the 233472 bytes of shared memory of a multiprocessor"},
      {"tile_kv=256 stages_k=1", "registers per thread are needed, but at most"},
      {"tile_q=256 warps=4 tile_kv=64", "registers per thread are needed", {.head_dim = 256}},
      {"family=forward_wgmma tile_q=96", "tile_q = 96 must be a multiple of 64 from 64 to 192"},
      {"family=forward_wgmma tile_q=256", "tile_q = 256 must be a multiple of 64"},
      {"family=forward_wgmma tile_kv=24", "tile_kv = 24 must be a multiple of 16 from 16 to 256"},
      {"family=forward_wgmma stages_q=3", "stages_q = 3 must be 1 to 2"},
      {"family=forward_wgmma stages_k=5", "stages_k = 5 must be"},
      {"family=forward_wgmma stages_v=0", "stages_v = 0 must be"},
      {"family=forward_wgmma rescale=always", "rescale = always must be lazy, on_overflow"},
      {"rescale=on_overflow", "rescale = on_overflow is not known to forward_mma_sync"},
      {"family=forward_wgmma tile_q=64 order=ping_pong", "order must be free with tile_q = 64"},
      {"family=forward_wgmma", "rows aligned to 16 bytes; spec.alignment is 8", {.alignment = 8}},
      {"family=forward_wgmma",
       "output must be separate or direct with head_dim 64 and head_dim_v 32",
       {.head_dim = 64, .head_dim_v = 32}},
      {"family=forward_wgmma tile_kv=256 stages_k=4", "shared memory of"},
      {"family=forward_wgmma tile_q=192 tile_kv=128", "registers per thread are needed", {.head_dim = 128}},
      {"family=forward_wgmma tile_q=192 tile_kv=16",
       "accumulators of one wgmma do not fit",
       {.head_dim = 208}},
  };
  for (const BadConfig& expected : bad) {
    const KernelConfig config = parse_config(expected.change);
    EXPECT_THAT(config_rejection(expected.spec, config, device_limits(Arch{9, 0, 'a'})),
                HasSubstr(expected.message))
        << expected.change;
    EXPECT_THAT(config_rejection(expected.spec, config, Arch{9, 0, 'a'}), HasSubstr(expected.message));
  }
  EXPECT_EQ(config_rejection({}, KernelConfig{}, Arch{9, 0, 'a'}), "");
}

// Where scores may grow from tile to tile, or rows see nothing of the first one, most tiles would be computed
// twice.
TEST(ConfigSpace, MaximaAreLeftOutWhereScoresAreSteady) {
  const auto expect_all = [](const AttentionSpec& spec, Rescale rescale) {
    int seen = 0;
    const DeviceLimits limits = device_limits(Arch{9, 0, 'a'});
    for (const ForwardWgmma& config : legal_space<ForwardWgmma>({spec, limits})) {
      EXPECT_EQ(config.rescale, rescale) << to_string(spec) << ": " << to_string(config);
      ++seen;
    }
    EXPECT_GT(seen, 0);
  };
  for (const Mask& mask : {Mask(), mask::causal(), mask::causal() && mask::sliding_window(100),
                           mask::causal() || mask::prefix(64)}) {
    for (const Score& score : {Score(), score::softcap(20)})
      expect_all({.head_dim = 64, .mask = mask, .score = score}, Rescale::on_overflow);
    expect_all({.head_dim = 64, .mask = mask, .score = score::alibi()}, Rescale::lazy);
  }
  expect_all({.head_dim = 64, .mask = mask::document(), .score = score::alibi()}, Rescale::lazy);
}

TEST(ConfigSpace, BothRescalesAreMeasuredWhereRowsMaySeeNothingOfTheFirstTile) {
  const DeviceLimits limits = device_limits(Arch{9, 0, 'a'});
  // Parts of masks cost little twice, and trees were timed.
  const std::pair<Mask, Rescale> cases[] = {
      {mask::tree(), Rescale::on_overflow},
      {mask::causal() || mask::sliding_window(64), Rescale::on_overflow}};
  for (const auto& [mask, preferred] : cases) {
    const AttentionSpec spec{.head_dim = 128, .mask = mask};
    const ProblemShape shape{.batch = 4, .heads_q = 16, .seqlen_q = 8192, .seqlen_kv = 8192};
    const std::vector<Candidate> candidates = first_run_candidates(spec, shape, limits);
    EXPECT_EQ(std::get<ForwardWgmma>(candidates.front().configs.front()).rescale, preferred);
    for (const Rescale rescale : {Rescale::lazy, Rescale::on_overflow}) {
      EXPECT_TRUE(std::any_of(candidates.begin(), candidates.end(), [&](const Candidate& candidate) {
        const auto* const config = std::get_if<ForwardWgmma>(&candidate.configs.front());
        return config != nullptr && config->rescale == rescale;
      })) << to_string(spec);
    }
  }
}

// Any config has the same predicted cost for both. A text may have more candidates than a mask whose predictions were timed.
TEST(ConfigSpace, TextsAreSearchedAsBuiltInMasksOfTheirMeaning) {
  const std::vector<std::pair<Mask, std::string>> masks = {
      {mask::causal(), "return k <= q + seqlen_kv - seqlen_q;"},
      {mask::sliding_window(1023, 0),
       "const int d = q + seqlen_kv - seqlen_q - k;\nreturn d >= 0 && d < 1024;"},
      {mask::causal() || mask::prefix(64), "return k <= q + seqlen_kv - seqlen_q || k < 64;"}};
  const ProblemShape shape{.batch = 4, .heads_q = 16, .seqlen_q = 8192, .seqlen_kv = 8192};
  for (const auto& [mask, body] : masks) {
    for (const Arch& arch : {Arch{9, 0, 'a'}, Arch{8, 0, 0}}) {
      for (const int head_dim : {64, 128, 256}) {
        const auto configs = [&](const Mask& of) {
          std::string all;
          for (const Candidate& candidate :
               first_run_candidates({.head_dim = head_dim, .mask = of}, shape, device_limits(arch)))
            all += to_string(candidate.configs.front()) + "\n";
          return all;
        };
        EXPECT_THAT(configs(mask::text({.name = "mine", .body = body})), ::testing::StartsWith(configs(mask)))
            << body;
      }
    }
  }
}

TEST(ConfigRejection, ForwardMlaWgmmaNamesWhatItNeeds) {
  const AttentionSpec latents{.head_dim = 192, .head_dim_v = 128, .values_in_keys = true};
  const auto rejection = [&](AttentionSpec spec, const ForwardMlaWgmma& config,
                             const Arch& arch = {9, 0, 'a'}) {
    return config_rejection(spec, config, device_limits(arch));
  };
  EXPECT_EQ(rejection(latents, {}), "");
  EXPECT_THAT(rejection({}, {}), HasSubstr("spec.values_in_keys is false"));
  EXPECT_THAT(rejection(latents, {}, {8, 0, 0}), HasSubstr("forward_mla_wgmma needs sm_90a"));
  AttentionSpec other = latents;
  other.head_dim_v = 120;
  EXPECT_THAT(rejection(other, {}), HasSubstr("head_dim_v = 120 must be a multiple of 128"));
  other = latents;
  other.sequences_kv = SequenceKind::paged;
  other.page_size = 4;
  EXPECT_THAT(rejection(other, {}), HasSubstr("copies = cp_async takes any"));
  EXPECT_EQ(rejection(other, {.copies = Copies::cp_async}), "");
  EXPECT_THAT(rejection(other, {.copies = Copies::cp_async, .pair = true}),
              HasSubstr("pair must be false with gqa_ratio 1, kv_dtype bf16"));
  other = {.head_dim = 576,
           .head_dim_v = 512,
           .gqa_ratio = 128,
           .sequences_q = SequenceKind::varlen,
           .sequences_kv = SequenceKind::varlen,
           .values_in_keys = true,
           .list_block = 1};
  EXPECT_THAT(rejection(other, {.copies = Copies::cp_async, .pair = true}), HasSubstr("over 8-bit latents"));
  other.kv_dtype = DType::latent_656;
  EXPECT_EQ(rejection(other, {.copies = Copies::cp_async, .pair = true}), "");
  EXPECT_THAT(rejection(other, {.pair = true}), HasSubstr("copies = tma"));
  other = {.head_dim = 576, .head_dim_v = 512, .values_in_keys = true};
  EXPECT_THAT(rejection(other, {.stages = 3}), HasSubstr("shared memory"));
  EXPECT_THAT(config_rejection(other, ForwardSplitWgmma{}, device_limits(Arch{9, 0, 'a'})),
              HasSubstr("has room for a head_dim of up to 256"));
}

TEST(ConfigRejection, WideGradientsNameWhatTheyNeed) {
  const AttentionSpec wide{.head_dim = 320, .head_dim_v = 64};
  for (const KernelConfig& config : {KernelConfig(BackwardDqWideWgmma{.panels = 4, .parts = 2}),
                                     KernelConfig(BackwardDkvWideWgmma{.panels = 4, .parts = 2})}) {
    const auto rejection = [&](const AttentionSpec& spec, const Arch& arch = {9, 0, 'a'}) {
      return config_rejection(spec, config, device_limits(arch));
    };
    EXPECT_EQ(rejection(wide), "");
    EXPECT_THAT(rejection({.head_dim = 256}), HasSubstr("is for head dims above 256; head_dim is 256"));
    EXPECT_THAT(rejection(wide, {8, 0, 0}), HasSubstr("needs sm_90a"));
    AttentionSpec other = wide;
    other.alignment = 8;
    EXPECT_THAT(rejection(other), HasSubstr("spec.alignment is 8"));
    other = wide;
    other.sinks = true;
    EXPECT_THAT(rejection(other), HasSubstr("sinks = true"));
  }
  EXPECT_THAT(
      config_rejection(wide, BackwardDqWideWgmma{.panels = 16, .parts = 16}, device_limits(Arch{9, 0, 'a'})),
      HasSubstr("shared memory"));
}

TEST(ConfigSpace, WideGradientsAreTheirFamiliesWhereTmaReads) {
  const DeviceLimits hopper = device_limits(Arch{9, 0, 'a'});
  for (const int head_dim : {264, 320, 384, 512}) {
    const AttentionSpec spec{.head_dim = head_dim, .gqa_ratio = 8, .mask = mask::causal()};
    for (const Pass pass : {Pass::backward_dq, Pass::backward_dkv}) {
      const ProblemShape shape{.pass = pass, .heads_q = 32, .seqlen_q = 4096, .seqlen_kv = 4096};
      const std::vector<KernelConfig> configs = config_space({spec, hopper}, shape);
      ASSERT_FALSE(configs.empty());
      const KernelConfig best = *std::ranges::min_element(configs, {}, [&](const KernelConfig& config) {
        return estimated_cycles({spec, hopper}, shape, config);
      });
      EXPECT_THAT(std::string(family_name(best)), HasSubstr("wide")) << to_string(best);
    }
  }
}

TEST(ConfigRejection, FamiliesSayWhichHeadDimsTheyServe) {
  using ::testing::HasSubstr;
  const DeviceLimits hopper = device_limits(Arch{9, 0, 'a'});
  EXPECT_THAT(config_rejection({.head_dim = 320}, BackwardWgmma{}, hopper),
              HasSubstr("backward_wgmma has room for a head_dim of up to 256; spec.head_dim is 320"));
  EXPECT_THAT(
      config_rejection({.head_dim_v = 264}, ForwardSplitCluster{}, hopper),
      HasSubstr("forward_split_cluster has room for a head_dim_v of up to 256; spec.head_dim_v is 264"));
  EXPECT_THAT(config_rejection({.head_dim = 512, .kv_dtype = DType::fp8_e4m3},
                               ForwardSplitKv{.copies = Copies::tma}, hopper),
              HasSubstr("copies = tma brings rows of up to 256 columns; head_dim is 512"));
  // On GPUs with least shared memory, too, and with as many keys as dropout wants.
  for (const int head_dim : {264, 320, 384, 448, 512}) {
    for (const bool dropout : {false, true}) {
      const DeviceLimits least = device_limits(Arch{8, 9, 0});
      const AttentionSpec spec{.head_dim = head_dim, .head_dim_v = 512, .dropout = dropout};
      for (const Pass pass : {Pass::forward, Pass::backward_dq, Pass::backward_dkv}) {
        ProblemShape shape;
        shape.pass = pass;
        EXPECT_FALSE(config_space({spec, least}, shape).empty()) << to_string(spec);
      }
    }
  }
}

TEST(ConfigRejection, BoxesWantWhatTmaReads) {
  using ::testing::HasSubstr;
  const DeviceLimits hopper = device_limits(Arch{9, 0, 'a'});
  const ForwardSplitKv boxes{.copies = Copies::tma};
  const auto paged = [](int page_size) {
    return AttentionSpec{
        .sequences_kv = SequenceKind::paged, .page_size = page_size, .kv_dtype = DType::fp8_e4m3};
  };
  EXPECT_EQ(config_rejection({}, boxes, hopper), "");
  EXPECT_EQ(config_rejection(paged(16), boxes, hopper), "");
  EXPECT_THAT(config_rejection(paged(4), boxes, hopper), HasSubstr("common divisor of 8 or more"));
  EXPECT_EQ(config_rejection(paged(4), ForwardSplitKv{}, hopper), "");
  AttentionSpec spec = paged(16);
  spec.descale_per = ScaleKind::token;
  EXPECT_EQ(config_rejection(spec, boxes, hopper), "");
  spec.dtype = DType::fp8_e4m3;
  spec.kv_dtype.reset();
  EXPECT_THAT(config_rejection(spec, boxes, hopper), HasSubstr("brings no scales of tokens"));
  const AttentionSpec narrow{.head_dim = 32, .kv_dtype = DType::mxfp4};
  EXPECT_THAT(config_rejection(narrow, boxes, hopper), HasSubstr("multiples of 128 columns"));
  EXPECT_THAT(config_rejection({.alignment = 8}, boxes, hopper), HasSubstr("spec.alignment is 8"));
  EXPECT_THAT(config_rejection({}, boxes, device_limits(Arch{8, 0, 0})),
              HasSubstr("copies = tma needs sm_90a"));
  // Where TMA cannot map the tensors of a call, none is searched.
  for (const bool tma : {false, true}) {
    bool has_boxes = false;
    for (const KernelConfig& config :
         config_space({paged(16), hopper}, {.tma = tma, .has_device_lengths = true})) {
      const auto* own = std::get_if<ForwardSplitKv>(&config);
      has_boxes |= own != nullptr && own->copies == Copies::tma;
    }
    EXPECT_EQ(has_boxes, tma);
  }
}

TEST(ConfigRejection, ForwardSplitClusterNamesWhatItNeeds) {
  using ::testing::HasSubstr;
  const DeviceLimits hopper = device_limits(Arch{9, 0, 'a'});
  EXPECT_EQ(config_rejection({}, ForwardSplitCluster{}, hopper), "");
  EXPECT_EQ(config_rejection({.alignment = 2}, ForwardSplitCluster{.cluster = 16}, hopper), "");
  EXPECT_THAT(config_rejection({}, ForwardSplitCluster{}, device_limits(Arch{8, 0})),
              HasSubstr("needs sm_90a"));
  EXPECT_THAT(config_rejection({}, ForwardSplitCluster{.cluster = 6}, hopper),
              HasSubstr("cluster = 6 must be a power of two"));
  EXPECT_THAT(config_rejection({.split_keys = 512}, ForwardSplitCluster{}, hopper),
              HasSubstr("spec.split_keys is 512"));
  AttentionSpec tokens{.kv_dtype = DType::fp8_e4m3};
  EXPECT_EQ(config_rejection(tokens, ForwardSplitCluster{}, hopper), "");
  tokens.descale_per = ScaleKind::token;
  EXPECT_THAT(config_rejection(tokens, ForwardSplitCluster{}, hopper), HasSubstr("scales of heads"));
  // A part of a GPU may have no room for the largest clusters.
  for (const int multiprocessors : {132, 16}) {
    DeviceLimits limits = hopper;
    limits.sm_count = multiprocessors;
    int largest = 0;
    for (const KernelConfig& config : config_space({AttentionSpec{}, limits}, {})) {
      if (const auto* own = std::get_if<ForwardSplitCluster>(&config))
        largest = std::max(largest, own->cluster);
    }
    EXPECT_EQ(largest, multiprocessors == 132 ? 16 : 8);
  }
}

TEST(ConfigRejection, DropoutMayBeDrawnAheadWhereTheHostKnowsHowManyScoresThereAre) {
  using ::testing::HasSubstr;
  const DeviceLimits limits = device_limits(Arch{9, 0, 'a'});
  const AttentionSpec dropout{.head_dim = 64, .dropout = true};
  AttentionSpec padded = dropout, varlen_q = dropout, varlen_kv = dropout;
  padded.sequences_kv = SequenceKind::padded;
  varlen_q.sequences_q = SequenceKind::varlen;
  varlen_kv.sequences_kv = SequenceKind::varlen;
  for (const KernelConfig& ahead : {KernelConfig(ForwardWgmma{.dropout_mask_ahead = true}),
                                    KernelConfig(BackwardWgmma{.dropout_mask_ahead = true})}) {
    EXPECT_EQ(config_rejection(dropout, ahead, limits), "");
    EXPECT_EQ(config_rejection(padded, ahead, limits), "");
    EXPECT_THAT(config_rejection({.head_dim = 64}, ahead, limits),
                HasSubstr("dropout_mask_ahead must be false"));
    EXPECT_THAT(config_rejection(varlen_q, ahead, limits), HasSubstr("dropout_mask_ahead must be false"));
    EXPECT_THAT(config_rejection(varlen_kv, ahead, limits), HasSubstr("dropout_mask_ahead must be false"));
  }
  EXPECT_THAT(config_rejection(dropout, ForwardWgmma{.tile_kv = 48, .dropout_mask_ahead = true}, limits),
              HasSubstr("tile_kv = 48 must be a multiple of 32"));
  // Bits take fewer registers than numbers do.
  const ForwardWgmma large{.tile_q = 128, .tile_kv = 192, .dropout_mask_ahead = true};
  EXPECT_LT(footprint(dropout, large).registers,
            footprint(dropout, ForwardWgmma{.tile_q = 128, .tile_kv = 192}).registers);
}

// Whoever searches finds both forms, and where nothing is dropped one.
TEST(ConfigSpace, HasWhatIsDrawnAheadOfDropoutAlone) {
  const DeviceLimits limits = device_limits(Arch{9, 0, 'a'});
  for (const bool drops : {false, true}) {
    const auto expect_halves = [&](const auto& configs) {
      const auto drawn = std::count_if(configs.begin(), configs.end(),
                                       [](const auto& config) { return config.dropout_mask_ahead; });
      EXPECT_EQ(2 * drawn, drops ? static_cast<std::ptrdiff_t>(configs.size()) : 0);
      EXPECT_FALSE(configs.empty());
    };
    expect_halves(Family<ForwardWgmma>::space({{.dropout = drops}, limits}));
    expect_halves(Family<BackwardWgmma>::space({{.dropout = drops}, limits}));
  }
}

TEST(ConfigRejection, ForwardWgmmaIsForOneArchitecture) {
  const KernelConfig config = parse_config("family=forward_wgmma tile_kv=128 stages_v=2");
  EXPECT_EQ(config_rejection({}, config, Arch{9, 0, 'a'}), "");
  for (const Arch& arch : known_archs()) {
    if (arch == Arch{9, 0, 'a'}) continue;
    EXPECT_THAT(config_rejection({}, config, arch), HasSubstr("forward_wgmma needs sm_90a, this is"));
  }
}

// Numbers that no computation on the way may overflow with.
TEST(ConfigRejection, SurvivesAnyNumber) {
  reference::Random random(reference::test_seed());
  const DeviceLimits limits = device_limits(Arch{9, 0, 'a'});
  for_each_family([&]<class Config>(const Config&) {
    for (int i = 0; i < 8000; ++i) {
      Config config;
      for (const ConfigField<Config>& field : Family<Config>::fields()) {
        if (reference::draw(random, 0, 2) == 0)
          field.set(config,
                    static_cast<int>(static_cast<std::uint32_t>(random())) >> reference::draw(random, 0, 31));
      }
      const AttentionSpec spec;
      if (!config_rejection(spec, config, limits).empty()) continue;
      EXPECT_LE(footprint(spec, config).smem_bytes, limits.smem_per_block) << to_string(config);
      EXPECT_LE(footprint(spec, config).threads, 512);
    }
  });
}

TEST(Footprint, TheRegisterCapIsTheShareOfAThread) {
  const auto cap = [](const ForwardMmaSync& config) { return footprint({}, config).register_cap; };
  EXPECT_EQ(cap({.warps = 4, .blocks_per_sm = 1}), 255);
  EXPECT_EQ(cap({.warps = 8, .blocks_per_sm = 2}), 128);
  EXPECT_EQ(cap({.warps = 4, .blocks_per_sm = 3}), 168);
}

TEST(DeviceLimits, OfADeviceAreItsOwn) {
  const DeviceInfo device{.arch = {9, 0, 0}, .sm_count = 7, .smem_per_block_optin = 100, .smem_per_sm = 200};
  const DeviceLimits limits = device_limits(device);
  EXPECT_EQ(limits.arch, (Arch{9, 0, 'a'}));
  EXPECT_EQ(limits.sm_count, 7);
  EXPECT_EQ(limits.smem_per_block, 100);
  EXPECT_EQ(limits.smem_per_sm, 200);
  for (const Arch& arch : known_archs()) EXPECT_GT(device_limits(arch).sm_count, 0);
}

TEST(Ladder, EachStepIsLegalAndChangesSomething) {
  const std::vector<LadderStep>& steps = ladder();
  ASSERT_EQ(steps.size(), 4u);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    // All on sm_120a where rows are short, and on others all but the one that is of sm_120a.
    EXPECT_EQ(config_rejection({.head_dim = 64}, steps[i].config, Arch{12, 0, 'a'}), "") << steps[i].name;
    EXPECT_EQ(config_rejection({}, steps[i].config, Arch{9, 0, 'a'}).empty(), i < 3) << steps[i].name;
    EXPECT_FALSE(steps[i].technique.empty());
    EXPECT_TRUE(steps[i].name.starts_with("v" + std::to_string(i + 1) + "_"));
    if (i > 0) {
      EXPECT_NE(steps[i].config, steps[i - 1].config);
    }
  }
}

}  // namespace
}  // namespace jit
