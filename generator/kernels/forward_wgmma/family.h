// The family of forward kernels with TMA, wgmma and specialized warps (templates/forward_wgmma).
#pragma once

#include "generator/kernels/dropout_mask.h"
#include "generator/kernels/family.h"
#include "generator/kernels/tma_rules.h"
#include "generator/kernels/upcast_keys.h"

namespace jit {

namespace forward_wgmma {

/// How blocks read the precomputed dropout mask.
DropoutMaskTiles dropout_mask_tiles(const ForwardWgmma& config);
/// Bytes of results of spans that wait, of all blocks of a launch (templates/split_keys/waiting_spans.cuh).
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
  static constexpr FamilyOutputs outputs = all_outputs;
  static constexpr bool applies_output = true;
  static constexpr Requests part = Requests::many_queries;  ///< of a call of two kernels
  static constexpr bool may_spill =
      false;  // one that spills, or waits, is not what its config was meant to be
  static constexpr ForwardWgmma smallest = {
      .tile_q = 64, .tile_kv = 16, .stages_k = 1, .output = OutputPlace::direct};

  static ForwardWgmma smallest_for(const AttentionSpec& spec);
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

/// Warpgroups of a block that compute.
int consumers_of(const ForwardWgmma& config);
/// Whether tiles of keys go from the last one to the first, with fp8: the first keys are those that may stand out, and
/// what is small beside them is lost to P of 8 bits from then on (docs/fp8.md).
bool goes_down(const AttentionSpec& spec);
/// Whether sums of P are a product with ones, beside P V of fp8, so that they are of P as it is rounded.
bool has_sums_by_products(const AttentionSpec& spec, const ForwardWgmma& config);
/// Columns of ones that P V has for them beside those of V.
int sum_columns_of(const AttentionSpec& spec, const ForwardWgmma& config);
/// How many of 8 exponentials of fp8 are interpolated between powers of two where nothing else is lost.
int interpolated_exponentials(const AttentionSpec& spec);

/// Registers per thread that setmaxnreg gives to the warpgroups; all 0: those that the kernel was launched
/// with.
struct RegisterShares {
  int producer = 0;
  int consumer = 0;
  int converter = 0;  ///< of values of 8 bits, or of keys and values where only these have 8 bits
};
RegisterShares register_shares(const AttentionSpec& spec, const ForwardWgmma& config);

/// Whether k and v are of 8 bits under q of 16.
bool has_stored_keys(const AttentionSpec& spec);
/// Whether only a kernel ahead can: their rows have no whole chunks.
bool wants_upcast_ahead(const AttentionSpec& spec);
/// Whether the kernel makes numbers of 16 of these on their way: no other one does before it.
bool upcasts(const AttentionSpec& spec, const ForwardWgmma& config);
/// The spec that the kernel serves: of keys that are upcast ahead as they are then.
AttentionSpec read_spec(const AttentionSpec& spec, const ForwardWgmma& config);

/// Columns of O that one instruction of P V makes: all, unless k and v come as 8 bits and the registers that a thread
/// begins with are too few.
int output_columns_at_once(const AttentionSpec& spec, const ForwardWgmma& config);

/// Whether the mask knows keys by a word of each, which the key producer leaves in shared memory: see
/// templates/problem/masks.cuh.
bool has_key_words(const AttentionSpec& spec);

}  // namespace forward_wgmma
}  // namespace jit
