// The family of forward kernels by TMA and mma.sync (templates/forward_mma_tma).
#pragma once

#include <array>

#include "generator/kernels/family.h"
#include "generator/kernels/tma_rules.h"

namespace jit {

namespace forward_mma_tma {

/// Architectures with TMA and block-scaled mma.sync, but without wgmma.
inline constexpr std::array archs_of_geforce{Arch{12, 0, 'a'}, Arch{12, 1, 'a'}};

}  // namespace forward_mma_tma

template <>
struct Family<ForwardMmaTma> : FamilyDefaults<ForwardMmaTma> {
  static constexpr std::string_view name = "forward_mma_tma";
  static constexpr std::string_view doc =
      "TMA, ldmatrix and mma.sync by specialized warps: sm_120a and sm_121a, tensors that TMA can map";
  static constexpr std::span<const Arch> archs = forward_mma_tma::archs_of_geforce;
  static constexpr Pass pass = Pass::forward;
  static constexpr double model_error = 1.3;  // the model was not compared with timings
  static constexpr bool may_spill = false;
  static constexpr ForwardMmaTma smallest = {.tile_q = 64, .tile_kv = 16, .stages = 1};

  static ForwardMmaTma smallest_for(const AttentionSpec& spec);
  static std::span<const ConfigField<ForwardMmaTma>> fields();
  static bool suits(const ProblemShape& shape) {
    return shape.tma && (!shape.has_device_lengths || !shape.is_plain);
  }
  static std::string rejection(const Case& problem, const ForwardMmaTma& config);
  static std::vector<ForwardMmaTma> space(const Case& problem);
  static Footprint footprint(const AttentionSpec& spec, const ForwardMmaTma& config);
  static double cycles(const Case& problem, const ProblemShape& shape, const ForwardMmaTma& config);
  static Program program(const AttentionSpec& spec, const ForwardMmaTma& config);
  static std::size_t workspace_bytes(const AttentionSpec&, const ForwardMmaTma&, const AttentionParams&,
                                     int /*sm_count*/) {
    return 0;
  }
  static void launch(const KernelLaunch& launch, const ForwardMmaTma& config);
};

namespace forward_mma_tma {

/// Number of warps of a block that compute, with 16 queries each.
inline int computing_warps(const ForwardMmaTma& config) { return config.tile_q / 16; }

}  // namespace forward_mma_tma
}  // namespace jit
