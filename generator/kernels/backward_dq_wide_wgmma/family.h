// The family of gradients of queries for head dims above 256 (templates/backward_dq_wide_wgmma).
#pragma once

#include "generator/kernels/family.h"
#include "generator/kernels/tma_rules.h"
#include "generator/launch/query_statistics.h"

namespace jit {

template <>
struct Family<BackwardDqWideWgmma> : FamilyDefaults<BackwardDqWideWgmma> {
  static constexpr std::string_view name = "backward_dq_wide_wgmma";
  static constexpr std::string_view doc =
      "gradient of the queries with TMA and wgmma: sm_90a, head dims above 256";
  static constexpr std::span<const Arch> archs = archs_of_wgmma;
  static constexpr Pass pass = Pass::backward_dq;
  static constexpr bool may_spill = false;
  static constexpr int most_head_dim = max_head_dim, most_head_dim_v = max_head_dim;
  static constexpr BackwardDqWideWgmma smallest = {.panels = 3, .parts = 2};

  static std::span<const ConfigField<BackwardDqWideWgmma>> fields();
  static bool suits(const ProblemShape& shape) {
    return shape.tma && (!shape.has_device_lengths || !shape.is_plain);
  }
  static std::string rejection(const Case& problem, const BackwardDqWideWgmma& config);
  static std::vector<BackwardDqWideWgmma> space(const Case& problem);
  static Footprint footprint(const AttentionSpec& spec, const BackwardDqWideWgmma& config);
  static double cycles(const Case& problem, const ProblemShape& shape, const BackwardDqWideWgmma& config);
  static Program program(const AttentionSpec& spec, const BackwardDqWideWgmma& config);
  static std::size_t workspace_bytes(const AttentionSpec&, const BackwardDqWideWgmma&,
                                     const AttentionParams& params, int /*sm_count*/) {
    return statistics_bytes(params);
  }
  /// Requires: launch.gradients is set.
  static void launch(const KernelLaunch& launch, const BackwardDqWideWgmma& config);
};

}  // namespace jit
