// The family of gradients of queries by cp.async, ldmatrix and mma.sync (templates/backward_dq_mma_sync).
#pragma once

#include "generator/kernels/family.h"
#include "generator/launch/query_statistics.h"

namespace jit {

template <>
struct Family<BackwardDqMmaSync> : FamilyDefaults<BackwardDqMmaSync> {
  static constexpr std::string_view name = "backward_dq_mma_sync";
  static constexpr std::string_view doc =
      "gradient of the queries with cp.async, ldmatrix and mma.sync: sm_80 and later, any dense tensor";
  static constexpr Pass pass = Pass::backward_dq;
  static constexpr bool may_spill = true;
  static constexpr FamilyOutputs outputs = differentiated;
  static constexpr double model_error = 1.5;  ///< not fitted
  static constexpr int most_head_dim = max_head_dim;
  static constexpr int most_head_dim_v = max_head_dim;
  static constexpr BackwardDqMmaSync smallest = {.tile_q = 16, .tile_kv = 16, .warps = 1, .stages = 1};

  static BackwardDqMmaSync smallest_for(const AttentionSpec& spec) {
    BackwardDqMmaSync config = smallest;
    if (spec.dropout) config.tile_kv = dropout_keys;
    return config;
  }
  static std::span<const ConfigField<BackwardDqMmaSync>> fields();
  static bool suits(const ProblemShape& shape) { return !shape.has_device_lengths || !shape.is_plain; }
  static std::string rejection(const Case& problem, const BackwardDqMmaSync& config);
  static std::vector<BackwardDqMmaSync> space(const Case& problem);
  static Footprint footprint(const AttentionSpec& spec, const BackwardDqMmaSync& config);
  static double cycles(const Case& problem, const ProblemShape& shape, const BackwardDqMmaSync& config);
  static Program program(const AttentionSpec& spec, const BackwardDqMmaSync& config);
  static std::size_t workspace_bytes(const AttentionSpec&, const BackwardDqMmaSync&,
                                     const AttentionParams& params, int /*sm_count*/) {
    return statistics_bytes(params);
  }
  /// Requires: launch.gradients is set.
  static void launch(const KernelLaunch& launch, const BackwardDqMmaSync& config);
};

}  // namespace jit
