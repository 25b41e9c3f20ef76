// The family of forward kernels by cp.async, ldmatrix and mma.sync (templates/forward_mma_sync).
#pragma once

#include "generator/kernels/family.h"

namespace jit {

template <>
struct Family<ForwardMmaSync> : FamilyDefaults<ForwardMmaSync> {
  static constexpr std::string_view name = "forward_mma_sync";
  static constexpr std::string_view doc = "cp.async, ldmatrix and mma.sync: sm_80 and later, any tensor";
  static constexpr Pass pass = Pass::forward;
  static constexpr FamilyOutputs outputs = all_outputs;
  static constexpr bool applies_output = true;
  static constexpr bool may_spill = true;
  static constexpr ForwardMmaSync smallest = {.tile_q = 64, .tile_kv = 32, .stages_k = 1, .stages_v = 1};
  static constexpr int most_head_dim = max_head_dim;
  static constexpr int most_head_dim_v = max_head_dim;

  static ForwardMmaSync smallest_for(const AttentionSpec& spec) {
    if (column_warps(spec.head_dim, spec.value_head_dim()) == 1) return smallest;
    return {.tile_q = 32, .tile_kv = 32, .warps = 2, .stages_k = 1, .stages_v = 1};
  }

  static std::span<const ConfigField<ForwardMmaSync>> fields();
  static bool suits(const ProblemShape& shape) { return !shape.has_device_lengths || !shape.is_plain; }
  static std::string rejection(const Case& problem, const ForwardMmaSync& config);
  static std::vector<ForwardMmaSync> space(const Case& problem);
  static Footprint footprint(const AttentionSpec& spec, const ForwardMmaSync& config);
  static double cycles(const Case& problem, const ProblemShape& shape, const ForwardMmaSync& config);
  static Program program(const AttentionSpec& spec, const ForwardMmaSync& config);
  static std::size_t workspace_bytes(const AttentionSpec& spec, const ForwardMmaSync& config,
                                     const AttentionParams& params, int sm_count);
  static void launch(const KernelLaunch& launch, const ForwardMmaSync& config);
};

}  // namespace jit
