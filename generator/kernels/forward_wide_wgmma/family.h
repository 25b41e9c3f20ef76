// The family of forward kernels for head dims above 256 (templates/forward_wide_wgmma).
#pragma once

#include "generator/kernels/family.h"
#include "generator/kernels/tma_rules.h"

namespace jit {

template <>
struct Family<ForwardWideWgmma> : FamilyDefaults<ForwardWideWgmma> {
  static constexpr std::string_view name = "forward_wide_wgmma";
  static constexpr std::string_view doc =
      "TMA, wgmma and a warpgroup of scores beside two of outputs: sm_90a, head dims above 256";
  static constexpr std::span<const Arch> archs = archs_of_wgmma;
  static constexpr Pass pass = Pass::forward;
  static constexpr bool may_spill = false;
  static constexpr int most_head_dim = max_head_dim;
  static constexpr int most_head_dim_v = max_head_dim;
  static constexpr ForwardWideWgmma smallest = {.stages_k = 3};

  static std::span<const ConfigField<ForwardWideWgmma>> fields();
  static bool suits(const ProblemShape& shape) {
    return shape.tma && (!shape.has_device_lengths || !shape.is_plain);
  }
  static std::string rejection(const Case& problem, const ForwardWideWgmma& config);
  static std::vector<ForwardWideWgmma> space(const Case& problem);
  static Footprint footprint(const AttentionSpec& spec, const ForwardWideWgmma& config);
  static double cycles(const Case& problem, const ProblemShape& shape, const ForwardWideWgmma& config);
  static Program program(const AttentionSpec& spec, const ForwardWideWgmma& config);
  static std::size_t workspace_bytes(const AttentionSpec&, const ForwardWideWgmma&, const AttentionParams&,
                                     int) {
    return 0;
  }
  static void launch(const KernelLaunch& launch, const ForwardWideWgmma& config);
};

namespace forward_wide_wgmma {

/// Registers per thread by setmaxnreg.
struct RegisterShares {
  int producer = 0;
  int score = 0;
  int output = 0;
  int q_panels = 0;  ///< panels of Q in registers of the score warpgroup
};
RegisterShares register_shares(const AttentionSpec& spec);

}  // namespace forward_wide_wgmma
}  // namespace jit
