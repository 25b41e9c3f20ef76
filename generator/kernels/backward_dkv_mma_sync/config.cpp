#include <algorithm>

#include <fmt/format.h>

#include "generator/functors/functor_node.h"
#include "generator/kernels/backward_dkv_mma_sync/family.h"
#include "generator/kernels/backward_pass.h"
#include "templates/backward/pass_smem.cuh"
#include "templates/base/element.cuh"

namespace jit {
namespace {

constexpr int rows_per_mma = 16;
// Registers of loop counters and addresses, of fragments per 16 rows, and of each mask and score.
constexpr int other_registers = 44;
constexpr int row_block_registers = 4;
constexpr int functor_registers = 8;
// The largest promising excess of the estimate over the cap: a few spilled bytes may be fast.
constexpr int spill_allowance = 40;

constexpr std::array rows = {
    field<&BackwardDkvMmaSync::tile_q>("tile_q", "queries per step",
                                       {multiples(16, 256), Affects::tiling, 32}),
    field<&BackwardDkvMmaSync::tile_kv>("tile_kv", "keys per block",
                                        {multiples(16, 256), Affects::tiling, 128}),
    field<&BackwardDkvMmaSync::warps>("warps", "warps per block; each owns tile_kv / warps keys",
                                      {range(1, 16), Affects::tiling, 2}),
    field<&BackwardDkvMmaSync::stages>("stages", "buffers for tiles of queries",
                                       {range(1, 4), Affects::buffers, 1}),
    field<&BackwardDkvMmaSync::separate>("separate", "different blocks compute dK and dV, else the same", {}),
    field<&BackwardDkvMmaSync::blocks_per_sm>("blocks_per_sm",
                                              "blocks that must fit on a multiprocessor: caps the registers",
                                              {range(1, 8), Affects::registers, 2}),
};
static_assert(rows.size() == member_count<BackwardDkvMmaSync>(), "each member has a row");

}  // namespace

std::span<const ConfigField<BackwardDkvMmaSync>> Family<BackwardDkvMmaSync>::fields() { return rows; }

std::string Family<BackwardDkvMmaSync>::rejection(const Case& problem, const BackwardDkvMmaSync& config) {
  if (std::string reason = wide_output_rejection(problem.spec, name); !reason.empty()) return reason;
  if (std::string reason = gradient_rejection(problem.spec, name); !reason.empty()) return reason;
  if (config.tile_kv % (rows_per_mma * config.warps) == 0) return "";
  return fmt::format("tile_kv = {} must be a multiple of 16 · warps = {}", config.tile_kv,
                     rows_per_mma * config.warps);
}

Footprint Family<BackwardDkvMmaSync>::footprint(const AttentionSpec& spec, const BackwardDkvMmaSync& config) {
  const int row_blocks = config.tile_kv / config.warps / rows_per_mma;
  const int parts = column_warps(spec.head_dim, spec.value_head_dim());
  const int d = warp_columns(spec.head_dim, parts), dv = warp_columns(spec.value_head_dim(), parts);
  const int gradients = row_blocks * (config.separate ? std::max(d, dv) : d + dv) / 8 * 4;
  const int scores = 2 * row_blocks * config.tile_q / 8 * 4;  // of S and of dP
  const int functors = functor_count(spec.mask) + functor_count(spec.score);
  const int threads = config.warps * parts * 32;
  const int share = registers_per_sm / (threads * config.blocks_per_sm);
  return {.threads = threads,
          .smem_bytes = pass_smem(spec.head_dim, spec.value_head_dim(), config.tile_kv, config.tile_q,
                                  config.tile_q, config.stages)
                            .total,
          .registers = gradients + scores + other_registers + row_blocks * row_block_registers +
                       functors * functor_registers + dropout_registers(spec, scores / 2),
          .register_cap = std::min(max_registers_per_thread, share / 8 * 8),
          .blocks_per_sm = config.blocks_per_sm,
          .register_slack = spill_allowance,
          .register_doubt = backward_register_doubt(spec)};
}

std::vector<BackwardDkvMmaSync> Family<BackwardDkvMmaSync>::space(const Case& problem) {
  std::vector<BackwardDkvMmaSync> configs;
  // Shared memory has room for few rows of more columns than a warp sums.
  const bool is_wide = column_warps(problem.spec.head_dim, problem.spec.value_head_dim()) > 1;
  const std::vector<int> warp_counts = is_wide ? std::vector{1, 2, 4} : std::vector{2, 4, 8};
  for (const int warps : warp_counts) {
    for (const int warp_rows : {16, 32}) {
      for (const int tile_q : {16, 32, 64, 128}) {
        for (const int stages : {1, 2, 3}) {
          for (const bool separate : {false, true}) {
            for (const int blocks_per_sm : {1, 2, 3}) {
              configs.push_back({.tile_q = tile_q,
                                 .tile_kv = warps * warp_rows,
                                 .warps = warps,
                                 .stages = stages,
                                 .separate = separate,
                                 .blocks_per_sm = blocks_per_sm});
            }
          }
        }
      }
    }
  }
  return configs;
}

}  // namespace jit
