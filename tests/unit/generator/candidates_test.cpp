#include "generator/tuning/candidates.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "generator/kernels/families.h"
#include "generator/kernels/search.h"

namespace jit {
namespace {

std::vector<KernelConfig> candidates_of(const AttentionSpec& spec, const Arch& arch, bool tma = true) {
  return first_run_candidates(spec,
                              {.batch = 4, .heads_q = 16, .seqlen_q = 4096, .seqlen_kv = 4096, .tma = tma},
                              device_limits(arch));
}

template <class Predicate>
std::ptrdiff_t count(const std::vector<KernelConfig>& configs, Predicate predicate) {
  return std::count_if(configs.begin(), configs.end(), predicate);
}

constexpr Arch sm_90a{9, 0, 'a'};

TEST(Candidates, AreFewAndBeginWithTheDefault) {
  for (const Arch& arch : {sm_90a, Arch{8, 0, 0}}) {
    for (int head_dim = 8; head_dim <= 256; head_dim += 8) {
      for (const int head_dim_v : {head_dim, 64, 128}) {
        const AttentionSpec spec{.head_dim = head_dim, .head_dim_v = head_dim_v, .mask = mask::causal()};
        const std::vector<KernelConfig> candidates = candidates_of(spec, arch);
        EXPECT_GE(candidates.size(), 4u) << to_string(spec);
        EXPECT_LE(candidates.size(), 24u) << to_string(spec);
        const ProblemShape shape{.batch = 4, .heads_q = 16, .seqlen_q = 4096, .seqlen_kv = 4096, .tma = true};
        EXPECT_EQ(candidates.at(0), ranked_configs(spec, shape, device_limits(arch)).at(0));
      }
    }
  }
}

TEST(Candidates, AreOfBothFamiliesWhereBothMayServe) {
  const auto is_wgmma = [](const KernelConfig& config) {
    return std::holds_alternative<ForwardWgmma>(config);
  };
  const std::vector<KernelConfig> both = candidates_of({.head_dim = 128}, sm_90a);
  EXPECT_GE(count(both, is_wgmma), 18);
  EXPECT_GE(count(both, [&](const KernelConfig& config) { return !is_wgmma(config); }), 4);
  const std::vector<KernelConfig> without_tma = candidates_of({.head_dim = 128}, sm_90a, false);
  EXPECT_EQ(count(without_tma, is_wgmma), 0);
  EXPECT_GT(without_tma.size(), 18u);
}

TEST(Candidates, HoldNoMoreThanTwoNearCopies) {
  for (const KernelConfig& config : candidates_of({.head_dim = 128}, sm_90a)) {
    EXPECT_LE(count(candidates_of({.head_dim = 128}, sm_90a),
                    [&](const KernelConfig& other) { return are_near_copies(config, other); }),
              most_near_copies)
        << to_string(config);
  }
}

}  // namespace
}  // namespace jit
