// The family of forward kernels by TMA, wgmma and specialized warps (templates/forward_wgmma).
#pragma once

#include "generator/kernels/dropout_mask.h"
#include "generator/kernels/family.h"
#include "generator/kernels/tma_rules.h"
#include "generator/kernels/upcast_keys.h"

namespace jit {

namespace forward_wgmma {

/// Layout of the precomputed dropout mask.
DropoutMaskTiles dropout_mask_tiles(const ForwardWgmma& config);
/// Bytes of waiting results of spans of all blocks of a launch (templates/split_keys/waiting_spans.cuh).
std::size_t span_bytes(const AttentionSpec& spec, const ForwardWgmma& config, const AttentionParams& params,
                       int sm_count);

}  // namespace forward_wgmma

template <>
struct Family<ForwardWgmma> : FamilyDefaults<ForwardWgmma> {
  static constexpr std::string_view name = "forward_wgmma";
  static constexpr std::string_view doc =
      "TMA, wgmma and specialized warps: sm_90a, tensors that TMA can map";
  static constexpr std::span<const Arch> archs = archs_of_wgmma;
  static constexpr Pass pass = Pass::forward;
  static constexpr bool waits_for_keys = true;
  static constexpr FamilyOutputs outputs = outputs_over_calls;
  static constexpr bool applies_output = true;
  static constexpr Requests part = Requests::many_queries;  ///< in a mixed call
  static constexpr bool may_spill =
      false;  // a kernel that spills, or serializes wgmma, defeats its config's purpose
  static constexpr ForwardWgmma smallest = {
      .tile_q = 64, .tile_kv = 16, .stages_k = 1, .output = OutputPlace::direct};

  static ForwardWgmma smallest_for(const AttentionSpec& spec);
  static double model_error_for(const AttentionSpec& spec);
  static std::optional<ForwardWgmma> for_requests(const ForwardWgmma& config, Requests requests) {
    return with_requests(config, requests, part);
  }
  static std::span<const ConfigField<ForwardWgmma>> fields();
  static bool suits(const ProblemShape& shape) {
    return shape.tma && (!shape.has_device_lengths || !shape.is_plain);
  }
  static std::string rejection(const Case& problem, const ForwardWgmma& config);
  static std::vector<ForwardWgmma> space(const Case& problem);
  static Footprint footprint(const AttentionSpec& spec, const ForwardWgmma& config);
  static double cycles(const Case& problem, const ProblemShape& shape, const ForwardWgmma& config);
  static Program program(const AttentionSpec& spec, const ForwardWgmma& config);
  static bool has_kernel_ahead(const ForwardWgmma& config) {
    return config.upcast_ahead || config.dropout_mask_ahead;
  }
  static bool has_room(const AttentionSpec& spec, const ProblemShape& shape, const ForwardWgmma& config) {
    if (config.dropout_mask_ahead)
      return has_room_for_dropout_mask(shape, forward_wgmma::dropout_mask_tiles(config));
    return !config.upcast_ahead || has_room_for_upcast(spec, shape);
  }
  static std::size_t workspace_bytes(const AttentionSpec& spec, const ForwardWgmma& config,
                                     const AttentionParams& params, int sm_count) {
    if (spec.split_keys != 0) return forward_wgmma::span_bytes(spec, config, params, sm_count);
    if (config.dropout_mask_ahead)
      return dropout_mask_bytes(params, forward_wgmma::dropout_mask_tiles(config));
    return config.upcast_ahead ? upcast_bytes(spec, params) : 0;
  }
  static void launch(const KernelLaunch& launch, const ForwardWgmma& config);
};

namespace forward_wgmma {

/// Number of consumer warpgroups of a block.
int consumers_of(const ForwardWgmma& config);
/// Whether tiles of keys go from the last to the first, with fp8: the first keys may be outliers, after which
/// 8-bit P loses small weights (docs/fp8.md).
bool goes_down(const AttentionSpec& spec);
/// Whether FP8 P V sums P by a product with ones, so that sums are those of rounded P.
bool has_sums_by_products(const AttentionSpec& spec, const ForwardWgmma& config);
/// Columns of ones in P V, in addition to those of V.
int sum_columns_of(const AttentionSpec& spec, const ForwardWgmma& config);
/// Number of FP8 exponentials in 8 that are interpolated, where nothing else loses accuracy.
int interpolated_exponentials(const AttentionSpec& spec);

/// Registers per thread by setmaxnreg; all 0: unchanged since launch.
struct RegisterShares {
  int producer = 0;
  int consumer = 0;
  int converter = 0;  ///< of a warpgroup that transposes 8-bit V or upcasts K and V
};
RegisterShares register_shares(const AttentionSpec& spec, const ForwardWgmma& config);

/// Whether k and v have 8 bits and q has 16.
bool has_stored_keys(const AttentionSpec& spec);
/// Whether only a kernel ahead can: their rows have no whole chunks.
bool wants_upcast_ahead(const AttentionSpec& spec);
/// Whether the main kernel upcasts k and v, without a kernel ahead.
bool upcasts(const AttentionSpec& spec, const ForwardWgmma& config);
/// The spec of the main kernel: with upcast keys if a kernel ahead upcasts them.
AttentionSpec read_spec(const AttentionSpec& spec, const ForwardWgmma& config);

/// Columns of O per wgmma of P V: all, unless k and v have 8 bits and the launch's registers are too few.
int output_columns_at_once(const AttentionSpec& spec, const ForwardWgmma& config);

/// Whether the mask has a word per key, which the key producer stores in shared memory
/// (templates/problem/masks.cuh).
bool has_key_words(const AttentionSpec& spec);

}  // namespace forward_wgmma
}  // namespace jit
