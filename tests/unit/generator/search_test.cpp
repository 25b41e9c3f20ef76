#include "generator/kernels/search.h"

#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <jit/compiled_kernel.h>

#include "generator/kernels/families.h"
#include "tests/support/error_of.h"
#include "tests/support/random_spec.h"
#include "tests/support/seed.h"

namespace jit {
namespace {

// Every pair of head dims on every architecture, over a few runs: each takes the pairs that its seed falls on.
TEST(Search, FindsAConfigForEveryHeadDimOnEveryArch) {
  constexpr int step = 128;
  reference::Random random(reference::test_seed());
  for (const Arch& arch : known_archs()) {
    const DeviceLimits limits = device_limits(arch);
    for (int head_dim = 8; head_dim <= 256; head_dim += 8) {
      const int first = 8 * reference::draw(random, 1, step / 8);
      for (int head_dim_v = first; head_dim_v <= 256; head_dim_v += step) {
        const AttentionSpec spec{.head_dim = head_dim, .head_dim_v = head_dim_v};
        ASSERT_FALSE(config_space({spec, limits}).empty()) << to_string(spec) << " on " << to_string(arch);
      }
    }
  }
}

TEST(Search, RanksTheWholeSpaceTheSameWayEveryTime) {
  reference::Random random(reference::test_seed());
  for (const Arch& arch : known_archs()) {
    const DeviceLimits limits = device_limits(arch);
    const AttentionSpec spec = reference::random_spec(random);
    const ProblemShape shape{.batch = reference::draw(random, 1, 64),
                             .heads_q = reference::draw(random, 1, 64),
                             .seqlen_q = reference::draw(random, 1, 16384),
                             .seqlen_kv = reference::draw(random, 1, 16384)};
    const std::vector<KernelConfig> ranked = ranked_configs(spec, shape, limits);
    EXPECT_EQ(ranked, ranked_configs(spec, shape, limits));
    const std::vector<KernelConfig> space = config_space({spec, limits}, shape);
    EXPECT_TRUE(std::is_permutation(ranked.begin(), ranked.end(), space.begin(), space.end()));
    for (std::size_t i = 1; i < ranked.size(); ++i) {
      ASSERT_LE(estimated_cycles({spec, limits}, shape, ranked[i - 1]),
                estimated_cycles({spec, limits}, shape, ranked[i]));
    }
  }
}

TEST(Search, FirstsAreThoseOfTheUntunedOrder) {
  reference::Random random(reference::test_seed());
  for (const Arch& arch : {Arch{9, 0, 'a'}, Arch{8, 0}}) {
    const DeviceLimits limits = device_limits(arch);
    const AttentionSpec spec = reference::random_spec(random);
    std::vector<ProblemShape> shapes;
    for (int i = 0; i < 40; ++i)
      shapes.push_back(
          {.heads_q = reference::draw(random, 1, 4096),
           .seqlen_q = reference::draw(random, 1, i % 2 == 0 ? 100 : 16384),  // few suit more families
           .seqlen_kv = reference::draw(random, 1, 16384)});
    const std::vector<KernelConfig> firsts = first_untuned(spec, shapes, limits);
    ASSERT_EQ(firsts.size(), shapes.size());
    for (std::size_t i = 0; i < shapes.size(); ++i)
      EXPECT_EQ(firsts[i], untuned_order(spec, shapes[i], limits)[0]) << to_string(spec);
  }
  EXPECT_TRUE(first_untuned({}, {}, device_limits(Arch{8, 0})).empty());
}

// The best config that adds in a fixed order is not always the best one's deterministic twin.
TEST(Search, DeterministicFirstsAreTheirOwnChoice) {
  const DeviceLimits limits = device_limits(Arch{9, 0, 'a'});
  int others = 0;
  for (const AttentionSpec& spec : std::vector<AttentionSpec>{
           {.head_dim = 64, .mask = mask::causal()}, {.head_dim = 256}, {.dropout = true}}) {
    std::vector<ProblemShape> shapes;
    for (std::int64_t length = 128; length <= 4096; length += 128) {
      for (const std::int64_t heads : {1, 3, 7, 20, 33, 66})
        shapes.push_back({.pass = Pass::backward, .heads_q = heads, .seqlen_q = length, .seqlen_kv = length});
    }
    ASSERT_TRUE(has_deterministic(spec, shapes[0], limits));
    const std::vector<KernelConfig> firsts = first_untuned(spec, shapes, limits, true);
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      EXPECT_EQ(firsts[i], untuned_order(spec, shapes[i], limits, true)[0]) << to_string(spec);
      EXPECT_EQ(deterministic_config(firsts[i]), firsts[i]);
      const KernelConfig best = untuned_order(spec, shapes[i], limits)[0];
      others += deterministic_config(best) != firsts[i];
    }
  }
  EXPECT_GT(others, 0);
}

// A family that puts KV heads side by side in a grid leaves more than 65,535 of them to others.
TEST(Search, ManyHeadsHaveAFamily) {
  const DeviceLimits limits = device_limits(Arch{9, 0, 'a'});
  const ProblemShape few{.heads_q = 65535, .seqlen_q = 1, .seqlen_kv = 64};
  ProblemShape many = few;
  many.has_many_heads = true;
  EXPECT_NE(size_class(few), size_class(many));
  EXPECT_EQ(largest_shape(size_class(many)).has_many_heads, true);
  const auto has_clusters = [&](const ProblemShape& shape) {
    const std::vector<KernelConfig> order = untuned_order({}, shape, limits);
    EXPECT_FALSE(order.empty());
    return std::ranges::any_of(order, [](const KernelConfig& config) {
      return std::holds_alternative<ForwardSplitCluster>(config);
    });
  };
  EXPECT_TRUE(has_clusters(few));
  EXPECT_FALSE(has_clusters(many));
}

// Upcast keys would take 64 MiB, 512 MiB and 1 GiB of calls of these size classes.
TEST(Search, UpcastsAheadWhereThereIsRoom) {
  DeviceLimits limits = device_limits(Arch{9, 0, 'a'});
  limits.sm_count = 132;
  const AttentionSpec spec{.gqa_ratio = 4,
                           .sequences_q = SequenceKind::varlen,
                           .sequences_kv = SequenceKind::paged,
                           .page_size = 16,
                           .kv_dtype = DType::fp8_e4m3,
                           .mask = mask::causal()};
  const auto upcasts = [](const KernelConfig& config) {
    const auto* const own = std::get_if<ForwardWgmma>(&config);
    return own != nullptr && own->upcast_ahead;
  };
  std::vector<ProblemShape> shapes;
  for (const std::int64_t keys : {2048, 16000, 17000}) {
    shapes.push_back(
        {.batch = 8, .heads_q = 32, .seqlen_q = 2048, .seqlen_kv = keys, .has_device_lengths = true});
  }
  const std::vector<KernelConfig> firsts = first_untuned(spec, shapes, limits);
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    EXPECT_EQ(firsts[i], untuned_order(spec, shapes[i], limits)[0]);
    EXPECT_EQ(upcasts(firsts[i]), i < 2) << shapes[i].seqlen_kv << " keys";
    EXPECT_EQ(can_serve({spec, limits}, shapes[i], firsts[0]), i < 2);
    ProblemShape any = shapes[i];
    any.any_size = true;
    EXPECT_FALSE(upcasts(untuned_order(spec, any, limits)[0]));
  }
  // Few tiles of queries for each key.
  shapes[0].seqlen_q = 64;
  EXPECT_FALSE(upcasts(untuned_order(spec, shapes[0], limits)[0]));
}

// Bits of dropout have a bound, in both passes, and are none of calls of all sizes.
TEST(Search, DrawsAheadWhereThereIsRoom) {
  DeviceLimits limits = device_limits(Arch{9, 0, 'a'});
  limits.sm_count = 132;
  const AttentionSpec spec{.dropout = true};
  const auto has_dropout_mask_ahead = [](const KernelConfig& config) {
    if (const auto* const own = std::get_if<ForwardWgmma>(&config)) return own->dropout_mask_ahead;
    const auto* const own = std::get_if<BackwardWgmma>(&config);
    return own != nullptr && own->dropout_mask_ahead;
  };
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    const auto first = [&](std::int64_t heads, std::int64_t tokens, bool any_size = false) {
      return untuned_order(
          spec,
          {.pass = pass, .heads_q = heads, .seqlen_q = tokens, .seqlen_kv = tokens, .any_size = any_size},
          limits)[0];
    };
    EXPECT_TRUE(has_dropout_mask_ahead(first(64, 8192))) << to_string(pass);
    EXPECT_FALSE(has_dropout_mask_ahead(first(65, 8192)))
        << "of as many heads as the class has there is no room";
    EXPECT_FALSE(has_dropout_mask_ahead(first(33, 16384)));
    EXPECT_FALSE(has_dropout_mask_ahead(first(64, 8192, true)));
  }
}

TEST(Search, UntunedKernelsHaveRegistersToSpare) {
  reference::Random random(reference::test_seed());
  for (int i = 0; i < 20; ++i) {
    const DeviceLimits limits = device_limits(known_archs()[random() % known_archs().size()]);
    const AttentionSpec spec = reference::random_spec(random);
    const ProblemShape shape = typical_shape(limits);
    const std::vector<KernelConfig> ranked = ranked_configs(spec, shape, limits);
    const std::vector<KernelConfig> order = untuned_order(spec, shape, limits);
    const auto is_sure = [&](const KernelConfig& config) {
      const Footprint needs = footprint(spec, config);
      EXPECT_GT(needs.register_doubt, 0);
      return needs.registers + needs.register_doubt <= needs.register_cap;
    };
    EXPECT_TRUE(std::is_partitioned(order.begin(), order.end(), is_sure)) << to_string(spec);
    EXPECT_TRUE(std::is_permutation(order.begin(), order.end(), ranked.begin(), ranked.end()));
    const auto cheapest = std::find_if(ranked.begin(), ranked.end(), is_sure);
    EXPECT_EQ(order[0], cheapest == ranked.end() ? ranked[0] : *cheapest);
  }
}

TEST(Search, EstimatesAreFiniteForEveryShape) {
  const DeviceLimits limits = device_limits(Arch{9, 0, 'a'});
  for (const std::int64_t seqlen_q : {0ll, 1ll, 100ll, 2147479551ll}) {
    for (const std::int64_t seqlen_kv : {0ll, 1ll, 100ll, 2147479551ll}) {
      for (const std::int64_t batch : {0ll, 1ll, 65536ll}) {
        const ProblemShape shape{.batch = batch, .heads_q = 8, .seqlen_q = seqlen_q, .seqlen_kv = seqlen_kv};
        for (const KernelConfig& config : {KernelConfig{ForwardMmaSync{}}, KernelConfig{ForwardWgmma{}}}) {
          const double cycles = estimated_cycles({AttentionSpec{}, limits}, shape, config);
          EXPECT_TRUE(std::isfinite(cycles) && cycles > 0) << batch << " " << seqlen_q << " " << seqlen_kv;
        }
      }
    }
  }
}

TEST(Search, MoreWorkTakesLonger) {
  const DeviceLimits limits = device_limits(Arch{9, 0, 'a'});
  const auto cycles = [&](std::int64_t batch, std::int64_t seqlen_kv) {
    return estimated_cycles({AttentionSpec{}, limits},
                            {.batch = batch, .heads_q = 16, .seqlen_q = 2048, .seqlen_kv = seqlen_kv}, {});
  };
  EXPECT_GT(cycles(8, 2048), 1.5 * cycles(4, 2048));
  EXPECT_GT(cycles(4, 4096), 1.5 * cycles(4, 2048));
}

TEST(Search, FewQueriesHaveTheirKeysSplit) {
  const DeviceLimits limits = device_limits(Arch{9, 0, 'a'});
  const KernelConfig decode =
      ranked_configs({}, {.batch = 1, .heads_q = 8, .seqlen_q = 1, .seqlen_kv = 4096}, limits)[0];
  const KernelConfig prefill = ranked_configs({}, typical_shape(limits), limits)[0];
  EXPECT_EQ(family_name(decode), "forward_split_cluster");
  EXPECT_EQ(family_name(prefill), "forward_wgmma");
  const DeviceLimits ampere = device_limits(Arch{8, 0});
  const KernelConfig earlier =
      ranked_configs({}, {.batch = 1, .heads_q = 8, .seqlen_q = 1, .seqlen_kv = 4096}, ampere)[0];
  EXPECT_EQ(family_name(earlier), "forward_split_kv");
}

// As timings on an H200 want it. Where lengths may be uneven, blocks that share all keys evenly are the safer choice,
// unless there is little to share.
TEST(Search, DecodingIsMergedInClusters) {
  DeviceLimits limits = device_limits(Arch{9, 0, 'a'});
  limits.sm_count = 132;
  struct Call {
    int batch, heads_q, heads_kv, seqlen_kv, page_size;
  };
  const auto family = [&](const Call& call) {
    AttentionSpec spec{.gqa_ratio = call.heads_q / call.heads_kv};
    spec.sequences_kv = call.page_size != 0 ? SequenceKind::paged : SequenceKind::dense;
    spec.page_size = call.page_size;
    const ProblemShape shape{.batch = call.batch,
                             .heads_q = call.heads_q,
                             .seqlen_kv = call.seqlen_kv,
                             .has_device_lengths = call.page_size != 0};
    return family_name(ranked_configs(spec, shape, limits)[0]);
  };
  for (const Call& call :
       {Call{1, 32, 8, 300, 0}, {1, 32, 8, 1024, 0},   {1, 32, 8, 1024, 16},  {1, 32, 8, 8192, 0},
        {1, 8, 1, 8192, 0},     {8, 32, 8, 1024, 0},   {1, 32, 32, 1024, 1},  {1, 64, 8, 131072, 0},
        {64, 8, 1, 4096, 0},    {16, 32, 8, 8192, 0},  {64, 32, 8, 4096, 0},  {128, 64, 8, 8192, 0},
        {256, 16, 2, 1024, 0},  {8, 64, 4, 2048, 16},  {1, 64, 8, 16384, 64}, {8, 32, 8, 2048, 16},
        {64, 32, 32, 4096, 16}, {256, 32, 8, 512, 16}, {64, 32, 8, 1024, 16}, {16, 32, 8, 8192, 16},
        {64, 32, 8, 4096, 16},  {256, 16, 2, 1024, 16}})
    EXPECT_EQ(family(call), "forward_split_cluster")
        << call.batch << " " << call.heads_kv << " " << call.seqlen_kv;
  for (const Call& call :
       {Call{1, 64, 8, 131072, 16}, {1, 64, 8, 65536, 64}, {16, 32, 8, 65536, 16}, {32, 32, 8, 131072, 16}})
    EXPECT_NE(family(call), "forward_split_cluster")
        << call.batch << " " << call.heads_kv << " " << call.seqlen_kv;
}

// As timings on an H200 want it. With split_keys one config computes prefill, too.
TEST(Search, CachesOfFp8AreCopiedInBoxes) {
  DeviceLimits limits = device_limits(Arch{9, 0, 'a'});
  limits.sm_count = 132;
  AttentionSpec spec{
      .gqa_ratio = 4, .sequences_kv = SequenceKind::paged, .page_size = 16, .kv_dtype = DType::fp8_e4m3};
  const auto first = [&](std::int64_t batch, std::int64_t seqlen_kv) {
    return ranked_configs(
        spec, {.batch = batch, .heads_q = 32, .seqlen_kv = seqlen_kv, .has_device_lengths = true}, limits)[0];
  };
  for (const auto& [batch, seqlen_kv] : {std::pair(64, 8192), {16, 8192}, {16, 4096}}) {
    const KernelConfig config = first(batch, seqlen_kv);
    const auto* own = std::get_if<ForwardSplitKv>(&config);
    ASSERT_TRUE(own != nullptr) << to_string(config);
    EXPECT_EQ(*own, (ForwardSplitKv{.tile_kv = 128, .stages = 2, .copies = Copies::tma})) << to_string(*own);
  }
  spec.split_keys = 512;
  EXPECT_EQ(family_name(first(64, 8192)), "forward_split_wgmma");
}

// As timings on an H200 want it.
TEST(Search, RequestsOfManyQueriesHaveTheirKeysInOneBlock) {
  const DeviceLimits limits = device_limits(Arch{9, 0, 'a'});
  AttentionSpec spec{.gqa_ratio = 4, .sequences_q = SequenceKind::varlen};
  const auto family = [&](std::int64_t batch, std::int64_t seqlen_q, std::int64_t seqlen_kv) {
    const ProblemShape shape{.batch = batch,
                             .heads_q = 32,
                             .seqlen_q = seqlen_q,
                             .seqlen_kv = seqlen_kv,
                             .has_device_lengths = true};
    return family_name(ranked_configs(spec, shape, limits)[0]);
  };
  for (const int page_size : {0, 16, 64}) {
    spec.sequences_kv = page_size == 0 ? SequenceKind::varlen : SequenceKind::paged;
    spec.page_size = page_size;
    for (const Mask& mask : {Mask(), mask::causal()}) {
      spec.mask = mask;
      for (const auto& [batch, tokens] : {std::pair(4, 2048), {8, 4096}, {32, 512}})
        EXPECT_EQ(family(batch, tokens, tokens), "forward_wgmma") << to_string(spec) << " " << tokens;
      for (const int queries : {1, 4, 16}) {
        EXPECT_EQ(family(64, queries, 4096), queries == 16 ? "forward_split_wgmma" : "forward_split_cluster")
            << to_string(spec) << " " << queries;
      }
      EXPECT_EQ(family(1, 128, 4096), "forward_split_wgmma") << "a few tiles for all multiprocessors";
    }
  }
}

// Half the bytes, and where tensor cores multiply them twice the rate. On sm_80 conversions cost more than that.
TEST(Search, Fp8QueriesPayWhereTheyAreMultiplied) {
  const ProblemShape shape{.batch = 2, .heads_q = 16, .seqlen_q = 4096, .seqlen_kv = 4096};
  const auto cycles = [&](DType dtype, Arch arch) {
    const AttentionSpec spec{.dtype = dtype};
    const DeviceLimits limits = device_limits(arch);
    return estimated_cycles({spec, limits}, shape, ranked_configs(spec, shape, limits).front());
  };
  for (const Arch arch : {Arch{8, 9, 0}, Arch{12, 0, 0}})
    EXPECT_LT(cycles(DType::fp8_e4m3, arch), 0.8 * cycles(DType::bf16, arch)) << to_string(arch);
  EXPECT_GT(cycles(DType::fp8_e4m3, {8, 0, 0}), cycles(DType::bf16, {8, 0, 0}));
}

// On sm_90a what TMA cannot read is left to mma.sync.
TEST(Search, Fp8QueriesOfAnyRowsAreServed) {
  const DeviceLimits limits = device_limits(Arch{9, 0, 'a'});
  const auto first = [&](const AttentionSpec& spec, bool tma) {
    const ProblemShape shape{.batch = 2, .heads_q = 16, .seqlen_q = 4096, .seqlen_kv = 4096, .tma = tma};
    return family_name(ranked_configs(spec, shape, limits).front());
  };
  EXPECT_EQ(first({.dtype = DType::fp8_e4m3}, true), "forward_wgmma");
  EXPECT_EQ(first({.dtype = DType::fp8_e4m3}, false), "forward_mma_sync");
  EXPECT_EQ(first({.dtype = DType::fp8_e4m3, .alignment = 8}, true), "forward_mma_sync");
}

TEST(Search, SaysWhyNothingFits) {
  DeviceLimits limits = device_limits(Arch{9, 0, 'a'});
  limits.smem_per_block = 1000;
  const Error error = testing::error_of([&] { ranked_configs({}, typical_shape(limits), limits); });
  EXPECT_EQ(error.code(), ErrorCode::no_valid_config);
  EXPECT_THAT(error.message(), ::testing::HasSubstr("exceeds the 1000 that a block may have"));
}

TEST(CandidateConfigs, RefuseABadSpec) {
  EXPECT_THROW(candidate_configs({.head_dim = 3}, {9, 0, 'a'}), Error);
  EXPECT_EQ(
      candidate_configs({}, {9, 0, 'a'}),
      ranked_configs({}, typical_shape(device_limits(Arch{9, 0, 'a'})), device_limits(Arch{9, 0, 'a'})));
}

}  // namespace
}  // namespace jit
