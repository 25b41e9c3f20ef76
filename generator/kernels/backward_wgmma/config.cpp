#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "generator/functors/functor_node.h"
#include "generator/functors/functor_tensors.h"
#include "generator/functors/score_mask.h"
#include "generator/kernels/backward_wgmma/family.h"
#include "generator/kernels/tma_rules.h"
#include "templates/backward/visits.cuh"
#include "templates/backward_wgmma/smem_layout.cuh"
#include "templates/base/element.cuh"

namespace jit {

using namespace backward_wgmma;

namespace {

constexpr int warpgroup_threads = 128;
// Registers of addresses, steps, tile infos, and prefetched statistics: calibrated with ptxas.
constexpr int other_registers = 16;

constexpr std::array rows = {
    field<&BackwardWgmma::stages>("stages", "buffers for tiles of queries",
                                  {multiples(2, 4), Affects::buffers, 4}),
    field<&BackwardWgmma::deterministic>("deterministic", "blocks take turns when they add to dQ",
                                         {.affects = Affects::buffers}),
    field<&BackwardWgmma::dropout_mask_ahead>(
        "dropout_mask_ahead", "a kernel before this one draws the dropout mask, into a workspace", {}),
    field<&BackwardWgmma::pair>("pair", "two blocks share a tile of keys and exchange dS",
                                {.affects = Affects::tiling}),
};
static_assert(rows.size() == member_count<BackwardWgmma>(), "each member has a row");

// Registers of a consumer's accumulators of dK and dV.
int gradient_registers(const AttentionSpec& spec) {
  const int dk = padded_head_dim(spec.head_dim) / 2, dv = padded_head_dim(spec.value_head_dim()) / 2;
  return backward_wgmma::has_roles(spec) ? std::max(dk, dv) : dk + dv;
}

int largest_head_dim(const AttentionSpec& spec) { return std::max(spec.head_dim, spec.value_head_dim()); }

// Whether two blocks share a tile and each has a panel of dQ.
bool has_pairs(const AttentionSpec& spec) {
  return largest_head_dim(spec) > largest_of_rows && panel_count(spec.head_dim) > 1;
}

// Registers of S and dP, and of P and dS, rounded, or of one of these with roles.
int score_registers(const AttentionSpec& spec) {
  constexpr int all = step_queries + step_queries / 2;
  return backward_wgmma::has_roles(spec) ? all / 2 : all;
}

}  // namespace

namespace backward_wgmma {

// Whether 128 keys span several blocks of a block mask: half of the products with a tile's queries would be
// masked.
bool has_narrow_blocks(const AttentionSpec& spec) {
  const int largest = largest_head_dim(spec);
  const std::optional<BlockSides> sides = block_sides(spec.mask);
  return largest > largest_beside_queries && largest <= largest_of_rows && sides &&
         sides->kv <= keys_of_block(true);
}

bool has_roles(const AttentionSpec& spec) {
  return largest_head_dim(spec) > largest_of_rows || has_narrow_blocks(spec);
}
bool has_query_consumer(const AttentionSpec& spec) {
  return has_query_consumer(spec.head_dim, spec.value_head_dim(), has_roles(spec));
}
int own_keys(const AttentionSpec& spec) { return keys_of_block(has_roles(spec)); }
int tile_kv(const AttentionSpec& spec, const BackwardWgmma& config) {
  return own_keys(spec) * blocks_per_tile(config);
}

// Splits 168 registers of each of three warpgroups, or 128 of each of four. With small head dims consumers
// need fewer, and producers, which evaluate the mask, get more. With 232, products of large head dims would be serialized.
RegisterShares register_shares(const AttentionSpec& spec) {
  constexpr int small = 192;
  if (has_narrow_blocks(spec)) return {.producer = 64, .consumer = 192, .dq = 64};
  if (has_query_consumer(spec)) return {.producer = 32, .consumer = 208, .dq = 64};
  if (gradient_registers(spec) + score_registers(spec) <= small) return {.producer = 56, .consumer = 224};
  return {.producer = 24, .consumer = 240};
}

DropoutMaskTiles dropout_mask_tiles(const AttentionSpec& spec, const BackwardWgmma& config) {
  return {step_queries, tile_kv(spec, config), dropout_mask_for_key_rows()};
}

}  // namespace backward_wgmma

std::span<const ConfigField<BackwardWgmma>> Family<BackwardWgmma>::fields() { return rows; }

std::string Family<BackwardWgmma>::rejection(const Case& problem, const BackwardWgmma& config) {
  if (std::string reason = gradient_rejection(problem.spec, name); !reason.empty()) return reason;
  const auto& [spec, limits] = problem;
  if (spec.mean_score && !(spec.score == score::none()))
    return fmt::format("{} has the gradient of mean_score without a score functor; spec.score is {}", name,
                       spec.score.to_string());
  if (std::string reason = dropout_mask_rejection(spec, config.dropout_mask_ahead); !reason.empty())
    return reason;
  if (std::string reason = tma_rejection(problem, name); !reason.empty()) return reason;
  if (config.pair && !has_pairs(spec)) {
    return fmt::format(
        "{} has pairs of blocks for head dims above {} alone, where K has two panels of {} columns; "
        "pair must be false, head_dim is {}, head_dim_v {}",
        name, largest_of_rows, panel_columns(largest_of_rows), spec.head_dim, spec.value_head_dim());
  }
  return "";
}

Footprint Family<BackwardWgmma>::footprint(const AttentionSpec& spec, const BackwardWgmma& config) {
  return {.threads = (consumer_count(has_query_consumer(spec)) + 1) * warpgroup_threads,
          .smem_bytes = smem_layout({.head_dim = spec.head_dim,
                                     .head_dim_v = spec.value_head_dim(),
                                     .tile_kv = backward_wgmma::tile_kv(spec, config),
                                     .stages = config.stages,
                                     .pair = config.pair,
                                     .deterministic = config.deterministic,
                                     .draws = spec.dropout && !config.dropout_mask_ahead,
                                     .is_bounded = !is_plain(spec),
                                     .is_wide = output_dtype(spec) == DType::fp32,
                                     .has_means = spec.mean_score})
                            .total,
          .registers = gradient_registers(spec) + score_registers(spec) + other_registers,
          .register_cap = register_shares(spec).consumer,
          .blocks_per_sm = 1,
          .register_slack = 0,
          .register_doubt = 0};
}

std::vector<BackwardWgmma> Family<BackwardWgmma>::space(const Case& problem) {
  // Four buffers first, which load further ahead. Turns save clearing dQ, which outweighs waiting for short
  // sequences.
  std::vector<BackwardWgmma> configs;
  const bool may_have_dropout_mask = dropout_mask_rejection(problem.spec, true).empty();
  for (const bool deterministic : {false, true}) {
    for (const int stages : {4, 2}) {
      for (const bool ahead : {true, false}) {
        if (ahead && !may_have_dropout_mask) continue;
        for (const bool pair : {true, false}) {
          if (pair && !has_pairs(problem.spec)) continue;
          configs.push_back(
              {.stages = stages, .deterministic = deterministic, .dropout_mask_ahead = ahead, .pair = pair});
        }
      }
    }
  }
  return configs;
}

}  // namespace jit
