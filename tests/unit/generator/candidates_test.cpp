#include "generator/tuning/candidates.h"

#include <algorithm>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/kernels/families.h"
#include "generator/kernels/search.h"

namespace jit {
namespace {

constexpr Arch sm_90a{9, 0, 'a'};

ProblemShape shape_with(bool tma) {
  return {.batch = 4, .heads_q = 16, .seqlen_q = 4096, .seqlen_kv = 4096, .tma = tma};
}

std::vector<Candidate> candidates_of(const AttentionSpec& spec, const Arch& arch, bool tma = true) {
  return first_run_candidates(spec, shape_with(tma), device_limits(arch));
}

std::ptrdiff_t of_wgmma(const std::vector<Candidate>& candidates) {
  return std::count_if(candidates.begin(), candidates.end(), [](const Candidate& candidate) {
    return std::holds_alternative<ForwardWgmma>(candidate.configs.front());
  });
}

TEST(Candidates, AreFewAndBeginWithTheDefault) {
  for (const Arch& arch : {sm_90a, Arch{8, 0, 0}}) {
    for (int head_dim = 8; head_dim <= 256; head_dim += 8) {
      for (const int head_dim_v : {head_dim, 64, 128}) {
        const AttentionSpec spec{.head_dim = head_dim, .head_dim_v = head_dim_v, .mask = mask::causal()};
        const std::vector<Candidate> candidates = candidates_of(spec, arch);
        ASSERT_FALSE(candidates.empty()) << to_string(spec);
        EXPECT_LE(candidates.size(), 8u) << to_string(spec);
        EXPECT_EQ(candidates[0].configs.front(),
                  ranked_configs(spec, shape_with(true), device_limits(arch))[0]);
      }
    }
  }
}

TEST(Candidates, AreOfBothFamiliesWhereBothMayServe) {
  const std::vector<Candidate> both = candidates_of({.head_dim = 128}, sm_90a);
  EXPECT_GE(of_wgmma(both), 1);
  EXPECT_LT(of_wgmma(both), std::ssize(both));
  EXPECT_LE(of_wgmma(both), 5);
  EXPECT_LE(std::ssize(both) - of_wgmma(both), 2);
  const std::vector<Candidate> without_tma = candidates_of({.head_dim = 128}, sm_90a, false);
  EXPECT_EQ(of_wgmma(without_tma), 0);
  EXPECT_GE(without_tma.size(), 2u);
}

// Configs that are predicted to take twice as long are not compiled: a first call waits for all that are.
TEST(Candidates, OfAFamilyOutOfReachAreNone) {
  const auto picked = [](double cycles) {
    return promising(std::vector<Candidate>{{{ForwardWgmma{}}, 100},
                                            {{ForwardMmaSync{}}, cycles},
                                            {{ForwardMmaSync{.tile_q = 64}}, cycles + 1}})
        .size();
  };
  EXPECT_EQ(picked(199), 3u);
  EXPECT_EQ(picked(201), 1u);
  const auto of_models_that_err = [](double cycles) {
    return promising(std::vector<Candidate>{{{ForwardWgmma{}}, 100, 2}, {{ForwardMmaSync{}}, cycles, 1.5}})
        .size();
  };
  EXPECT_EQ(of_models_that_err(299), 2u);
  EXPECT_EQ(of_models_that_err(301), 1u);
}

// Keys of 8 bits are upcast on their way or ahead, of which the model of the other form knows little.
TEST(Candidates, AreOfBothFormsWhereBothMayServe) {
  const AttentionSpec spec{.gqa_ratio = 4,
                           .sequences_q = SequenceKind::varlen,
                           .sequences_kv = SequenceKind::paged,
                           .page_size = 16,
                           .kv_dtype = DType::fp8_e4m3,
                           .mask = mask::causal()};
  ProblemShape shape{.batch = 8, .heads_q = 32, .seqlen_q = 2048, .seqlen_kv = 2048};
  const auto count = [&](bool ahead) {
    const std::vector<Candidate> candidates = first_run_candidates(spec, shape, device_limits(sm_90a));
    return std::count_if(candidates.begin(), candidates.end(), [&](const Candidate& candidate) {
      const auto* const own = std::get_if<ForwardWgmma>(&candidate.configs.front());
      return own != nullptr && own->upcast_ahead == ahead;
    });
  };
  EXPECT_EQ(count(true), 5);
  EXPECT_EQ(count(false), 2);
  shape.seqlen_kv = 65536;  // for which there is no room
  EXPECT_EQ(count(true), 0);
  EXPECT_EQ(count(false), 5);
}

// Unless a kernel upcasts ahead, converters upcast tiles of 4-bit caches and of caches with scales of tokens,
// as they do FP8 tiles; decoding reads stored tiles directly.
TEST(Candidates, ConvertScalesWhereNobodyUpcastsAhead) {
  for (const DType stored : {DType::fp8_e4m3, DType::int8, DType::int4, DType::nvfp4, DType::mxfp4}) {
    AttentionSpec spec{.gqa_ratio = 4,
                       .sequences_q = SequenceKind::varlen,
                       .sequences_kv = SequenceKind::paged,
                       .page_size = 16,
                       .kv_dtype = stored,
                       .mask = mask::causal()};
    if (stored == DType::int8 || stored == DType::int4) spec.descale_per = ScaleKind::token;
    const auto first = [&](std::int64_t batch, std::int64_t queries, std::int64_t keys) {
      const ProblemShape shape{.batch = batch, .heads_q = 32, .seqlen_q = queries, .seqlen_kv = keys};
      return ranked_configs(spec, shape, device_limits(sm_90a))[0];
    };
    const auto is_ahead = [](const KernelConfig& config) {
      return std::get<ForwardWgmma>(config).upcast_ahead;
    };
    EXPECT_TRUE(is_ahead(first(8, 2048, 2048))) << to_string(stored);
    EXPECT_FALSE(is_ahead(first(8, 2048, 65536))) << "the workspace would be larger than it may";
    EXPECT_TRUE(std::holds_alternative<ForwardSplitWgmma>(first(8, 64, 8192))) << to_string(stored);
    EXPECT_TRUE(std::holds_alternative<ForwardSplitWgmma>(first(16, 16, 4096))) << to_string(stored);
    EXPECT_TRUE(std::holds_alternative<ForwardSplitKv>(first(64, 1, 4096))) << to_string(stored);
    spec.checked = true;
    EXPECT_FALSE(is_ahead(first(8, 2048, 2048))) << to_string(stored);
  }
}

TEST(Candidates, AreNoNearCopiesAndNotFarBehind) {
  const std::vector<Candidate> candidates = candidates_of({.head_dim = 128}, sm_90a);
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j)
      EXPECT_FALSE(are_near_copies(candidates[i].configs, candidates[j].configs));
    const auto first = std::find_if(candidates.begin(), candidates.end(), [&](const Candidate& other) {
      return other.family() == candidates[i].family();
    });
    EXPECT_LE(candidates[i].cycles, fitted_model_error * first->cycles);
  }
}

TEST(Candidates, OfAnExhaustiveSearchAreAll) {
  const std::vector<Candidate> all = all_candidates({}, shape_with(true), device_limits(sm_90a));
  const std::vector<KernelConfig> ranked = ranked_configs({}, shape_with(true), device_limits(sm_90a));
  ASSERT_EQ(all.size(), ranked.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].configs, PlanConfigs{ranked[i]});
    EXPECT_EQ(all[i].cycles, estimated_cycles({{}, device_limits(sm_90a)}, shape_with(true), ranked[i]));
  }
}

std::vector<Candidate> four_with(double error) {
  return {{{ForwardWgmma{}}, 100, error},
          {{ForwardWgmma{.tile_kv = 80}}, 104, error},
          {{ForwardMmaSync{}}, 150, error},
          {{ForwardWgmma{.tile_kv = 96}}, 109, error}};
}
const std::vector<Candidate> four = four_with(1.1);

TEST(Prospects, AreOpenBeforeAnythingIsTimed) {
  const Prospects prospects(four);
  for (std::size_t i = 0; i < four.size(); ++i) EXPECT_TRUE(prospects.may_win(i));
}

// A cycle of the first family takes 2: what is predicted within a tenth of the fastest leader may win.
TEST(Prospects, AreThoseOfTheLeaders) {
  Prospects prospects(four);
  prospects.add(0, 200);
  EXPECT_TRUE(prospects.may_win(1)) << "the other family's leader is not known";
  prospects.add(2, 197);
  EXPECT_TRUE(prospects.may_win(1)) << "208 of 216.7";
  EXPECT_FALSE(prospects.may_win(3)) << "218 of 216.7";
  EXPECT_TRUE(prospects.may_win(0)) << "a leader";
  EXPECT_TRUE(prospects.may_win(2));
}

TEST(Prospects, DependOnNoOrder) {
  const std::vector<std::pair<std::size_t, double>> times{{0, 200}, {1, 150}, {2, 197}, {3, 140}};
  std::vector<std::size_t> order{0, 1, 2, 3};
  do {
    Prospects prospects(four);
    for (const std::size_t i : order) prospects.add(times[i].first, times[i].second);
    EXPECT_TRUE(prospects.may_win(1));
    EXPECT_FALSE(prospects.may_win(3)) << "though it was the fastest";
  } while (std::ranges::next_permutation(order).found);
}

TEST(Prospects, StayOpenInAFamilyWhoseLeaderFails) {
  Prospects prospects(four);
  prospects.add_failure(0);
  prospects.add(2, 1);
  for (std::size_t i = 0; i < four.size(); ++i) EXPECT_TRUE(prospects.may_win(i));
}

TEST(Prospects, NeverCloseInAnExhaustiveSearch) {
  const std::vector<Candidate> all = four_with(std::numeric_limits<double>::infinity());
  Prospects prospects(all);
  prospects.add(0, 1000);
  prospects.add(2, 1);
  EXPECT_TRUE(prospects.may_win(3));
}

}  // namespace
}  // namespace jit
