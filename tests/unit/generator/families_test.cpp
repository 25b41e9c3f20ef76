// Questions to families, and the answers of families that define none.
#include "generator/kernels/families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <jit/kernel_config.h>
#include <jit/spec_table.h>

#include "tests/support/random_spec.h"
#include "tests/support/seed.h"

namespace jit {
namespace {

// Configs of families that have all that a family must say itself.
struct FitConfig {
  bool operator==(const FitConfig&) const = default;
};
struct MisfitConfig {
  bool operator==(const MisfitConfig&) const = default;
};
struct StrangerConfig {
  bool operator==(const StrangerConfig&) const = default;
};

template <class Config>
struct Minimal {
  static constexpr std::string_view name = "minimal", doc = "nothing";
  static constexpr Pass pass = Pass::forward;
  static constexpr bool may_spill = false;
  static constexpr Config smallest = {};
  static std::span<const ConfigField<Config>> fields();
  static bool suits(const ProblemShape& shape);
  static std::string rejection(const Case& problem, const Config& config);
  static std::vector<Config> space(const Case& problem);
  static Footprint footprint(const AttentionSpec& spec, const Config& config);
  static double cycles(const Case& problem, const ProblemShape& shape, const Config& config);
  static Program program(const AttentionSpec& spec, const Config& config);
  static std::size_t workspace_bytes(const AttentionSpec& spec, const Config& config,
                                     const AttentionParams& params, int sm_count);
  static void launch(const KernelLaunch& launch, const Config& config);
};

}  // namespace

template <>
struct Family<FitConfig> : Minimal<FitConfig>, FamilyDefaults<FitConfig> {};
template <>
struct Family<MisfitConfig> : Minimal<MisfitConfig>, FamilyDefaults<MisfitConfig> {
  static bool can_read(const ProblemShape& shape);  // of which config?
};
template <>
struct Family<StrangerConfig> : Minimal<StrangerConfig> {};

namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

static_assert(KernelFamily<FitConfig>);
static_assert(!KernelFamily<MisfitConfig>, "a hook with another signature is no family's");
static_assert(!KernelFamily<StrangerConfig>, "nor are hooks that are not there");

TEST(Families, ASentenceEndsWithWhoServesTheSpec) {
  const AttentionSpec drops{.dropout = true};
  EXPECT_EQ(config_rejection(drops, ForwardSplitKv{}, Arch{8, 0, 0}),
            "forward_split_kv has no dropout; spec.dropout is true; forward_mma_sync serves it");
  EXPECT_THAT(config_rejection(drops, ForwardSplitKv{}, Arch{9, 0, 'a'}),
              EndsWith("; forward_mma_sync and forward_wgmma serve it"));
}

TEST(Families, WhereNobodyDoesAnotherArchitectureIsNamed) {
  const AttentionSpec latents{.head_dim = 576, .head_dim_v = 512, .values_in_keys = true};
  EXPECT_THAT(config_rejection(latents, ForwardSplitKv{}, Arch{8, 0, 0}),
              EndsWith("; on sm_90a forward_mla_wgmma serves it"));
}

TEST(Families, NobodyElseIsNamedWhereTheConfigAloneIsWrong) {
  const std::string reason =
      config_rejection({}, ForwardMmaSync{.tile_q = 48, .tile_kv = 64, .warps = 4}, Arch{8, 0, 0});
  EXPECT_THAT(reason, HasSubstr("tile_q = 48"));
  EXPECT_THAT(reason, Not(HasSubstr("serve")));
}

TEST(Families, AnArchitectureHasRoomForWhatItsFamiliesHave) {
  const Arch of_latents{9, 0, 'a'};
  for (const Arch& arch : known_archs())
    EXPECT_EQ(most_head_dim(arch), arch == of_latents ? max_latent_head_dim : max_head_dim);
}

// Checks each family that has a legal config for a spec.
void expect_smallest_is_legal(const AttentionSpec& spec) {
  for (const Arch& arch : {Arch{8, 0, 0}, Arch{9, 0, 'a'}}) {
    const DeviceLimits limits = device_limits(arch);
    const Case problem{spec, limits};
    for_each_family([&]<class Config>(const Config&) {
      if (legal_space<Config>(problem).empty()) return;
      const Config smallest = smallest_of<Config>(problem);
      EXPECT_EQ(family_rejection(problem, smallest), "") << to_string(spec) << " " << to_string(smallest);
    });
  }
}

TEST(Families, TheSmallestConfigIsLegalWhereAnyIs) {
  for (const SpecField& field : spec_fields()) {
    for (AttentionSpec spec : field.samples()) {
      for (const bool dropout : {false, true}) {
        spec.dropout |= dropout;
        if (refusals_of(spec, Arch{9, 0, 'a'}).empty()) expect_smallest_is_legal(spec);
      }
    }
  }
  reference::Random random(reference::test_seed());
  for (int i = 0; i < 20; ++i) expect_smallest_is_legal(reference::random_spec(random));
}

TEST(Families, OneHasKernelsAroundItsOwn) {
  const AttentionSpec spec{.head_dim = 64};
  const FamilySteps around = steps_around(spec, BackwardWgmma{});
  ASSERT_EQ(around.before.size(), 1u);
  ASSERT_EQ(around.behind.size(), 1u);
  EXPECT_THAT(around.before.front().program.name, HasSubstr("prepare"));
  EXPECT_THAT(around.behind.front().program.name, HasSubstr("convert"));
  for (const KernelConfig& config : {KernelConfig(ForwardMmaSync{}), KernelConfig(BackwardDqMmaSync{})}) {
    EXPECT_TRUE(steps_around(spec, config).before.empty());
    EXPECT_TRUE(steps_around(spec, config).behind.empty());
  }
}

TEST(Families, AFixedOrderOfSumsIsAConfigsOwnOrAnothers) {
  EXPECT_EQ(deterministic_config(BackwardWgmma{.stages = 2}),
            KernelConfig(BackwardWgmma{.stages = 2, .deterministic = true}));
  EXPECT_EQ(deterministic_config(BackwardDkvMmaSync{}), KernelConfig(BackwardDkvMmaSync{}));
}

TEST(Families, StatisticsLieAsTheFamilyLeavesThem) {
  EXPECT_EQ(query_statistics(BackwardWgmma{}).tile, 64);
  EXPECT_EQ(query_statistics(BackwardTcgen05{}).tile, 128);
  EXPECT_EQ(query_statistics(BackwardDqMmaSync{}).tile, statistic_chunk);
}

}  // namespace
}  // namespace jit
