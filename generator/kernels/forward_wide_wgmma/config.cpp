// The fields of forward_wide_wgmma, rules and search grid.
#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <jit/dtype.h>
#include <jit/spec_table.h>

#include "generator/functors/functor_node.h"
#include "generator/functors/functor_tensors.h"
#include "generator/functors/score_mask.h"
#include "generator/kernels/forward_wide_wgmma/family.h"
#include "generator/kernels/tma_rules.h"
#include "templates/base/bit_words.cuh"
#include "templates/forward_wide_wgmma/smem_layout.cuh"

namespace jit {

using namespace forward_wide_wgmma;

namespace {

constexpr int score_warpgroups = 1;
constexpr int threads = (1 + score_warpgroups + output_warpgroups) * 128;
// Largest head dims that fit one warpgroup's registers: there, forward_wgmma is faster.
constexpr int narrow_head_dim = 256;
// Addresses, pipeline states, row factors: calibrated with ptxas.
constexpr int output_other_registers = 30;

constexpr std::array rows = {
    field<&ForwardWideWgmma::stages_k>("stages_k", "buffers for panels of K",
                                       {range(3, 16), Affects::buffers, 6}),
};
static_assert(rows.size() == member_count<ForwardWideWgmma>(), "each member has a row");

// As in templates/forward_wide_wgmma/traits.cuh.
int mask_bit_words(const AttentionSpec& spec) {
  const std::optional<BlockSides> sides = mask_bit_sides(spec.mask);
  return sides ? words_of_known_tile(sides->q, sides->kv, rows_per_warpgroup, tile_kv) : 0;
}

}  // namespace

std::span<const ConfigField<ForwardWideWgmma>> Family<ForwardWideWgmma>::fields() { return rows; }

std::string Family<ForwardWideWgmma>::rejection(const Case& problem, const ForwardWideWgmma&) {
  const auto& [spec, limits] = problem;
  if (std::string reason = kv_dtype_rejection(spec, name); !reason.empty()) return reason;
  if (std::string reason = wide_output_rejection(spec, name); !reason.empty()) return reason;
  if (std::string reason = tma_rejection(problem, name); !reason.empty()) return reason;
  if (std::max(spec.head_dim, spec.value_head_dim()) <= narrow_head_dim) {
    return fmt::format("{} is for head dims above {}; head_dim is {} and head_dim_v {}", name,
                       narrow_head_dim, spec.head_dim, spec.value_head_dim());
  }
  if (spec.values_in_keys)
    return fmt::format("{} reads values that are a tensor of their own; spec.values_in_keys is true", name);
  if (spec.split_keys != 0)
    return fmt::format("{} sums keys without a break, not in spans of split_keys = {}", name,
                       spec.split_keys);
  return box_rejection(spec, tile_kv, false);
}

forward_wide_wgmma::RegisterShares forward_wide_wgmma::register_shares(const AttentionSpec& spec) {
  const ScoreMask* const score = score_mask(spec.score);
  const bool reads = !spec.mask.tensors().empty() || (score != nullptr && !score->tensors.empty()) ||
                     asks_by_positions(spec);
  // Shares add up to 512: the kernel is launched with 128 for each of 4 warpgroups.
  if (reads || !is_plain(spec)) return {.producer = 56, .score = 120, .output = 168, .q_panels = 2};
  return {.producer = 40, .score = 136, .output = 168, .q_panels = spec.dropout ? 2 : 4};
}

Footprint Family<ForwardWideWgmma>::footprint(const AttentionSpec& spec, const ForwardWideWgmma& config) {
  return {.threads = threads,
          .smem_bytes = smem_layout({.head_dim = spec.head_dim,
                                     .head_dim_v = spec.value_head_dim(),
                                     .stages_k = config.stages_k,
                                     .key_words = key_words(spec.mask) == 1,
                                     .has_lengths = !is_plain(spec),
                                     .mask_bit_words = mask_bit_words(spec)})
                            .total,
          .registers = output_columns(spec.value_head_dim()) / 2 + output_other_registers,
          .register_cap = register_shares(spec).output,
          .blocks_per_sm = 1,
          .register_slack = 0,
          .register_doubt = 8};
}

std::vector<ForwardWideWgmma> Family<ForwardWideWgmma>::space(const Case& problem) {
  std::vector<ForwardWideWgmma> configs;
  const AttentionSpec& spec = problem.spec;
  if (std::max(spec.head_dim, spec.value_head_dim()) <= narrow_head_dim) return configs;
  // Stages for a single tile of K were faster than more, whenever both were timed.
  for (int stages_k = 3; stages_k <= 8; ++stages_k) configs.push_back({stages_k});
  return configs;
}

}  // namespace jit
