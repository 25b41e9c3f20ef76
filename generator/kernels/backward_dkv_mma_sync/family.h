// The family of gradients of keys and values by cp.async, ldmatrix and mma.sync
// (templates/backward_dkv_mma_sync).
#pragma once

#include "generator/kernels/family.h"
#include "generator/launch/query_statistics.h"

namespace jit {

template <>
struct Family<BackwardDkvMmaSync> : FamilyDefaults<BackwardDkvMmaSync> {
  static constexpr std::string_view name = "backward_dkv_mma_sync";
  static constexpr std::string_view doc =
      "gradients of keys and values with cp.async, ldmatrix and mma.sync: sm_80 and later, any dense tensor";
  static constexpr Pass pass = Pass::backward_dkv;
  static constexpr bool may_spill = true;
  static constexpr FamilyOutputs outputs = differentiated;
  static constexpr double model_error = 1.5;  ///< not fitted
  static constexpr int most_head_dim = max_head_dim;
  static constexpr int most_head_dim_v = max_head_dim;
  static constexpr BackwardDkvMmaSync smallest = {
      .tile_q = 16, .tile_kv = 16, .warps = 1, .stages = 1, .separate = true};

  static std::span<const ConfigField<BackwardDkvMmaSync>> fields();
  static bool suits(const ProblemShape& shape) { return !shape.has_device_lengths || !shape.is_plain; }
  static std::string rejection(const Case& problem, const BackwardDkvMmaSync& config);
  static std::vector<BackwardDkvMmaSync> space(const Case& problem);
  static Footprint footprint(const AttentionSpec& spec, const BackwardDkvMmaSync& config);
  static double cycles(const Case& problem, const ProblemShape& shape, const BackwardDkvMmaSync& config);
  static Program program(const AttentionSpec& spec, const BackwardDkvMmaSync& config);
  static std::size_t workspace_bytes(const AttentionSpec&, const BackwardDkvMmaSync&,
                                     const AttentionParams& params, int /*sm_count*/) {
    return statistics_bytes(params);
  }
  /// Requires: launch.gradients is set.
  static void launch(const KernelLaunch& launch, const BackwardDkvMmaSync& config);
};

}  // namespace jit
