// The family of split-KV forward kernels by mma.sync (templates/forward_split_kv).
#pragma once

#include "generator/kernels/family.h"
#include "templates/forward_split_kv/smem_layout.cuh"

namespace jit {

template <>
struct Family<ForwardSplitKv> : FamilyDefaults<ForwardSplitKv> {
  static constexpr std::string_view name = "forward_split_kv";
  static constexpr std::string_view doc =
      "cp.async or TMA, and mma.sync, keys split over blocks: sm_80 and later, any sequences";
  static constexpr Pass pass = Pass::forward;
  static constexpr FamilyOutputs outputs = all_outputs;
  static constexpr bool applies_output = true;
  static constexpr bool may_spill = true;
  static constexpr ForwardSplitKv smallest = {.key_warps = 1, .tile_kv = 16, .stages = 2, .blocks_per_sm = 1};
  static constexpr int most_head_dim = max_head_dim;
  static constexpr int most_head_dim_v = max_head_dim;
  static constexpr bool reads_lists = true;

  static std::span<const ConfigField<ForwardSplitKv>> fields();
  static bool suits(const ProblemShape& shape);
  static bool can_read(const ProblemShape& shape, const ForwardSplitKv& config);
  static std::string rejection(const Case& problem, const ForwardSplitKv& config);
  static std::vector<ForwardSplitKv> space(const Case& problem);
  static Footprint footprint(const AttentionSpec& spec, const ForwardSplitKv& config);
  static double cycles(const Case& problem, const ProblemShape& shape, const ForwardSplitKv& config);
  static Program program(const AttentionSpec& spec, const ForwardSplitKv& config);
  static std::size_t workspace_bytes(const AttentionSpec&, const ForwardSplitKv&, const AttentionParams&,
                                     int) {
    return 0;
  }
  static void launch(const KernelLaunch& launch, const ForwardSplitKv& config);

  /// Whether conversions of stored elements, or token scales, bound decoding by their instructions.
  static bool converts_much(const AttentionSpec& spec);
  /// Layout of the spec's keys and values in shared memory.
  static forward_split_kv::Storage storage_of(const AttentionSpec& spec);
};

}  // namespace jit
