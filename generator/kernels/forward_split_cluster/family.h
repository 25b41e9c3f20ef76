// The family of forward kernels that split keys over the blocks of a cluster
// (templates/forward_split_cluster).
#pragma once

#include "generator/kernels/family.h"
#include "generator/kernels/tma_rules.h"

namespace jit {

template <>
struct Family<ForwardSplitCluster> : FamilyDefaults<ForwardSplitCluster> {
  static constexpr std::string_view name = "forward_split_cluster";
  static constexpr std::string_view doc =
      "cp.async and mma.sync, keys split over the blocks of a cluster: sm_90a, few queries";
  static constexpr std::span<const Arch> archs = archs_of_wgmma;
  static constexpr Pass pass = Pass::forward;
  static constexpr bool may_spill = true;
  static constexpr bool applies_output = true;
  static constexpr double model_error = 1.15;
  static constexpr ForwardSplitCluster smallest = {
      .cluster = 1, .block_warps = 1, .tile_kv = 16, .stages = 2};

  static std::span<const ConfigField<ForwardSplitCluster>> fields();
  static bool suits(const ProblemShape& shape);
  static std::string rejection(const Case& problem, const ForwardSplitCluster& config);
  static std::vector<ForwardSplitCluster> space(const Case& problem);
  static Footprint footprint(const AttentionSpec& spec, const ForwardSplitCluster& config);
  static double cycles(const Case& problem, const ProblemShape& shape, const ForwardSplitCluster& config);
  static Program program(const AttentionSpec& spec, const ForwardSplitCluster& config);
  static std::size_t workspace_bytes(const AttentionSpec&, const ForwardSplitCluster&, const AttentionParams&,
                                     int) {
    return 0;
  }
  static void launch(const KernelLaunch& launch, const ForwardSplitCluster& config);
};

namespace forward_split_cluster {

/// The largest cluster: as many blocks as a full Hopper GPC has SMs; every GPU has such GPCs.
inline constexpr int largest_cluster = 16;

}  // namespace forward_split_cluster
}  // namespace jit
