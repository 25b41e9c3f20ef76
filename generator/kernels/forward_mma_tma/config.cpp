// The fields of forward_mma_tma, rules and search grid.
#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <jit/dtype.h>
#include <jit/spec_table.h>

#include "generator/functors/functor_node.h"
#include "generator/kernels/forward_mma_tma/family.h"
#include "generator/kernels/tma_rules.h"
#include "templates/base/bit_words.cuh"
#include "templates/base/element.cuh"
#include "templates/forward_mma_tma/smem_layout.cuh"

namespace jit {

using namespace forward_mma_tma;

namespace {

// Pipeline states, addresses, softmax state, fragments: calibrated with ptxas.
constexpr int other_registers = 48;
constexpr int functor_registers = 8;
constexpr int fp8_registers = 8;  // to transpose bytes of V

constexpr std::array rows = {
    field<&ForwardMmaTma::tile_q>(
        "tile_q", "queries per block",
        {multiples(rows_per_warpgroup, 2 * rows_per_warpgroup), Affects::tiling, 64}),
    field<&ForwardMmaTma::tile_kv>("tile_kv", "keys per step", {multiples(16, 128), Affects::tiling, 32}),
    field<&ForwardMmaTma::stages>("stages", "buffers for K tiles, and as many for V tiles",
                                  {range(1, 4), Affects::buffers, 1}),
};
static_assert(rows.size() == member_count<ForwardMmaTma>(), "each member has a row");

// As in templates/forward_mma_tma/traits.cuh.
int mask_bit_words(const AttentionSpec& spec, const ForwardMmaTma& config) {
  const std::optional<BlockSides> sides = mask_bit_sides(spec.mask);
  return sides ? words_of_known_tile(sides->q, sides->kv, config.tile_q, config.tile_kv) : 0;
}

int smem_bytes(const AttentionSpec& spec, const ForwardMmaTma& config) {
  return smem_layout({.head_dim = spec.head_dim,
                      .head_dim_v = spec.value_head_dim(),
                      .tile_q = config.tile_q,
                      .tile_kv = config.tile_kv,
                      .stages = config.stages,
                      .element_bytes = size_of(spec.dtype),
                      .key_words = key_words(spec.mask) == 1,
                      .has_lengths = !is_plain(spec),
                      .key_scales = spec.descale_per != ScaleKind::head,
                      .mask_bit_words = mask_bit_words(spec, config)})
      .total;
}

// Registers of a computing warp: accumulators, Q if it stays there, and the rest.
int estimated_registers(const AttentionSpec& spec, const ForwardMmaTma& config) {
  const int output = padded_head_dim(spec.value_head_dim()) / 2, scores = config.tile_kv / 2;
  const int q_bytes = padded_head_dim(spec.head_dim, facts(spec.dtype).mma_k) * size_of(spec.dtype);
  const int functors = (has_row_range(spec.mask) ? 0 : functor_count(spec.mask)) + functor_count(spec.score);
  return output + scores + (fits_registers(q_bytes, spec.value_head_dim()) ? q_bytes / 8 : 0) +
         other_registers + functors * functor_registers + (has_fp8_queries(spec) ? fp8_registers : 0) +
         dropout_registers(spec, scores);
}

// Registers by which estimates below the cap were seen to spill: with score elements prefetched, distances
// computed ahead next to other functors, or scales per row.
int register_doubt(const AttentionSpec& spec, const ForwardMmaTma& config) {
  const bool has_distances =
      functor_count(spec.mask) + functor_count(spec.score) > 1 && !are_steady(spec.score);
  return 2 + (reads_elements(spec.score) ? config.tile_kv * 3 / 8 : 0) +
         (has_distances ? config.tile_kv / 4 : 0) + (spec.descale_per != ScaleKind::head ? 4 : 0) +
         (spec.lse_shift ? 24 : 0);
}

}  // namespace

std::span<const ConfigField<ForwardMmaTma>> Family<ForwardMmaTma>::fields() { return rows; }

ForwardMmaTma Family<ForwardMmaTma>::smallest_for(const AttentionSpec& spec) {
  ForwardMmaTma config = smallest;
  if (spec.dropout || has_fp8_queries(spec)) config.tile_kv = std::max(dropout_keys, facts(spec.dtype).mma_k);
  return config;
}

std::string Family<ForwardMmaTma>::rejection(const Case& problem, const ForwardMmaTma& config) {
  const AttentionSpec& spec = problem.spec;
  if (!has_fp8_queries(spec)) {
    if (std::string reason = kv_dtype_rejection(spec, name); !reason.empty()) return reason;
  }
  if (std::string reason = wide_output_rejection(spec, name); !reason.empty()) return reason;
  if (std::string reason = tma_rejection(problem, name); !reason.empty()) return reason;
  const int mma_k = facts(spec.dtype).mma_k;
  if (config.tile_kv % mma_k != 0)
    return fmt::format("tile_kv = {} must be a multiple of {} with fp8", config.tile_kv, mma_k);
  if (std::string reason = dropout_tile_rejection(spec, config.tile_kv); !reason.empty()) return reason;
  if (spec.split_keys != 0)
    return fmt::format("{} sums keys without a break, not in spans of split_keys = {}", name,
                       spec.split_keys);
  return box_rejection(spec, config.tile_kv, false);
}

Footprint Family<ForwardMmaTma>::footprint(const AttentionSpec& spec, const ForwardMmaTma& config) {
  const int warps = computing_warps(config) + producer_warps;
  const bool shares = warps > 8;  // as in templates/forward_mma_tma/traits.cuh
  return {.threads = warps * 32,
          .smem_bytes = smem_bytes(spec, config),
          .registers = estimated_registers(spec, config),
          .register_cap = shares ? shared_registers : max_registers_per_thread,
          .blocks_per_sm = 1,
          .register_slack = 0,
          .register_doubt = register_doubt(spec, config)};
}

// For each tile of queries, the largest tile of keys that fits, and divides blocks of a block mask: shared
// memory is the scarcest resource.
std::vector<ForwardMmaTma> Family<ForwardMmaTma>::space(const Case& problem) {
  std::vector<ForwardMmaTma> configs;
  const std::optional<BlockSides> sides = block_sides(problem.spec.mask);
  for (const int tile_q : {128, 64}) {
    for (const int tile_kv : {128, 96, 64, 48, 32, 16}) {
      const ForwardMmaTma config{.tile_q = tile_q, .tile_kv = tile_kv};
      if (sides && sides->kv % tile_kv != 0 && tile_kv > 16) continue;
      if (!rule_rejection(problem, config).empty()) continue;
      const Footprint needs = footprint(problem.spec, config);
      if (needs.registers + needs.register_doubt > needs.register_cap) continue;
      configs.push_back(config);
      break;
    }
  }
  return configs;
}

}  // namespace jit
