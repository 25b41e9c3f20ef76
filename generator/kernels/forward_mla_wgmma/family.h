// The family of forward kernels whose V is the first columns of K (templates/forward_mla_wgmma).
#pragma once

#include <jit/dtype.h>

#include "generator/kernels/family.h"
#include "generator/kernels/split_wgmma.h"
#include "generator/kernels/tma_rules.h"
#include "generator/kernels/upcast_keys.h"

namespace jit {

namespace forward_mla_wgmma {
/// Words that who computes scores gets per key of a list.
inline int list_words(const AttentionSpec& spec) {
  return !has_lists(spec) ? 0 : spec.list_queries > 1 ? 2 : 1;
}
/// Whether a kernel ahead upcasts 8-bit latents. With cp.async, warps that copy rows convert them.
inline bool upcasts_ahead(const AttentionSpec& spec, const ForwardMlaWgmma& config) {
  return has_narrow_keys(spec) && config.copies == Copies::tma;
}
/// Whether producer warps upcast 8-bit latents.
inline bool converts_rows(const AttentionSpec& spec, const ForwardMlaWgmma& config) {
  return has_narrow_keys(spec) && !upcasts_ahead(spec, config);
}
/// Whether consumers compute scores, of every other tile each: where 16-bit rows are copied by cp.async.
inline bool seesaws(const AttentionSpec& spec, const ForwardMlaWgmma& config) {
  return config.copies == Copies::cp_async && !converts_rows(spec, config);
}
/// Registers by setmaxnreg: the kernel is launched with 128 for each of 4 warpgroups, or 168 of 3 without a
/// score warpgroup. That has more if it passes on P late: not if rows are converted, which must wait for free
/// buffers. The producer needs more where queries share lists.
inline RegisterShares register_shares(const AttentionSpec& spec, const ForwardMlaWgmma& config) {
  if (converts_rows(spec, config)) return {.producer = 64, .consumer = 160, .score = 128};
  if (!seesaws(spec, config)) return {.producer = 56, .consumer = 160, .score = 136};
  return spec.list_queries > 1 ? RegisterShares{.producer = 72, .consumer = 216}
                               : RegisterShares{.producer = 56, .consumer = 224};
}
/// Bytes of a stored row that the producer converts; else 0.
inline int stored_row_bytes(const AttentionSpec& spec, const ForwardMlaWgmma& config) {
  return converts_rows(spec, config) ? facts(spec.key_dtype()).row_bytes : 0;
}
/// The spec of the kernel that reads 16-bit latents.
inline AttentionSpec read_spec(const AttentionSpec& spec, const ForwardMlaWgmma& config) {
  if (upcasts_ahead(spec, config)) return upcast_spec(spec);
  AttentionSpec read = spec;
  read.kv_dtype.reset();
  return read;
}
}  // namespace forward_mla_wgmma

template <>
struct Family<ForwardMlaWgmma> : FamilyDefaults<ForwardMlaWgmma> {
  static constexpr std::string_view name = "forward_mla_wgmma";
  static constexpr std::string_view doc =
      "TMA and wgmma, values that are columns of keys (MLA), keys split over blocks: sm_90a, any sequences";
  static constexpr std::span<const Arch> archs = archs_of_wgmma;
  static constexpr Pass pass = Pass::forward;
  static constexpr bool may_spill = false;
  static constexpr bool reads_latents = true;
  static constexpr bool reads_lists = true;
  static constexpr FamilyOutputs outputs = largest_scores;
  static constexpr int most_head_dim = max_latent_head_dim;
  static constexpr int most_head_dim_v = max_head_dim;
  static constexpr ForwardMlaWgmma smallest = {.stages = 2, .copies = Copies::cp_async};

  static std::span<const ConfigField<ForwardMlaWgmma>> fields();
  static bool suits(const ProblemShape&) { return true; }
  static bool can_read(const ProblemShape& shape, const ForwardMlaWgmma& config);
  static std::string rejection(const Case& problem, const ForwardMlaWgmma& config);
  static std::vector<ForwardMlaWgmma> space(const Case& problem);
  static Footprint footprint(const AttentionSpec& spec, const ForwardMlaWgmma& config);
  static double cycles(const Case& problem, const ProblemShape& shape, const ForwardMlaWgmma& config);
  static Program program(const AttentionSpec& spec, const ForwardMlaWgmma& config);
  static std::size_t workspace_bytes(const AttentionSpec& spec, const ForwardMlaWgmma& config,
                                     const AttentionParams& params, int /*sm_count*/) {
    return forward_mla_wgmma::upcasts_ahead(spec, config) ? upcast_bytes(spec, params) : 0;
  }
  static void launch(const KernelLaunch& launch, const ForwardMlaWgmma& config);
};

}  // namespace jit
