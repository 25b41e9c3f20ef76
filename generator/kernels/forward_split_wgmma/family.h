// The family of split-KV forward kernels by TMA and wgmma (templates/forward_split_wgmma).
#pragma once

#include "generator/kernels/family.h"
#include "generator/kernels/split_wgmma.h"
#include "generator/kernels/tma_rules.h"

namespace jit {

template <>
struct Family<ForwardSplitWgmma> : FamilyDefaults<ForwardSplitWgmma> {
  static constexpr std::string_view name = "forward_split_wgmma";
  static constexpr std::string_view doc =
      "TMA and wgmma, keys split over blocks: sm_90a, any sequences in tensors that TMA can map";
  static constexpr std::span<const Arch> archs = archs_of_wgmma;
  static constexpr Pass pass = Pass::forward;
  static constexpr FamilyOutputs outputs = all_outputs;
  static constexpr bool applies_output = true;
  static constexpr bool reads_lists = true;
  static constexpr Requests part = Requests::few_queries;  ///< of a call of two kernels
  static constexpr bool may_spill = false;
  static constexpr ForwardSplitWgmma smallest = {.tile_rows = 64, .tile_kv = 16, .stages = 1};

  static ForwardSplitWgmma smallest_for(const AttentionSpec& spec);
  static std::optional<ForwardSplitWgmma> for_requests(const ForwardSplitWgmma& config, Requests requests) {
    return with_requests(config, requests, part);
  }
  static std::span<const ConfigField<ForwardSplitWgmma>> fields();
  static bool suits(const ProblemShape& shape);
  static std::string rejection(const Case& problem, const ForwardSplitWgmma& config);
  static std::vector<ForwardSplitWgmma> space(const Case& problem);
  static Footprint footprint(const AttentionSpec& spec, const ForwardSplitWgmma& config);
  static double cycles(const Case& problem, const ProblemShape& shape, const ForwardSplitWgmma& config);
  static Program program(const AttentionSpec& spec, const ForwardSplitWgmma& config);
  static std::size_t workspace_bytes(const AttentionSpec&, const ForwardSplitWgmma&, const AttentionParams&,
                                     int) {
    return 0;
  }
  static void launch(const KernelLaunch& launch, const ForwardSplitWgmma& config);
};

namespace forward_split_wgmma {

/// The most queries of a sequence; with more, forward_wgmma is usually faster, for dense sequences always.
inline constexpr std::int64_t few_queries = 64;

/// Registers of a wgmma besides its accumulators: ptxas needs all of them in the launch's registers.
inline constexpr int instruction_registers = 30;

/// Number of consumer warpgroups of a block.
int consumers_of(const ForwardSplitWgmma& config);

/// Register shares. A single consumer keeps those of the launch.
RegisterShares register_shares(const AttentionSpec& spec, const ForwardSplitWgmma& config);

}  // namespace forward_split_wgmma
}  // namespace jit
