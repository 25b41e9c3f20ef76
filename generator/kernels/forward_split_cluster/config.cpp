// The fields of forward_split_cluster, rules and search grid.
#include <algorithm>
#include <array>
#include <bit>

#include <fmt/format.h>
#include <jit/dtype.h>

#include "generator/functors/functor_node.h"
#include "generator/kernels/forward_split_cluster/family.h"
#include "generator/kernels/tma_rules.h"
#include "runtime/module.h"
#include "templates/forward_split_cluster/smem_layout.cuh"

namespace jit {

using namespace forward_split_cluster;

namespace {

// The most queries per sequence, or on average; with more, other families are faster.
constexpr std::int64_t few_queries = 8;
// Smallest whole GPU, which has GPCs that hold the largest cluster; MIG slices may not.
constexpr int multiprocessors_of_whole = 100;

// Registers of loop counters, addresses and tile state; of softmax state and fragments; of masks and scores.
constexpr int other_registers = 72;
constexpr int functor_registers = 8;
constexpr int fp8_registers = 8;
constexpr int spill_allowance = 40;

constexpr std::array rows = {
    field<&ForwardSplitCluster::cluster>("cluster",
                                         "blocks that share the keys of a tile of rows, a power of two",
                                         {range(1, largest_cluster), Affects::tiling, 2}),
    field<&ForwardSplitCluster::block_warps>("block_warps",
                                             "warps of a block, each of which has keys of its own",
                                             {range(1, 16), Affects::tiling, 2}),
    field<&ForwardSplitCluster::tile_kv>("tile_kv", "keys per step of a warp",
                                         {multiples(16, 32), Affects::tiling, 32}),
    field<&ForwardSplitCluster::stages>("stages", "buffers of a warp for tiles of keys and values",
                                        {range(2, 16), Affects::buffers, 2}),
    field<&ForwardSplitCluster::blocks_per_sm>("blocks_per_sm",
                                               "blocks that must fit on a multiprocessor: caps the registers",
                                               {range(1, 8), Affects::registers, 2}),
};
static_assert(rows.size() == member_count<ForwardSplitCluster>(), "each member has a row");

}  // namespace

std::span<const ConfigField<ForwardSplitCluster>> Family<ForwardSplitCluster>::fields() { return rows; }

bool Family<ForwardSplitCluster>::suits(const ProblemShape& shape) {
  return !shape.has_many_heads && (shape.has_device_lengths || shape.seqlen_q <= few_queries);
}

std::string Family<ForwardSplitCluster>::rejection(const Case& problem, const ForwardSplitCluster& config) {
  const AttentionSpec& spec = problem.spec;
  if (std::string reason = wide_output_rejection(spec, name); !reason.empty()) return reason;
  if (has_quantized_output(spec)) return output_functor_rejection(spec, name, false);
  if (std::string reason = dropout_rejection(spec, name); !reason.empty()) return reason;
  if (spec.split_keys != 0) {
    return fmt::format(
        "{} has no spans of keys, as each warp of a cluster sums a share that the call decides; "
        "spec.split_keys is {}",
        name, spec.split_keys);
  }
  if (facts(spec.key_dtype()).numbers > 1) {
    return fmt::format("{} reads k and v whose bytes are one number each; spec.kv_dtype is {}", name,
                       to_string(spec.key_dtype()));
  }
  if (spec.descale_per != ScaleKind::head)
    return fmt::format("{} reads scales of heads, none of tokens or blocks", name);
  if (!std::has_single_bit(static_cast<unsigned>(config.cluster)))
    return fmt::format("cluster = {} must be a power of two", config.cluster);
  return "";
}

Footprint Family<ForwardSplitCluster>::footprint(const AttentionSpec& spec,
                                                 const ForwardSplitCluster& config) {
  const int threads = config.block_warps * 32;
  const int output = padded_head_dim(spec.value_head_dim()) / 8 * 4;
  const int scores = config.tile_kv / 8 * 4;
  const int q =
      holds_queries(spec.head_dim, size_of(spec.key_dtype())) ? padded_head_dim(spec.head_dim) / 16 * 4 : 4;
  const int functors = functor_count(spec.mask) + functor_count(spec.score);
  // An SM sub-partition has a quarter of the registers, and every fourth warp.
  constexpr int quarters = 4;
  const int warps_of_quarter = (config.block_warps * config.blocks_per_sm + quarters - 1) / quarters;
  const int share = registers_per_sm / quarters / (warps_of_quarter * 32);
  return {.threads = threads,
          .smem_bytes = smem_layout({.head_dim = spec.head_dim,
                                     .head_dim_v = spec.value_head_dim(),
                                     .query_bytes = size_of(spec.dtype),
                                     .key_bytes = size_of(spec.key_dtype()),
                                     .cluster = config.cluster,
                                     .block_warps = config.block_warps,
                                     .tile_kv = config.tile_kv,
                                     .stages = config.stages,
                                     .has_pages = spec.sequences_kv == SequenceKind::paged})
                            .total,
          .registers = output + scores + q + other_registers + functors * functor_registers +
                       (has_narrow_keys(spec) ? fp8_registers : 0),
          .register_cap = std::min(max_registers_per_thread, share / 8 * 8),
          .blocks_per_sm = config.blocks_per_sm,
          .register_slack = spill_allowance,
          .register_doubt = 8};
}

std::vector<ForwardSplitCluster> Family<ForwardSplitCluster>::space(const Case& problem) {
  std::vector<ForwardSplitCluster> configs;
  for (const int cluster : {1, 2, 4, 8, 16}) {
    if (cluster > portable_cluster && problem.limits.sm_count < multiprocessors_of_whole) continue;
    for (const int block_warps : {4, 8}) {
      for (const int tile_kv : {16, 32}) {
        for (const int stages : {2, 3, 4, 6}) {
          for (const int blocks_per_sm : {1, 2}) {
            configs.push_back({.cluster = cluster,
                               .block_warps = block_warps,
                               .tile_kv = tile_kv,
                               .stages = stages,
                               .blocks_per_sm = blocks_per_sm});
          }
        }
      }
    }
  }
  return configs;
}

}  // namespace jit
