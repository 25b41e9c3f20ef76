// The family of gradients of keys and values for head dims above 256 (templates/backward_dkv_wide_wgmma).
#pragma once

#include "generator/kernels/family.h"
#include "generator/kernels/tma_rules.h"
#include "generator/launch/query_statistics.h"

namespace jit {

template <>
struct Family<BackwardDkvWideWgmma> : FamilyDefaults<BackwardDkvWideWgmma> {
  static constexpr std::string_view name = "backward_dkv_wide_wgmma";
  static constexpr std::string_view doc =
      "gradients of keys and values with TMA and wgmma: sm_90a, head dims above 256";
  static constexpr std::span<const Arch> archs = archs_of_wgmma;
  static constexpr Pass pass = Pass::backward_dkv;
  static constexpr bool may_spill = false;
  static constexpr int most_head_dim = max_head_dim, most_head_dim_v = max_head_dim;
  static constexpr BackwardDkvWideWgmma smallest = {.panels = 3, .parts = 2};

  static std::span<const ConfigField<BackwardDkvWideWgmma>> fields();
  static bool suits(const ProblemShape& shape) {
    return shape.tma && (!shape.has_device_lengths || !shape.is_plain);
  }
  static std::string rejection(const Case& problem, const BackwardDkvWideWgmma& config);
  static std::vector<BackwardDkvWideWgmma> space(const Case& problem);
  static Footprint footprint(const AttentionSpec& spec, const BackwardDkvWideWgmma& config);
  static double cycles(const Case& problem, const ProblemShape& shape, const BackwardDkvWideWgmma& config);
  static Program program(const AttentionSpec& spec, const BackwardDkvWideWgmma& config);
  static std::size_t workspace_bytes(const AttentionSpec&, const BackwardDkvWideWgmma&,
                                     const AttentionParams& params, int /*sm_count*/) {
    return statistics_bytes(params);
  }
  /// Requires: launch.gradients is set.
  static void launch(const KernelLaunch& launch, const BackwardDkvWideWgmma& config);
};

}  // namespace jit
